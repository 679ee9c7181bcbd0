//! The writers of a global pattern (a log and one commit of it), and for each slot its writer and log address.

use crate::LogSource;
use crate::column::Column;
use std::collections::HashMap;

/// Log, sequence, and log address of a slot's first byte.
pub(crate) type SlotOrigin = (LogSource, u64, u64);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct SlotWriters {
    /// Writer of each slot.
    pub(crate) writer: Column,
    /// Log address of each slot's first byte.
    pub(crate) addr: Column,
    pub(crate) count: u64,
    pub(crate) member: Column,
    pub(crate) log: Column,
    pub(crate) sequence: Column,
    /// The largest sequence.
    pub(crate) newest: u64,
}

impl SlotWriters {
    /// Of these slots; the numbers of slots in each of `turns` may be a period.
    pub(crate) fn new(slots: &[SlotOrigin], turns: &[u64]) -> Option<SlotWriters> {
        // Numbered as they first come, so that both columns are as even as the slots are.
        let mut numbers: HashMap<(LogSource, u64), u64> = HashMap::new();
        let mut writers = Vec::new();
        let mut numbered = Vec::with_capacity(slots.len());
        for &(source, sequence, _) in slots {
            let number = *numbers.entry((source, sequence)).or_insert_with(|| {
                writers.push((source, sequence));
                writers.len() as u64 - 1
            });
            numbered.push(number);
        }
        let writer = Column::with_periods(numbered, turns);
        let addr = Column::with_periods(slots.iter().map(|s| s.2).collect(), turns);
        // Where each slot has a writer of its own, what repeats after a turn of slots may do so here too.
        let turns = match writers.len() == slots.len() {
            true => turns,
            false => &[],
        };
        let table = |of: fn(&(LogSource, u64)) -> u64| {
            Column::with_periods(writers.iter().map(of).collect(), turns)
        };
        SlotWriters::with(
            [
                writer,
                addr,
                table(|w| w.0.member.into()),
                table(|w| w.0.log),
                table(|w| w.1),
            ],
            writers.len() as u64,
            slots.len() as u64,
        )
    }

    /// Of these columns: writer and address of `slots` slots, then member, log and sequence of `writers` writers.
    pub(crate) fn with(columns: [Column; 5], writers: u64, slots: u64) -> Option<SlotWriters> {
        let [writer, addr, member, log, sequence] = columns;
        let fits = writer.max(slots)? < writers && member.max(writers)? <= u64::from(u16::MAX);
        let newest = sequence.max(writers)?;
        addr.max(slots).filter(|a| fits && a >> 63 == 0)?;
        Some(SlotWriters {
            writer,
            addr,
            count: writers,
            member,
            log,
            sequence,
            newest,
        })
    }

    /// Where a slot's bytes come from.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> SlotOrigin {
        let writer = self.writer.get(slot);
        let (source, sequence) = (self.source(writer), self.sequence.get(writer));
        (source, sequence, self.addr.get(slot))
    }

    #[inline]
    fn source(&self, writer: u64) -> LogSource {
        LogSource {
            member: self.member.get(writer) as u16,
            log: self.log.get(writer),
        }
    }

    /// The log of each writer.
    pub(crate) fn sources(&self) -> impl Iterator<Item = LogSource> + '_ {
        (0..self.count).map(|writer| self.source(writer))
    }

    /// The columns in the order of [`SlotWriters::with`].
    pub(crate) fn columns(&self) -> [&Column; 5] {
        [
            &self.writer,
            &self.addr,
            &self.member,
            &self.log,
            &self.sequence,
        ]
    }
}
