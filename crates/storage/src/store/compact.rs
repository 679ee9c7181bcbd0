//! Merging table files, and giving space back on a full disk.
use super::background::PATIENCE;
use super::core::{Core, View};
use crate::compaction::Job;
use crate::lineage::Lineage;
use crate::manifest::Edit;
use crate::merge::{Merge, Source, TableRun};
use crate::table::{Table, TableBuilder, TableMeta};
use crate::wal::reserve;
use crate::{Error, Result, names};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a compaction failed.
enum Failure {
    /// Inputs could not be read: they are left out from now on.
    Input(Error),
    /// The result could not be written.
    Output(Error),
    /// The store is being closed.
    Stopped,
}

impl Core {
    /// Whether there is a compaction to do.
    pub fn compaction_due(&self, view: &View) -> bool {
        let damaged = self.signals.lock().damaged.clone();
        self.compaction_due_without(view, &damaged)
    }

    /// Whether there is a compaction to do that needs no table in `damaged`.
    pub fn compaction_due_without(&self, view: &View, damaged: &HashSet<u64>) -> bool {
        let nowhere = vec![Vec::new(); crate::compaction::LEVELS];
        let due = view.levels.due(&self.limits(), damaged, &nowhere);
        due.is_some()
    }

    /// Does one compaction that is due. `false` if none is.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Anything else has poisoned the store.
    pub fn compact_due(&self) -> Result<bool> {
        let mut after = self.compacting.lock();
        let damaged = self.signals.lock().damaged.clone();
        let Some(job) = self.view().levels.due(&self.limits(), &damaged, &after) else {
            return Ok(false);
        };
        after[job.level] = job
            .upper
            .last()
            .map(|t| t.meta().last.to_vec())
            .unwrap_or_default();
        self.run(&job)
    }

    /// Merges everything into one level without deletes. Stops early when the store is closed.
    ///
    /// # Errors
    /// As [`compact_due`](Core::compact_due).
    pub fn compact_all(&self) -> Result<()> {
        let _one = self.compacting.lock();
        loop {
            self.usable_for_work()?;
            let damaged = self.signals.lock().damaged.clone();
            let Some(job) = self.view().levels.towards_bottom(&damaged) else {
                return Ok(());
            };
            if !self.run(&job)? && self.stopping() {
                return Ok(());
            }
        }
    }

    /// Does one job. `false` if it was not done: stopped, or its inputs are damaged.
    fn run(&self, job: &Job) -> Result<bool> {
        self.usable_for_work()?;
        let below = (job.level + 1) as u8;
        let remove: Vec<u64> = job.inputs().map(|t| t.meta().number).collect();
        if job.is_move() {
            let add = vec![(below, job.upper[0].meta().clone())];
            self.edit(
                Edit {
                    add,
                    remove,
                    ..Edit::default()
                },
                |_| {},
            )?;
            return Ok(true);
        }
        let mut written = Vec::new();
        match self.merge(job, &mut written) {
            Ok(()) => {}
            Err(failure) => {
                for meta in &written {
                    self.remove_table_file(meta.number);
                }
                return match failure {
                    Failure::Stopped => Ok(false),
                    Failure::Output(e) => Err(self.poison_unless_full(e)),
                    // They could not be opened for now.
                    Failure::Input(e) if e.is_transient() => Err(e),
                    Failure::Input(e) => {
                        tracing::error!(store = %self.dir().display(), "compaction left out damaged tables: {e}");
                        let named: HashSet<u64> = job
                            .inputs()
                            .filter(|t| names_file(&e, t.path()))
                            .map(|t| t.meta().number)
                            .collect();
                        let left_out = if named.is_empty() {
                            remove.into_iter().collect()
                        } else {
                            named
                        };
                        self.signals.lock().damaged.extend(left_out);
                        Ok(false)
                    }
                };
            }
        }
        let numbers: Vec<u64> = written.iter().map(|t| t.number).collect();
        let add = written.into_iter().map(|t| (below, t)).collect();
        if let Err(e) = self.edit(
            Edit {
                add,
                remove,
                ..Edit::default()
            },
            |_| {},
        ) {
            if e.is_transient() {
                numbers.into_iter().for_each(|n| self.remove_table_file(n));
            }
            return Err(e);
        }
        self.count(&self.counters.compactions, 1);
        Ok(true)
    }

    /// What tables tell of themselves that a merge of these makes. Merges come one after the other.
    fn lineage(&self, mut inputs: Vec<u64>) -> Lineage {
        inputs.sort_unstable();
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let others = state.tables.iter().map(|(level, t)| (t.number, *level));
        let others = others.filter(|(number, _)| !inputs.contains(number));
        Lineage {
            others: others.collect(),
            inputs,
            edit: Edit {
                flushed: Some(state.flushed),
                ..Edit::default()
            },
        }
    }

