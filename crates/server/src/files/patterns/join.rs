//! Joining the patterns of many commits of one log: who commits a long file bit by bit leaves few records, and the next
//! commit has few to look at.
//!
//! Only parts of which every byte counts are joined. Nothing lies over their bytes, so it changes nothing of what is seen that they all
//! pass for those of their newest commit, whatever other commits came between. Small ones are joined with small ones,
//! so that a row is folded anew only now and then.
use super::super::Shared;
use super::commit::Writer;
use super::records::{Id, SEGMENT};
use super::table::{Part, Table};
use crate::{Error, Fid, Result};
use forebay_pattern::{Folder, Pattern, Segment, Source};
use forebay_storage::Batch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files with no more parts stay as they are. Few in tests, so that small histories join.
const FEW: usize = if cfg!(test) { 4 } else { 64 };
/// Parts of one log that are joined, at least; but two are enough if all have no more than [`TINY`] terms together.
const LEAST: usize = if cfg!(test) { 2 } else { 8 };
const TINY: usize = 64;
/// Parts with more terms are long enough.
const TERMS: usize = 2048;
/// Rows that are folded anew at a time, at most.
const ROWS: u64 = 1 << 18;
/// A part with no more rows is small.
const SMALL: u64 = 4096;

impl Table {
    /// Places of parts to join, those of a log together: of the logs that the newest commit went on with.
    fn joinable(&self) -> Vec<Vec<usize>> {
        let Some(newest) = self.parts.last().filter(|_| self.parts.len() > FEW) else {
            return Vec::new();
        };
        if !self.lost.is_empty() {
            return Vec::new();
        }
        let last = self.parts.iter().rev();
        let last = last.take_while(|p| p.id.seq == newest.id.seq);
        let sources: BTreeSet<Source> = last.map(|p| p.segment.source).collect();
        let mut groups: BTreeMap<Source, Vec<usize>> = BTreeMap::new();
        for (at, part) in self.parts.iter().enumerate() {
            let short = part.hidden == 0 && part.segment.pattern.terms() < TERMS;
            if short && sources.contains(&part.segment.source) {
                groups.entry(part.segment.source).or_default().push(at);
            }
        }
        groups.into_values().filter_map(|g| self.tier(g)).collect()
    }

    /// The smallest of these, in the order of the log; `None` if they are too few.
    fn tier(&self, mut places: Vec<usize>) -> Option<Vec<usize>> {
        let rows = |at: &usize| self.parts[*at].segment.pattern.rows();
        places.sort_by_cached_key(rows);
        let mut sum = 0u64;
        let fits = |at: &&usize| {
            let own = rows(at);
            let fits = own <= SMALL.max(sum.saturating_mul(2)) && sum.saturating_add(own) <= ROWS;
            sum = sum.saturating_add(own);
            fits
        };
        let count = places.iter().take_while(fits).count();
        places.truncate(count);
        places.sort_by_key(|at| first(&self.parts[*at]));
        let parts: Vec<&Part> = places.iter().map(|at| &self.parts[*at]).collect();
        let terms = |at: &usize| self.parts[*at].segment.pattern.terms();
        let tiny = || places.iter().map(terms).sum::<usize>() <= TINY;
        let enough = count >= LEAST || (count >= 2 && tiny());
        (enough && in_turn(&parts)).then_some(places)
    }

