//! Merging table files, and giving space back on a full disk.
use super::core::{Core, View};
use crate::compaction::Job;
use crate::manifest::Edit;
use crate::merge::{Merge, Source, TableRun};
use crate::table::{TableBuilder, TableMeta};
use crate::wal::reserve;
use crate::{Error, Result, names};
use std::collections::HashSet;
use std::time::Duration;

/// How long giving space back waits for the writer before it lets compactions go first.
const PATIENCE: Duration = Duration::from_millis(50);

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
    /// [`Error::NoSpace`]: nothing changed. Anything else has poisoned the store.
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
            if e.is_no_space() {
                numbers.into_iter().for_each(|n| self.remove_table_file(n));
            }
            return Err(e);
        }
        self.count(&self.counters.compactions, 1);
        Ok(true)
    }

    fn merge(&self, job: &Job, written: &mut Vec<TableMeta>) -> Result<(), Failure> {
        let run = |tables| {
            TableRun::whole(tables)
                .map(Source::Tables)
                .map_err(Failure::Input)
        };
        let mut sources = Vec::new();
        for table in &job.upper {
            sources.push(run(vec![table.clone()])?);
        }
        sources.push(run(job.lower.clone())?);
        let mut merge = Merge::new(sources);
        let format = self.tables.format.clone();
        let mut builder: Option<TableBuilder<'_>> = None;
        let result = loop {
            if self.stopping() {
                break Err(Failure::Stopped);
            }
            let (key, value) = match merge.next() {
                None => break Ok(()),
                Some(Err(e)) => break Err(Failure::Input(e)),
                Some(Ok(entry)) => entry,
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
                    &*format,
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
                    self.finish(&mut builder, written)
                } else {
                    Ok(())
                }
            }) {
                break Err(Failure::Output(e));
            }
        };
        let result =
            result.and_then(|()| self.finish(&mut builder, written).map_err(Failure::Output));
        if let Some(unfinished) = builder {
            unfinished.abandon();
        }
        result
    }

    /// Finishes the table being built, if any; it stays in `builder` if that fails.
    fn finish(
        &self,
        builder: &mut Option<TableBuilder<'_>>,
        written: &mut Vec<TableMeta>,
    ) -> Result<()> {
        if let Some(open) = builder {
            let meta = open.finish(self.dir())?;
            self.count(&self.counters.bytes_written, meta.bytes);
            written.push(meta);
            *builder = None;
        }
        Ok(())
    }

    /// The disk is full and there are deletes: uses the spare room to flush and compact them, so that what they
    /// delete goes, and makes the spare room again.
    pub fn reclaim(&self) {
        self.signals.lock().reclaim = false;
        let result = self.try_reclaim();
        match result {
            Ok(()) => self.note_progress(),
            Err(e) => self.note_failure(&e),
        }
    }

    fn try_reclaim(&self) -> Result<()> {
        reserve::release_spare(self.io(), self.dir()).map_err(|e| self.poison_unless_full(e))?;
        {
            // Who waits for room holds the writer, perhaps for a compaction of this very thread: try again later.
            let Some(mut writer) = self.writer.try_lock_for(PATIENCE) else {
                self.signals.lock().reclaim = true;
                return Ok(());
            };
            if !self.view.read().active.is_empty() {
                self.seal(&mut writer)?;
            }
            self.flush_sealed(&mut writer)?;
        }
        self.compact_all()?;
        self.renew_spare()?;
        let Some(mut writer) = self.writer.try_lock_for(PATIENCE) else {
            return Ok(());
        };
        let flushed = self.manifest.lock().state().flushed;
        self.drop_logs(&mut writer, flushed)
            .map_err(|e| self.poison_unless_full(e))
    }

    /// Makes the spare room if the disk has it.
    pub fn renew_spare(&self) -> Result<bool> {
        let made = reserve::ensure(
            self.io(),
            self.dir(),
            names::SPARE,
            self.options.table_reserve_bytes,
        );
        made.map_err(|e| self.poison_unless_full(e))
    }
}

fn names_file(error: &Error, file: &std::path::Path) -> bool {
    match error {
        Error::Io { path, .. } | Error::Corrupt { path, .. } | Error::Format { path, .. } => {
            path == file
        }
        Error::NoSpace { .. } | Error::Poisoned { .. } => false,
    }
}
