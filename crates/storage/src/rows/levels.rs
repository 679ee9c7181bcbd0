//! The levels of table files, and the choice of which tables are merged next. Pure: no I/O.
//!
//! Level 0 holds flushed tables, newest first, overlapping. Each deeper level is a sequence of tables that do
//! not overlap, and may be `ratio` times as large as the one above. Work is: all of level 0 with what it
//! overlaps in level 1, or one table of a level that is too large with what it overlaps below.
//!
//! Invariants: a newer version of a key is never below an older one; deletes are dropped only
//! where no deeper table can hold the key.
pub use crate::manifest::LEVELS;

use super::table::Table;
use crate::manifest::{Edit, TableMeta};
use std::collections::HashSet;
use std::sync::Arc;

/// The limits that drive compaction.
#[derive(Debug, Clone, Copy)]
pub struct LevelLimits {
    /// Tables in level 0 that start a compaction.
    pub level0_tables: usize,
    /// Size of level 1 in bytes.
    pub level1_bytes: u64,
    /// How many times larger each deeper level may be.
    pub ratio: u64,
}

/// The tables of a store, by level. Never changes; edits make new ones.
#[derive(Clone, Default)]
pub struct Levels {
    levels: [Vec<Arc<Table>>; LEVELS],
}

impl Levels {
    /// The tables after an edit; `make` opens the added ones.
    pub fn edited(&self, edit: &Edit, mut make: impl FnMut(&TableMeta) -> Arc<Table>) -> Levels {
        let mut levels = self.levels.clone();
        for level in &mut levels {
            level.retain(|t| !edit.remove.contains(&t.meta().number));
        }
        for (level, meta) in &edit.add {
            levels[usize::from(*level).min(LEVELS - 1)].push(make(meta));
        }
        levels[0].sort_by_key(|t| std::cmp::Reverse(t.meta().number));
        for level in &mut levels[1..] {
            level.sort_by(|a, b| a.meta().first.cmp(&b.meta().first));
        }
        Levels { levels }
    }

    /// The tables of `level`.
    pub fn level(&self, level: usize) -> &[Arc<Table>] {
        &self.levels[level]
    }

    /// All tables, newer levels first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.levels.iter().flatten()
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(Vec::is_empty)
    }

    /// Size of `level`, bytes.
    pub fn bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|t| t.meta().bytes).sum()
    }

    fn overlapping(&self, level: usize, first: &[u8], last: &[u8]) -> Vec<Arc<Table>> {
        self.levels[level]
            .iter()
            .filter(|t| t.meta().overlaps(first, last))
            .cloned()
            .collect()
    }

    fn job(&self, level: usize, upper: Vec<Arc<Table>>) -> Option<Compaction> {
        let first = upper.iter().map(|t| t.meta().first.clone()).min()?;
        let last = upper.iter().map(|t| t.meta().last.clone()).max()?;
        let lower = self.overlapping(level + 1, &first, &last);
        let inputs = || upper.iter().chain(&lower).map(|t| t.meta());
        let low = inputs().map(|t| &t.first).min()?;
        let high = inputs().map(|t| &t.last).max()?;
        let bottom = (level + 2..LEVELS).all(|l| self.overlapping(l, low, high).is_empty());
        Some(Compaction {
            level,
            upper,
            lower,
            bottom,
        })
    }

    /// The compaction that is due, without tables in `skip` (damaged ones). `after` has for each level where its last one ended.
    pub fn due(
        &self,
        limits: &LevelLimits,
        skip: &HashSet<u64>,
        after: &[Vec<u8>],
    ) -> Option<Compaction> {
        let usable = |job: &Compaction| job.inputs().all(|t| !skip.contains(&t.meta().number));
        if self.levels[0].len() >= limits.level0_tables
            && let Some(job) = self.job(0, self.levels[0].clone()).filter(usable)
        {
            return Some(job);
        }
        let mut limit = limits.level1_bytes;
        for (level, after) in after.iter().enumerate().take(LEVELS - 1).skip(1) {
            if self.bytes(level) > limit {
                let tables = &self.levels[level];
                let start = tables.partition_point(|t| t.meta().last[..] <= after[..]);
                let order = (start..tables.len()).chain(0..start);
                if let Some(job) = order
                    .filter_map(|i| self.job(level, vec![tables[i].clone()]))
                    .find(usable)
                {
                    return Some(job);
                }
            }
            limit = limit.saturating_mul(limits.ratio);
        }
        None
    }

    /// The next step towards everything in one level without deletes: level 0 first, then table by table
    /// downwards. `None` when that is reached.
    pub fn towards_bottom(&self, skip: &HashSet<u64>) -> Option<Compaction> {
        let usable = |job: &Compaction| job.inputs().all(|t| !skip.contains(&t.meta().number));
        if let Some(job) = self.job(0, self.levels[0].clone()).filter(usable) {
            return Some(job);
        }
        let deepest = (1..LEVELS).rev().find(|l| !self.levels[*l].is_empty())?;
        let above = (1..deepest).flat_map(|l| self.levels[l].iter().map(move |t| (l, t)));
        let stale = (deepest < LEVELS - 1).then(|| {
            self.levels[deepest]
                .iter()
                .filter(|t| t.meta().deletes > 0)
                .map(move |t| (deepest, t))
        });
        above
            .chain(stale.into_iter().flatten())
            .filter_map(|(l, t)| self.job(l, vec![t.clone()]))
            .find(usable)
    }

    /// Whether deletes are half of the entries of all tables, or more.
    pub fn are_mostly_deletes(&self) -> bool {
        let sum = |of: fn(&TableMeta) -> u64| self.all().map(|t| of(t.meta())).sum::<u64>();
        let deletes = sum(|t| t.deletes);
        deletes > 0 && 2 * deletes >= sum(|t| t.entries)
    }
}

/// Tables to merge, and where the result goes.
pub struct Compaction {
    /// The upper level; the result goes one below.
    pub level: usize,
    /// Inputs of the upper level; of level 0 newest first.
    pub upper: Vec<Arc<Table>>,
    /// Inputs of the level below.
    pub lower: Vec<Arc<Table>>,
    /// Whether no deeper table can hold a key of the inputs: deletes are dropped.
    pub bottom: bool,
}

impl Compaction {
    /// All input tables.
    pub fn inputs(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.upper.iter().chain(&self.lower)
    }

    /// Whether the table can change its level as it is.
    pub fn is_move(&self) -> bool {
        self.level > 0
            && self.lower.is_empty()
            && self.upper.len() == 1
            && !(self.bottom && self.upper[0].meta().deletes > 0)
    }
}
