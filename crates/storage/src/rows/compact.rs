//! Merging table files.
use super::levels::{Compaction, LEVELS};
use super::merge::{Merge, Source, TableRun};
use super::table::TableBuilder;
use super::view::View;
use super::{RowEngine, count};
use crate::manifest::{Edit, Provenance, TableMeta};
use crate::{Error, Result};
use std::collections::HashSet;

/// How a compaction failed.
pub(super) enum Failure {
    /// Inputs could not be read: they are left out from now on.
    Input(Error),
    /// The result could not be written.
    Output(Error),
    /// The store is being closed.
    Stopped,
}

impl RowEngine {
    /// Whether there is a compaction to do.
    pub fn compaction_due(&self, view: &View) -> bool {
        let damaged = self.signals.lock().damaged.clone();
        self.compaction_due_without(view, &damaged)
    }

    /// Whether there is a compaction to do that needs no table in `damaged`.
    pub fn compaction_due_without(&self, view: &View, damaged: &HashSet<u64>) -> bool {
        let nowhere = vec![Vec::new(); LEVELS];
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
    /// As [`compact_due`](RowEngine::compact_due).
    pub fn compact_all(&self) -> Result<()> {
        let _one = self.compacting.lock();
        loop {
            self.host.check_writable()?;
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
    fn run(&self, job: &Compaction) -> Result<bool> {
        self.host.check_writable()?;
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
                    Failure::Output(e) => Err(self.host.poison_unless_full(e)),
                    // They could not be opened for now.
                    Failure::Input(e) if e.is_transient() => Err(e),
                    Failure::Input(e) => {
                        tracing::error!(store = %self.host.dir().display(), "compaction left out damaged tables: {e}");
                        let named: HashSet<u64> = job
                            .inputs()
                            .filter(|t| e.is_of(t.path()))
                            .map(|t| t.meta().number)
                            .collect();
                        let left_out = if named.is_empty() {
                            remove.into_iter().collect()
                        } else {
                            named
                        };
                        let mut signals = self.signals.lock();
                        signals.damaged.extend(left_out);
                        // Who waits for a compaction of these tables waits no longer.
                        self.progress.notify_all();
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
        count(&self.counters.compactions, 1);
        Ok(true)
    }

    /// What tables tell of themselves that a merge of these makes. Merges come one after the other.
    pub(super) fn provenance(&self, mut inputs: Vec<u64>) -> Provenance {
        inputs.sort_unstable();
        let manifest = self.host.manifest.lock();
        let state = manifest.state();
        let others = state.tables.iter().map(|(level, t)| (t.number, *level));
        let others = others.filter(|(number, _)| !inputs.contains(number));
        Provenance {
            others: others.collect(),
            inputs,
            edit: Edit {
                flushed: Some(state.flushed),
                ..Edit::default()
            },
        }
    }

    fn merge(&self, job: &Compaction, written: &mut Vec<TableMeta>) -> Result<(), Failure> {
        let provenance = self.provenance(job.inputs().map(|t| t.meta().number).collect());
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
                    &**self.host.io(),
                    self.host.dir(),
                    self.host.new_number(),
                    self.host.options.block_bytes,
                ) {
                    Ok(new) => builder.insert(new),
                    Err(e) => break Err(Failure::Output(e)),
                },
            };
            let added = open.add(*keyspace, rest, value.as_deref());
            let full = open.bytes() >= self.host.options.memtable_bytes as u64;
            if let Err(e) = added.and_then(|()| {
                if full {
                    self.finish(&mut builder, (below, &provenance), written)
                } else {
                    Ok(())
                }
            }) {
                break Err(Failure::Output(e));
            }
        };
        let result = result.and_then(|()| {
            let finished = self.finish(&mut builder, (below, &provenance), written);
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
        (level, provenance): (u8, &Provenance),
        written: &mut Vec<TableMeta>,
    ) -> Result<()> {
        if let Some(open) = builder {
            let meta = open.finish(self.host.dir(), level, provenance)?;
            self.host.count_written(meta.bytes);
            written.push(meta);
            *builder = None;
        }
        Ok(())
    }
}