    /// What readers get: all parts, those of one log joined however few they are, so that logs written alike look alike.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let (mut segments, mut groups) = (Vec::new(), BTreeMap::<Source, Vec<&Part>>::new());
        let mut rows = 0u64;
        for part in &self.parts {
            let sum = rows.saturating_add(part.segment.pattern.rows());
            let certain = self.lost.is_empty() && !self.uncounted;
            if part.hidden == 0 && certain && sum <= ROWS {
                rows = sum;
                groups.entry(part.segment.source).or_default().push(part);
            } else {
                segments.push(Segment::clone(&part.segment));
            }
        }
        for (source, mut parts) in groups {
            parts.sort_by_key(|p| first(p));
            let seq = parts.iter().map(|p| p.id.seq).max().unwrap_or_default();
            match fold(parts.iter().copied()) {
                Ok(few) if few.len() < parts.len() && in_turn(&parts) => {
                    let segment = |pattern| Segment::new(source, seq, pattern);
                    segments.extend(few.into_iter().map(segment));
                }
                _ => segments.extend(parts.iter().map(|p| Segment::clone(&p.segment))),
            }
        }
        segments
    }

    /// What should be joined of a file whose newest commit has just landed.
    pub(super) fn join(&self) -> Result<Option<Joined>> {
        let (mut old, mut new, mut free) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
        for places in self.joinable() {
            let made = self.joined(&places, &mut free)?;
            if made.len() < places.len() {
                old.extend(places);
                new.extend(made);
            }
        }
        Ok((!new.is_empty()).then_some(Joined { old, new }))
    }

    /// These parts as few. `free`: numbers that no part of a commit has.
    fn joined(&self, places: &[usize], free: &mut BTreeMap<u64, u32>) -> Result<Vec<Part>> {
        let parts = || places.iter().map(|at| &self.parts[*at]);
        let (Some(seq), Some(first)) = (parts().map(|p| p.id.seq).max(), parts().next()) else {
            return Ok(Vec::new());
        };
        let patterns = fold(parts())?;
        let free = free.entry(seq).or_insert_with(|| {
            let of_commit = self.parts.iter().filter(|p| p.id.seq == seq);
            of_commit.map(|p| p.id.number + 1).max().unwrap_or(0)
        });
        let part = |pattern| {
            let number = *free;
            *free += 1;
            Part::new(
                Id { seq, number },
                Segment::new(first.segment.source, seq, pattern),
            )
        };
        Ok(patterns.into_iter().map(part).collect())
    }
}

/// The first log address.
fn first(part: &Part) -> u64 {
    part.runs.first().map_or(0, |r| r.start)
}

/// Whether each lies behind the one before in the log: an address is found in a part by its runs, which go up.
fn in_turn(parts: &[&Part]) -> bool {
    let end = |part: &Part| part.runs.last().map_or(0, |r| r.end);
    parts.windows(2).all(|w| end(w[0]) <= first(w[1]))
}

/// The elements of these parts, folded anew.
fn fold<'a>(parts: impl Iterator<Item = &'a Part>) -> Result<Vec<Pattern>> {
    let mut folder = Folder::joining();
    for part in parts {
        let pushed = folder.push_pattern(&part.segment.pattern);
        pushed.map_err(|error| Error::Corrupt(error.to_string()))?;
    }
    Ok(folder.finish())
}

/// Parts that take the place of others.
pub(super) struct Joined {
    old: BTreeSet<usize>,
    new: Vec<Part>,
}

impl Shared {
    /// Writes what was joined of `table`. The caller has the inode's lock.
    pub(super) fn put_joined(&self, fid: Fid, table: &Table, joined: Joined) -> Result<()> {
        let Joined { old, new } = joined;
        let mut batch = Batch::new();
        let mut writer = Writer {
            batch: &mut batch,
            fid,
        };
        let mut parts = Vec::with_capacity(table.parts.len());
        for (at, part) in table.parts.iter().enumerate() {
            match old.contains(&at) {
                true => writer.delete(part),
                false => parts.push(part.clone()),
            }
        }
        for part in &new {
            writer.put(part.id, SEGMENT, part.value());
        }
        writer.drop_merged(table);
        parts.extend(new);
        parts.sort_by_key(|p| p.id);
        self.step("join")?;
        self.tables.forget(fid);
        self.store.apply(batch)?;
        let joined = Table::new(parts, table.holes.clone(), Vec::new());
        self.tables.put(fid, Arc::new(joined));
        Ok(())
    }
}
