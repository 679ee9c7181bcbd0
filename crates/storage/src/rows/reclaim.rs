//! Giving space back on a full disk that holds deletes: they are flushed and compacted in the spare room, so that what they delete goes.
use super::background::LOG_WAIT;
use super::compact::Failure;
use super::merge::{Merge, Source, TableRun};
use super::table::{Table, TableBuilder};
use super::{LEVELS, RowEngine};
use crate::engine::GroupLoad;
use crate::manifest::{Edit, TableMeta};
use crate::wal::reserve;
use crate::{Result, names};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl RowEngine {
    /// Remembers that the disk is full, and asks for space to be given back when there are deletes to do it with.
    pub(super) fn note_room(&self, load: GroupLoad, outcome: &Result<()>) {
        let full = matches!(outcome, Err(e) if e.is_no_space());
        if !full && !load.deletes && !self.full.load(Ordering::Relaxed) {
            return;
        }
        let mut signals = self.signals.lock();
        if full || outcome.is_ok() && !load.reclaiming {
            signals.full = full;
            self.full.store(full, Ordering::Relaxed);
        }
        // At the first refusal, then ever more seldom while it does not help.
        signals.requests += u64::from(full || load.deletes && outcome.is_ok());
        if signals.full && signals.requests >= 1 << signals.tries.min(10) {
            signals.reclaim = true;
            signals.requests = 0;
            self.work.notify_all();
        }
        let now = signals.reclaim && !self.host.options.background;
        drop(signals);
        if now {
            self.reclaim();
        }
    }

    /// Rewrites each table below level 0 without the entries that newer tables hide. Each step needs room for one
    /// table at most and gives the old one back, where a whole compaction would need room for all of them.
    fn purge_hidden(&self) -> Result<()> {
        let _one = self.compacting.lock();
        for level in 1..LEVELS {
            let tables = self.view().levels.level(level).to_vec();
            for table in tables {
                self.host.check_writable()?;
                if self.stopping() {
                    return Ok(());
                }
                match self.purge(level, &table) {
                    // Reading failed: whoever reads the table meets the same error.
                    Err(Failure::Input(_) | Failure::Stopped) | Ok(()) => {}
                    Err(Failure::Output(e)) => return Err(self.host.poison_unless_full(e)),
                }
            }
        }
        Ok(())
    }

    fn purge(&self, level: usize, table: &Arc<Table>) -> Result<(), Failure> {
        let view = self.view();
        let meta = table.meta();
        let newer = (0..level)
            .flat_map(|l| view.levels.level(l))
            .filter(|t| t.meta().overlaps(&meta.first, &meta.last));
        let mut sources = Vec::new();
        for table in newer {
            let run = TableRun::starting(vec![table.clone()], &meta.first);
            sources.push(Source::Tables(run));
        }
        let own = sources.len();
        if own == 0 {
            return Ok(());
        }
        sources.push(Source::Tables(TableRun::whole(vec![table.clone()])));
        let mut merge = Merge::new(sources);
        let provenance = self.provenance(vec![meta.number]);
        let number = self.host.new_number();
        let mut builder = TableBuilder::create(
            &**self.host.io(),
            self.host.dir(),
            number,
            self.host.options.block_bytes,
        )
        .map_err(Failure::Output)?;
        let written = loop {
            let (rank, (key, value)) = match merge.next() {
                None => break Ok(()),
                Some(Err((_, e))) => break Err(Failure::Input(e)),
                Some(Ok((_, (key, _)))) if key > meta.last => break Ok(()),
                Some(Ok(next)) => next,
            };
            if let Some((keyspace, rest)) = key.split_first().filter(|_| rank == own)
                && let Err(e) = builder.add(*keyspace, rest, value.as_deref())
            {
                break Err(Failure::Output(e));
            }
        };
        let finished = written.and_then(|()| match builder.entries() {
            0 => Ok(None),
            n if n == meta.entries => Err(Failure::Stopped),
            _ => builder
                .finish(self.host.dir(), level as u8, &provenance)
                .map(Some)
                .map_err(Failure::Output),
        });
        if !matches!(finished, Ok(Some(_))) {
            builder.abandon();
        }
        let add: Vec<(u8, TableMeta)> = finished?.into_iter().map(|t| (level as u8, t)).collect();
        let left = !add.is_empty();
        let edit = Edit {
            add,
            remove: vec![meta.number],
            ..Edit::default()
        };
        self.edit(edit, |_| {}).map_err(|e| {
            if e.is_transient() && left {
                self.remove_table_file(number);
            }
            Failure::Output(e)
        })
    }

    /// The disk is full and there are deletes: uses the spare room to flush and compact them, so that what they
    /// delete goes, and makes the spare room again.
    pub(super) fn reclaim(&self) {
        let one = self.giving_back.lock();
        self.signals.lock().reclaim = false;
        let result = self.try_reclaim();
        drop(one);
        let mut signals = self.signals.lock();
        if matches!(result, Ok(true)) {
            signals.tries = 0;
            signals.full = false;
            self.full.store(false, Ordering::Relaxed);
        } else {
            signals.tries += 1;
        }
        drop(signals);
        match result {
            Ok(_) => self.note_progress(),
            Err(e) => self.note_failure(&e),
        }
    }

    /// Whether there is room again, as far as spare room is concerned.
    fn try_reclaim(&self) -> Result<bool> {
        self.spare_used.store(true, Ordering::Release);
        reserve::release_spare(&**self.host.io(), self.host.dir())
            .map_err(|e| self.host.poison_unless_full(e))?;
        let done = self.shrink();
        // What failed for want of room has given its room back: nobody else may have it before the spare room.
        let renewed = self.renew_spare()?;
        Ok(done? && renewed)
    }

    /// Flushes, purges and compacts. `false` if somebody has to be let through first.
    fn shrink(&self) -> Result<bool> {
        // Who waits for room holds the log's end, perhaps for a compaction of this very thread.
        let Some(mut log) = self.host.log.try_lock_for(LOG_WAIT) else {
            self.signals.lock().reclaim = true;
            return Ok(false);
        };
        if !self.view.read().active.is_empty() {
            self.seal(&mut log)?;
        }
        self.flush_sealed(&mut log)?;
        drop(log);
        self.purge_hidden()?;
        self.compact_all()?;
        Ok(true)
    }

    /// At an open: the spare room, if the disk has it.
    pub fn make_spare(&self) -> Result<()> {
        let made = self.ensure_spare()?;
        self.spare_used.store(!made, Ordering::Release);
        Ok(())
    }

    fn ensure_spare(&self) -> Result<bool> {
        let host = &self.host;
        let bytes = host.options.table_reserve_bytes;
        reserve::ensure(&**host.io(), host.dir(), names::SPARE, bytes)
    }

    /// Makes the spare room if the disk has it; puts are refused while there is none.
    fn renew_spare(&self) -> Result<bool> {
        let made = self.ensure_spare();
        let made = made.map_err(|e| self.host.poison_unless_full(e))?;
        self.spare_used.store(!made, Ordering::Release);
        Ok(made)
    }

    /// Whether a put may have room: there is spare room, or there is again.
    pub(super) fn has_spare(&self) -> Result<bool> {
        if !self.spare_used.load(Ordering::Acquire) {
            return Ok(true);
        }
        // While space is being given back, the spare room is in use and not to be taken.
        match self.giving_back.try_lock() {
            Some(_one) => self.renew_spare(),
            None => Ok(false),
        }
    }
}
