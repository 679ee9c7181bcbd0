//! Merges table files: one level into the next. On a full disk it rewrites each table without the entries that newer ones hide.
use super::levels::{Compaction, LEVELS, LevelLimits};
use super::merge::{Merge, Source, TableRun};
use super::state::{RowState, count};
use super::table::{Table, TableBuilder};
use super::view::View;
use crate::manifest::{Edit, Provenance, TableMeta};
use crate::{Error, Result, UnreadableTables};
use parking_lot::Mutex;
use std::sync::Arc;

/// How a compaction failed.
enum Failure {
    /// Inputs could not be read: they are left out from now on.
    Input(Error),
    /// The result could not be written.
    Output(Error),
    /// The store is being closed.
    Stopped,
}

/// Merges tables, one merge at a time.
pub struct Compactor {
    rows: Arc<RowState>,
    /// Where the last compaction of each level ended. The lock is held during a compaction.
    ends: Mutex<Vec<Vec<u8>>>,
    unreadable: UnreadableTables,
}

impl Compactor {
    /// A compactor for these rows.
    pub fn new(rows: Arc<RowState>) -> Compactor {
        Compactor {
            rows,
            ends: Mutex::new(vec![Vec::new(); LEVELS]),
            unreadable: UnreadableTables::default(),
        }
    }

    /// The limits that drive compaction.
    fn limits(&self) -> LevelLimits {
        let o = &self.rows.host.options;
        LevelLimits {
            level0_tables: o.level0_tables.max(1),
            level1_bytes: o.level1_bytes,
            ratio: 10,
        }
    }

    /// Whether there is a compaction to do.
    pub fn is_due(&self, view: &View) -> bool {
        let nowhere = vec![Vec::new(); LEVELS];
        let unreadable = self.unreadable.numbers();
        let due = view.levels.due(&self.limits(), &unreadable, &nowhere);
        due.is_some()
    }

    /// Does one compaction that is due. `false` if none is.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Anything else has poisoned the store.
    pub fn compact_due(&self) -> Result<bool> {
        let mut ends = self.ends.lock();
        let unreadable = self.unreadable.numbers();
        let Some(job) = self
            .rows
            .view()
            .levels
            .due(&self.limits(), &unreadable, &ends)
        else {
            return Ok(false);
        };
        ends[job.level] = job
            .upper
            .last()
            .map(|t| t.meta().last.to_vec())
            .unwrap_or_default();
        self.run(&job)
    }

    /// Merges everything into one level without deletes. Stops early when the store is closed.
    ///
    /// # Errors
    /// As [`compact_due`](Compactor::compact_due).
    pub fn compact_all(&self) -> Result<()> {
        let _one = self.ends.lock();
        loop {
            self.rows.host.health.check_writable()?;
            let unreadable = self.unreadable.numbers();
            let Some(job) = self.rows.view().levels.towards_bottom(&unreadable) else {
                return Ok(());
            };
            if !self.run(&job)? && self.rows.signals.is_stopping() {
                return Ok(());
            }
        }
    }

    /// Does one job. `false` if it was not done: stopped, or its inputs are damaged.
    fn run(&self, job: &Compaction) -> Result<bool> {
        self.rows.host.health.check_writable()?;
        let below = (job.level + 1) as u8;
        let remove: Vec<u64> = job.inputs().map(|t| t.meta().number).collect();
        if job.is_move() {
            let add = vec![(below, job.upper[0].meta().clone())];
            self.replace(remove, add)?;
            return Ok(true);
        }
        let mut written = Vec::new();
        if let Err(failure) = self.merge(job, &mut written) {
            for meta in &written {
                self.rows.remove_table_file(meta.number);
            }
            return match failure {
                Failure::Stopped => Ok(false),
                Failure::Output(e) => Err(self.rows.host.health.poison_unless_full(e)),
                // They could not be opened for now.
                Failure::Input(e) if e.is_transient() => Err(e),
                Failure::Input(e) => {
                    tracing::error!(store = %self.rows.host.dir().display(), "compaction left out damaged tables: {e}");
                    let inputs = job.inputs().map(|t| (t.meta().number, t.path()));
                    self.unreadable.add(&e, &inputs.collect::<Vec<_>>());
                    Ok(false)
                }
            };
        }
        let add = written.into_iter().map(|t| (below, t)).collect();
        self.replace(remove, add)?;
        count(&self.rows.counters.compactions, 1);
        Ok(true)
    }

    /// Replaces tables by others in the manifest.
    fn replace(&self, remove: Vec<u64>, add: Vec<(u8, TableMeta)>) -> Result<()> {
        let edit = Edit {
            add,
            remove,
            ..Edit::default()
        };
        self.rows.edit(edit, |_| {})
    }

