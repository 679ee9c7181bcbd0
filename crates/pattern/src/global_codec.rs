//! The encoded form of a global pattern, inside its frame.
//!
//! ```text
//!  | flags  | limit  | body flags | length | body of one term | places | writers | columns |
//!  | 1 byte | varint | 1 byte     | varint | (see `encode`)   |        | varint  |         |
//!
//!  places:  | number of even steps | stride, count of each, the outermost first |        or, flag 2:
//!           | number of slots | distance of each from the one before, the first left out |
//! ```
//!
//! Columns (see `column`): writer and address of each slot; member, log and sequence of each writer.
//! Flag 1: a limit is there. Unknown flags are refused. The term is slot 0's, with its start.

use crate::column::Column;
use crate::global::{Axis, GlobalPattern, SlotStarts};
use crate::parse::parse;
use crate::pattern::Pattern;
use crate::slot_writers::SlotWriters;
use crate::stack::Term;
use crate::{encode, frame};
use forebay_codec::varint;

const LIMIT: u8 = 1;
const TABLE: u8 = 2;

impl GlobalPattern {
    /// Appends the pattern to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let term = Term {
            start: self.start,
            addr: 0,
            shape: self.shape,
        };
        let one = Pattern::new(&self.arena, vec![term]);
        let mut inside = vec![0];
        let mut flags = 0;
        if let Some(limit) = self.limit {
            flags |= LIMIT;
            varint::put(&mut inside, limit);
        }
        let (body_flags, body) = encode::folded(&one);
        inside.push(body_flags);
        varint::put(&mut inside, body.len() as u64);
        inside.extend_from_slice(&body);
        match self.places() {
            SlotStarts::Even(dims) => {
                varint::put(&mut inside, dims.len() as u64);
                for (stride, count) in dims {
                    varint::put(&mut inside, stride);
                    varint::put(&mut inside, count);
                }
            }
            SlotStarts::Table(starts) => {
                flags |= TABLE;
                varint::put(&mut inside, starts.len() as u64);
                for pair in starts.windows(2) {
                    varint::put(&mut inside, pair[1] - pair[0]);
                }
            }
        }
        varint::put(&mut inside, self.writers.count);
        for column in self.writers.columns() {
            column.put(&mut inside);
        }
        inside[0] = flags;
        frame::put(out, frame::GLOBAL, &inside);
    }

    /// Where its slots lie.
    pub(crate) fn places(&self) -> SlotStarts {
        let mut even: Vec<(u64, u64, u64)> = Vec::new();
        for axis in &self.axes {
            match axis {
                Axis::Steps { weight: 0, .. } => {}
                Axis::Steps {
                    stride,
                    count,
                    weight,
                } => even.push((*weight, *stride, *count)),
                Axis::Table(starts) => return SlotStarts::Table(starts.clone()),
            }
        }
        even.sort_by_key(|(weight, ..)| std::cmp::Reverse(*weight));
        SlotStarts::Even(
            even.into_iter()
                .map(|(_, stride, count)| (stride, count))
                .collect(),
        )
    }

    /// Reads what is inside a frame.
    pub(crate) fn inside(bytes: &[u8]) -> Result<GlobalPattern, &'static str> {
        const CUT: &str = "a global pattern is cut off";
        let (&flags, mut bytes) = bytes.split_first().ok_or(CUT)?;
        if flags & !(LIMIT | TABLE) != 0 {
            return Err("it has unknown flags");
        }
        let limit = match flags & LIMIT {
            0 => None,
            _ => Some(varint::take(&mut bytes).ok_or(CUT)?),
        };
        let (&body_flags, mut bytes) = bytes.split_first().ok_or(CUT)?;
        let length = varint::take(&mut bytes).ok_or(CUT)?;
        let length = usize::try_from(length).map_err(|_| CUT)?;
        let (body, mut bytes) = bytes.split_at_checked(length).ok_or(CUT)?;
        let one = parse(body_flags, body, 0)?;
        let [term] = one.terms[..] else {
            return Err("a global pattern has one term");
        };
        let count = varint::take(&mut bytes).ok_or(CUT)?;
        if count > bytes.len() as u64 + 1 {
            return Err("it counts more than it has");
        }
        let mut next = || varint::take(&mut bytes).ok_or(CUT);
        let places = if flags & TABLE == 0 {
            let dims = (0..count).map(|_| Ok((next()?, next()?)));
            SlotStarts::Even(dims.collect::<Result<_, &str>>()?)
        } else {
            let mut starts = vec![0u64];
            for _ in 1..count {
                let last = starts[starts.len() - 1];
                starts.push(last.checked_add(next()?).ok_or("a slot is too far")?);
            }
            SlotStarts::Table(starts.into())
        };
        let slots = places
            .count()
            .filter(|c| *c > 0)
            .ok_or("it has no slots, or too many")?;
        let writers = varint::take(&mut bytes)
            .filter(|w| *w <= slots)
            .ok_or(CUT)?;
        let mut column = |count| Column::take(&mut bytes, count);
        let of_slots = [column(slots)?, column(slots)?];
        let of_writers = [column(writers)?, column(writers)?, column(writers)?];
        let ([writer, addr], [member, log, sequence]) = (of_slots, of_writers);
        let writers = SlotWriters::with([writer, addr, member, log, sequence], writers, slots)
            .ok_or("its columns do not fit each other")?;
        if !bytes.is_empty() {
            return Err("bytes are left over");
        }
        GlobalPattern::new(&one.arena, term.shape, term.start, places, writers, limit)
            .ok_or("its slots overlap, or reach too far")
    }
}
