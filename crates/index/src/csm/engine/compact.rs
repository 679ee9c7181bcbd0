//! Merging sorted runs on disk: tables that overlap nothing move as they are, of the others only overlapping blocks are
//! decompressed.
//!
//! A table that cannot be read changes nothing: its run stays as it is, and is left out of merges until the next start. All else
//! goes on.
use super::super::block::Cutter;
use super::super::merge::Merge;
use super::super::sorted::{RunBlocks, SortedRun};
use super::super::table::Table;
use super::compress::{Failure, Output};
use super::view::{Aged, View};
use super::{Core, files};
use forebay_storage::{Error, Result, SideEdit};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Tables of two runs whose key ranges hang together: no table outside overlaps one inside.
#[derive(Default)]
struct Group {
    newer: Vec<Arc<Table>>,
    older: Vec<Arc<Table>>,
}

/// The groups of two runs, in key order.
fn groups(newer: &SortedRun, older: &SortedRun) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut end = None;
    let (mut new, mut old) = (
        newer.tables().iter().peekable(),
        older.tables().iter().peekable(),
    );
    loop {
        let first = |t: Option<&&Arc<Table>>| t.map(|t| t.meta().first);
        let (a, b) = (first(new.peek()), first(old.peek()));
        let from_newer = match (a, b) {
            (None, None) => return groups,
            (Some(a), Some(b)) => a <= b,
            (a, _) => a.is_some(),
        };
        let next = if from_newer { new.next() } else { old.next() };
        let Some(table) = next else { return groups };
        if end.is_none_or(|end| end < table.meta().first) {
            groups.push(Group::default());
        }
        end = end.max(Some(table.meta().last));
        if let Some(group) = groups.last_mut() {
            let side = if from_newer {
                &mut group.newer
            } else {
                &mut group.older
            };
            side.push(table.clone());
        }
    }
}

impl Core {
    /// Merges two runs of similar size, if there are such. `false` if not.
    pub fn compact_due(&self, cutter: &mut Cutter) -> Result<bool> {
        let view = self.view.read().clone();
        let similar = |i: &usize| view.disk[*i].run.bytes() < 2 * view.disk[i + 1].run.bytes();
        let due = {
            let left_out = self.left_out.lock();
            let whole = |i: usize| {
                let mut tables = view.disk[i].run.tables().iter();
                !tables.any(|t| left_out.contains(&t.meta().number))
            };
            let mut pairs = (0..view.disk.len().saturating_sub(1)).rev();
            pairs.find(|i| similar(i) && whole(*i) && whole(i + 1))
        };
        let Some(at) = due else { return Ok(false) };
        match self.compact(&view, at, cutter) {
            Err(Failure::Input(e)) => {
                self.leave_out(&view, at, &e);
                Ok(true)
            }
            done => done.map_err(Failure::error),
        }
    }

    /// Merges no run any more that has the table the error names; or neither of the two at `at`, if it names none.
    fn leave_out(&self, view: &View, at: usize, error: &Error) {
        tracing::error!(store = %self.host.dir().display(), "the index leaves a damaged table as it is: {error}");
        let both = || view.disk[at..].iter().take(2).flat_map(|a| a.run.tables());
        let mut numbers: Vec<u64> = both()
            .filter(|t| t.is_in(error))
            .map(|t| t.meta().number)
            .collect();
        if numbers.is_empty() {
            numbers = both().map(|t| t.meta().number).collect();
        }
        self.left_out.lock().extend(numbers);
    }

    /// Merges the two newest runs; a single one that holds deletes, with nothing. `false` if there is nothing to do.
    pub fn compact_newest(&self, cutter: &mut Cutter) -> Result<bool> {
        let view = self.view.read().clone();
        let done = match view.disk.len() {
            0 => Ok(false),
            1 if view.tables().all(|t| !t.meta().deletes) => Ok(false),
            1 => self.compact(&view, 0, cutter),
            n => self.compact(&view, n - 2, cutter),
        };
        done.map_err(Failure::error)
    }

    /// Merges the run behind `at` over the one at `at`.
    fn compact(&self, view: &View, at: usize, cutter: &mut Cutter) -> Result<bool, Failure> {
        let older = &view.disk[at];
        let nothing = SortedRun::default();
        let newer = view.disk.get(at + 1);
        let age = newer.unwrap_or(older).age;
        let newer_run = newer.map_or(&nothing, |aged| &aged.run);
        let bottom = at == 0;
        let mut output = Output::new(self);
        // In key order: tables that moved, and how many new ones stand before each.
        let mut moved = Vec::new();
        let mut result = Ok(());
        for group in groups(newer_run, &older.run) {
            result = match (&group.newer[..], &group.older[..]) {
                ([one], []) | ([], [one]) if !(bottom && one.meta().deletes) => {
                    moved.push(one.clone());
                    output.cut().map_err(Failure::Output)
                }
                _ => self.merge(group, bottom, cutter, &mut output),
            };
            if result.is_err() {
                break;
            }
        }
        let new = output.end(result)?;
        let add = |table: &Arc<Table>| (table.meta().number, files::told(age, table.meta()));
        let stays = |table: &&Arc<Table>| moved.iter().any(|m| Arc::ptr_eq(m, table));
        let old: Vec<Arc<Table>> = older
            .run
            .tables()
            .iter()
            .chain(newer_run.tables())
            .cloned()
            .collect();
        let edit = SideEdit {
            add: new.iter().chain(&moved).map(add).collect(),
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
            let end = (at + 2).min(disk.len());
            let merged = (!tables.is_empty()).then(|| Aged {
                age,
                run: SortedRun::new(tables),
            });
            disk.splice(at..end, merged);
        }
        for table in old.iter().filter(|t| !stays(t)) {
            table.make_obsolete();
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn merge(
        &self,
        group: Group,
        bottom: bool,
        cutter: &mut Cutter,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let blocks = |tables| -> RunBlocks { SortedRun::new(tables).blocks() };
        let (newer, older) = (blocks(group.newer), blocks(group.older));
        let mut merge = Merge::new(newer, older, bottom, cutter);
        let result = output.take(&mut merge);
        self.counters.merges(merge.counts());
        result
    }
}
