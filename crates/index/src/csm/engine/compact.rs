//! Merging sorted runs on disk. Tables whose key range overlaps no other table are kept as files; of the others, only overlapping
//! blocks are decompressed.
//!
//! While puts come, at least four runs of similar size are merged at once: a merge costs the same for each record whatever the
//! number of runs, and writers may have to wait for it. When puts pause, two runs are enough, because a lookup looks into each run.
//! So under puts that never pause up to three runs of each size remain.
//!
//! A run with a table that cannot be read is left as it is, and merged no more until the next start.
use super::super::block::BlockSplitter;
use super::super::merge::Merge;
use super::super::sorted::SortedRun;
use super::super::stats::count;
use super::super::table::Table;
use super::inline_compression::InlineCompression;
use super::output::{Failure, TableOutput};
use super::view::{AgedRun, View};
use super::{EngineState, files};
use forebay_storage::{EngineEdit, Result};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Tables of some runs whose key ranges hang together: no table outside overlaps one inside. Those of each run, oldest run first.
type Group = Vec<Vec<Arc<Table>>>;

/// The groups of these runs, in key order.
fn groups(runs: &[AgedRun]) -> Vec<Group> {
    let of = |(i, aged): (usize, &AgedRun)| {
        let tables = aged.run.tables.iter();
        tables.map(|t| (i, t.clone())).collect::<Vec<_>>()
    };
    let mut tables: Vec<(usize, Arc<Table>)> = runs.iter().enumerate().flat_map(of).collect();
    tables.sort_by_key(|(_, table)| table.meta().first);
    let mut groups: Vec<Group> = Vec::new();
    let mut end = None;
    for (run, table) in tables {
        if end.is_none_or(|end| end < table.meta().first) {
            groups.push(vec![Vec::new(); runs.len()]);
        }
        end = end.max(Some(table.meta().last));
        if let Some(group) = groups.last_mut() {
            group[run].push(table);
        }
    }
    groups
}

/// The only table of a group.
fn only(group: &Group) -> Option<&Arc<Table>> {
    let mut tables = group.iter().flatten();
    let first = tables.next();
    first.filter(|_| tables.next().is_none())
}

/// The newest two runs of which the older is not twice as large as the newer, and with them those before, as long as none is twice
/// as large as all after it together: they would be merged next. None of them has an unreadable table.
pub fn similar(disk: &[AgedRun], unreadable: &HashSet<u64>) -> Option<Range<usize>> {
    let whole = |i: usize| {
        let mut tables = disk[i].run.tables.iter();
        !tables.any(|t| unreadable.contains(&t.meta().number))
    };
    let bytes = |i: usize| disk[i].run.bytes();
    let two = |i: &usize| bytes(*i) < 2 * bytes(i + 1) && whole(*i) && whole(i + 1);
    let mut from = (0..disk.len().saturating_sub(1)).rev().find(two)?;
    let end = from + 2;
    let mut all = bytes(from) + bytes(from + 1);
    while from > 0 && whole(from - 1) && bytes(from - 1) < 2 * all {
        from -= 1;
        all += bytes(from);
    }
    Some(from..end)
}

impl EngineState {
    /// Merges runs of similar size, if there are at least `least` of them. `false`: there are fewer.
    pub fn compact_due(&self, least: usize, splitter: &mut BlockSplitter) -> Result<bool> {
        let view = self.view.read().clone();
        let runs = similar(&view.disk, &self.unreadable.numbers());
        let Some(runs) = runs.filter(|runs| runs.len() >= least) else {
            return Ok(false);
        };
        match self.compact(&view, runs.clone(), splitter) {
            Err(Failure::Input(e)) if !e.is_transient() => {
                tracing::error!(store = %self.host.dir().display(), "the index leaves a damaged table as it is: {e}");
                let tables = view.disk[runs].iter().flat_map(|a| a.run.tables.iter());
                let tables = tables.map(|t| (t.meta().number, t.path()));
                self.unreadable.add(&e, &tables.collect::<Vec<_>>());
                Ok(true)
            }
            done => done.map_err(Failure::error),
        }
    }

    /// Merges all runs; a single one that holds deletes, with nothing. `false` if there is nothing to do.
    pub fn compact_all(&self, splitter: &mut BlockSplitter) -> Result<bool> {
        let view = self.view.read().clone();
        let runs = view.disk.len();
        if runs == 0 || runs == 1 && view.tables().all(|t| !t.meta().deletes) {
            return Ok(false);
        }
        self.compact(&view, 0..runs, splitter)
            .map_err(Failure::error)
    }

    /// Merges these runs of `view`.
    fn compact(
        &self,
        view: &View,
        runs: Range<usize>,
        splitter: &mut BlockSplitter,
    ) -> Result<bool, Failure> {
        let merged = &view.disk[runs.clone()];
        let age = merged.last().map_or(0, |aged| aged.age);
        let bottom = runs.start == 0;
        let groups = groups(merged);
        let stays = |group: &Group| {
            let one = only(group).filter(|one| !(bottom && one.meta().deletes));
            one.cloned()
        };
        let inputs = groups.iter().filter(|group| stays(group).is_none());
        let inputs = inputs
            .flatten()
            .flatten()
            .map(|t| t.meta().number)
            .collect();
        let mut output = TableOutput::new(self, InlineCompression::with_flushes(self), age, inputs);
        let mut moved = Vec::new();
        let mut result = Ok(());
        for group in groups {
            result = match stays(&group) {
                Some(one) => {
                    moved.push(one);
                    output.cut().map_err(Failure::Output)
                }
                _ => self.merge(group, bottom, splitter, &mut output),
            };
            if result.is_err() {
                break;
            }
        }
        let new = output.end(result)?;
        let staying: HashSet<u64> = moved.iter().map(|m| m.meta().number).collect();
        let stays = |table: &&Arc<Table>| staying.contains(&table.meta().number);
        let of = |aged: &AgedRun| aged.run.tables.to_vec();
        let old: Vec<Arc<Table>> = merged.iter().flat_map(of).collect();
        let edit = EngineEdit {
            add: files::table_records(age, new.iter().chain(&moved)).map_err(Failure::Output)?,
            remove: old
                .iter()
                .filter(|t| !stays(t))
                .map(|t| t.meta().number)
                .collect(),
            flushed: None,
        };
        self.edit(edit, &new).map_err(Failure::Output)?;
        let mut tables: Vec<Arc<Table>> = new.into_iter().chain(moved.iter().cloned()).collect();
        tables.sort_by_key(|t| t.meta().first);
        {
            let mut current = self.view.write();
            let disk = &mut Arc::make_mut(&mut current).disk;
            // Runs that came meanwhile stand later.
            let merged = (!tables.is_empty()).then(|| AgedRun {
                age,
                run: SortedRun::new(tables),
            });
            disk.splice(runs, merged);
        }
        for table in old.iter().filter(|t| !stays(t)) {
            table.make_obsolete();
        }
        count(&self.shared.counters.compactions, 1);
        Ok(true)
    }

    fn merge(
        &self,
        group: Group,
        bottom: bool,
        splitter: &mut BlockSplitter,
        output: &mut TableOutput<'_>,
    ) -> Result<(), Failure> {
        let newest_first = group.into_iter().rev();
        let blocks = newest_first.map(|tables| SortedRun::new(tables).blocks());
        let mut merge = Merge::new(blocks, bottom, splitter).map_err(Failure::Input)?;
        let result = output.take(&mut merge);
        merge.counts.add_to(&self.shared.counters);
        result
    }
}