    fn merge(&self, job: &Job, written: &mut Vec<TableMeta>) -> Result<(), Failure> {
        let lineage = self.lineage(job.inputs().map(|t| t.meta().number).collect());
        let below = (job.level + 1) as u8;
        let run = |tables| Source::Tables(TableRun::whole(tables));
        let upper = job.upper.iter().map(|table| run(vec![table.clone()]));
        let sources = upper.chain([run(job.lower.clone())]).collect();
        let mut merge = Merge::new(sources);
        let mut builder: Option<TableBuilder<'_>> = None;
        let result = loop {
            if self.stopping() {
                break Err(Failure::Stopped);
            }
            let (key, value) = match merge.next() {
                None => break Ok(()),
                Some(Err((_, e))) => break Err(Failure::Input(e)),
                Some(Ok((_, entry))) => entry,
            };
            let Some((keyspace, rest)) =
                key.split_first().filter(|_| value.is_some() || !job.bottom)
            else {
                continue;
            };
            let open = match &mut builder {
                Some(open) => open,
                None => match TableBuilder::create(
                    self.io(),
                    self.dir(),
                    self.new_number(),
                    self.options.block_bytes,
                ) {
                    Ok(new) => builder.insert(new),
                    Err(e) => break Err(Failure::Output(e)),
                },
            };
            let added = open.add(*keyspace, rest, value.as_deref());
            let full = open.bytes() >= self.options.memtable_bytes as u64;
            if let Err(e) = added.and_then(|()| {
                if full {
                    self.finish(&mut builder, (below, &lineage), written)
                } else {
                    Ok(())
                }
            }) {
                break Err(Failure::Output(e));
            }
        };
        let result = result.and_then(|()| {
            let finished = self.finish(&mut builder, (below, &lineage), written);
            finished.map_err(Failure::Output)
        });
        if let Some(unfinished) = builder {
            unfinished.abandon();
        }
        result
    }

    /// Finishes the table being built, if any; it stays in `builder` if that fails.
    fn finish(
        &self,
        builder: &mut Option<TableBuilder<'_>>,
        (level, lineage): (u8, &Lineage),
        written: &mut Vec<TableMeta>,
    ) -> Result<()> {
        if let Some(open) = builder {
            let meta = open.finish(self.dir(), level, lineage)?;
            self.count(&self.counters.bytes_written, meta.bytes);
            written.push(meta);
            *builder = None;
        }
        Ok(())
    }

    /// Rewrites each table below level 0 without the entries that newer tables hide. Each step needs room for one
    /// table at most and gives the old one back, where a whole compaction would need room for all of them.
    fn purge_hidden(&self) -> Result<()> {
        let _one = self.compacting.lock();
        for level in 1..crate::compaction::LEVELS {
            let tables = self.view().levels.level(level).to_vec();
            for table in tables {
                self.usable_for_work()?;
                if self.stopping() {
                    return Ok(());
                }
                match self.purge(level, &table) {
                    // Reading failed: whoever reads the table meets the same error.
                    Err(Failure::Input(_) | Failure::Stopped) | Ok(()) => {}
                    Err(Failure::Output(e)) => return Err(self.poison_unless_full(e)),
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
        let lineage = self.lineage(vec![meta.number]);
        let number = self.new_number();
        let mut builder = TableBuilder::create(
            self.io(),
            self.dir(),
            number,
            self.options.block_bytes,
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
                .finish(self.dir(), level as u8, &lineage)
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
    pub fn reclaim(&self) {
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
        reserve::release_spare(self.io(), self.dir()).map_err(|e| self.poison_unless_full(e))?;
        let done = self.shrink();
        // What failed for want of room has given its room back: nobody else may have it before the spare room.
        let renewed = self.renew_spare()?;
        Ok(done? && renewed)
    }

    /// Flushes, purges and compacts. `false` if somebody has to be let through first.
    fn shrink(&self) -> Result<bool> {
        // Who waits for room holds the writer, perhaps for a compaction of this very thread.
        let Some(mut writer) = self.writer.try_lock_for(PATIENCE) else {
            self.signals.lock().reclaim = true;
            return Ok(false);
        };
        if !self.view.read().active.is_empty() {
            self.seal(&mut writer)?;
        }
        self.flush_sealed(&mut writer)?;
        drop(writer);
        self.purge_hidden()?;
        self.compact_all()?;
        Ok(true)
    }

    /// Makes the spare room if the disk has it; puts are refused while there is none.
    pub fn renew_spare(&self) -> Result<bool> {
        let made = reserve::ensure(
            self.io(),
            self.dir(),
            names::SPARE,
            self.options.table_reserve_bytes,
        );
        let made = made.map_err(|e| self.poison_unless_full(e))?;
        self.spare_used.store(!made, Ordering::Release);
        Ok(made)
    }

    /// Whether a put may have room: there is spare room, or there is again.
    pub fn has_spare(&self) -> Result<bool> {
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

fn names_file(error: &Error, file: &std::path::Path) -> bool {
    match error {
        Error::Io { path, .. } | Error::Corrupt { path, .. } | Error::Format { path, .. } => {
            path == file
        }
        Error::NoSpace { .. } | Error::NoDescriptors { .. } | Error::Poisoned { .. } => false,
    }
}