    /// The provenance of the tables that a merge of these writes. There is one merge at a time.
    fn provenance(&self, mut inputs: Vec<u64>) -> Provenance {
        inputs.sort_unstable();
        let manifest = self.rows.host.manifest.lock();
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
        let run = |tables| Source::Tables(TableRun::starting(tables, b""));
        let upper = job.upper.iter().map(|table| run(vec![table.clone()]));
        let sources: Vec<Source> = upper.chain([run(job.lower.clone())]).collect();
        let mut builder = None;
        let to = (job, &provenance);
        let result = self.write_merged(Merge::new(sources), to, &mut builder, written);
        if let Some(unfinished) = builder {
            unfinished.abandon();
        }
        result
    }

    /// Writes the merged rows of a job to tables. An unfinished table stays in `builder`.
    fn write_merged<'a>(
        &'a self,
        mut merge: Merge,
        (job, provenance): (&Compaction, &Provenance),
        builder: &mut Option<TableBuilder<'a>>,
        written: &mut Vec<TableMeta>,
    ) -> Result<(), Failure> {
        let to = ((job.level + 1) as u8, provenance);
        loop {
            if self.rows.signals.is_stopping() {
                return Err(Failure::Stopped);
            }
            let Some(next) = merge.next() else {
                return self.finish(builder, to, written);
            };
            let (_, (key, value)) = next.map_err(|(_, e)| Failure::Input(e))?;
            let Some((keyspace, rest)) =
                key.split_first().filter(|_| value.is_some() || !job.bottom)
            else {
                continue;
            };
            let open = match builder {
                Some(open) => open,
                None => builder.insert(self.rows.new_table().map_err(Failure::Output)?),
            };
            let added = open.add(*keyspace, rest, value.as_deref());
            added.map_err(Failure::Output)?;
            if open.bytes() >= self.rows.host.options.memtable_bytes as u64 {
                self.finish(builder, to, written)?;
            }
        }
    }

    /// Finishes the table being built, if any; it stays in `builder` if that fails.
    fn finish(
        &self,
        builder: &mut Option<TableBuilder<'_>>,
        (level, provenance): (u8, &Provenance),
        written: &mut Vec<TableMeta>,
    ) -> Result<(), Failure> {
        if let Some(open) = builder {
            let meta = open.finish(self.rows.host.dir(), level, provenance);
            let meta = meta.map_err(Failure::Output)?;
            count(&self.rows.host.bytes_written, meta.bytes);
            written.push(meta);
            *builder = None;
        }
        Ok(())
    }

    /// Rewrites each table below level 0 without the entries that newer tables hide. Each step needs room for one
    /// table at most and gives the old one back, where a whole compaction would need room for all of them.
    pub fn purge_hidden(&self) -> Result<()> {
        let _one = self.ends.lock();
        for level in 1..LEVELS {
            let tables = self.rows.view().levels.level(level).to_vec();
            for table in tables {
                self.rows.host.health.check_writable()?;
                if self.rows.signals.is_stopping() {
                    return Ok(());
                }
                match self.drop_hidden_rows(level, &table) {
                    // Reading failed: whoever reads the table meets the same error.
                    Err(Failure::Input(_) | Failure::Stopped) | Ok(()) => {}
                    Err(Failure::Output(e)) => {
                        return Err(self.rows.host.health.poison_unless_full(e));
                    }
                }
            }
        }
        Ok(())
    }

    fn drop_hidden_rows(&self, level: usize, table: &Arc<Table>) -> Result<(), Failure> {
        let view = self.rows.view();
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
        sources.push(Source::Tables(TableRun::starting(vec![table.clone()], b"")));
        let provenance = self.provenance(vec![meta.number]);
        let mut builder = self.rows.new_table().map_err(Failure::Output)?;
        let purged = (|| {
            for next in Merge::new(sources) {
                let (rank, (key, value)) = next.map_err(|(_, e)| Failure::Input(e))?;
                if key > meta.last {
                    break;
                }
                if let Some((keyspace, rest)) = key.split_first().filter(|_| rank == own) {
                    let added = builder.add(*keyspace, rest, value.as_deref());
                    added.map_err(Failure::Output)?;
                }
            }
            match builder.entries() {
                0 => Ok(None),
                n if n == meta.entries => Err(Failure::Stopped),
                _ => builder
                    .finish(self.rows.host.dir(), level as u8, &provenance)
                    .map(Some)
                    .map_err(Failure::Output),
            }
        })();
        if !matches!(purged, Ok(Some(_))) {
            builder.abandon();
        }
        let add: Vec<(u8, TableMeta)> = purged?.into_iter().map(|t| (level as u8, t)).collect();
        self.replace(vec![meta.number], add)
            .map_err(Failure::Output)
    }
}
