//! Joins the segments of many commits of one log. So a long file that is committed bit by bit has few records, and its next
//! commit has few to compare with.
//!
//! Only segments of which every byte is visible are joined, and the result has the sequence of the newest of them. Readers see
//! the same as before, whatever other commits came between, because nothing hides these bytes. Small segments are joined with
//! small ones, so that no byte is folded again often.
use super::records::PatternId;
use super::segment::StoredSegment;
use crate::{Error, Result};
use forebay_pattern::{Folder, LogSource, Pattern, Segment};
use std::collections::{BTreeMap, BTreeSet};

/// Files with no more segments stay as they are. Few in tests, so that small histories join.
const MAX_UNJOINED_SEGMENTS: usize = if cfg!(test) { 4 } else { 64 };
/// Segments of one log that are joined, at least; but two are enough if all have no more than [`TINY_TERMS`] terms together.
const JOINED_AT_LEAST: usize = if cfg!(test) { 2 } else { 8 };
const TINY_TERMS: usize = 64;
/// Segments with more terms are long enough.
const LONG_TERMS: usize = 2048;
/// Rows that are folded anew at a time, at most.
const REFOLDED_ROWS: u64 = 1 << 18;
/// A segment with no more rows is small.
const SMALL_ROWS: u64 = 4096;

/// Places of segments to join, those of a log together: of the logs that the newest commit went on with.
fn joinable(segments: &[StoredSegment]) -> Vec<Vec<usize>> {
    let many = segments.len() > MAX_UNJOINED_SEGMENTS;
    let Some(newest) = segments.last().filter(|_| many) else {
        return Vec::new();
    };
    let last = segments.iter().rev();
    let last = last.take_while(|p| p.id.seq == newest.id.seq);
    let sources: BTreeSet<LogSource> = last.map(|p| p.segment.source).collect();
    let mut groups: BTreeMap<LogSource, Vec<usize>> = BTreeMap::new();
    for (at, stored) in segments.iter().enumerate() {
        let short = stored.hidden == 0 && stored.segment.pattern.terms() < LONG_TERMS;
        if short && sources.contains(&stored.segment.source) {
            groups.entry(stored.segment.source).or_default().push(at);
        }
    }
    groups
        .into_values()
        .filter_map(|g| pick_size_tier(segments, g))
        .collect()
}

/// The smallest of these, in the order of the log; `None` if they are too few.
fn pick_size_tier(segments: &[StoredSegment], mut places: Vec<usize>) -> Option<Vec<usize>> {
    let rows = |at: &usize| segments[*at].segment.pattern.rows();
    places.sort_by_cached_key(rows);
    let mut sum = 0u64;
    let fits = |at: &&usize| {
        let own = rows(at);
        let fits = own <= SMALL_ROWS.max(sum.saturating_mul(2))
            && sum.saturating_add(own) <= REFOLDED_ROWS;
        sum = sum.saturating_add(own);
        fits
    };
    let count = places.iter().take_while(fits).count();
    places.truncate(count);
    places.sort_by_key(|at| first(&segments[*at]));
    let chosen: Vec<&StoredSegment> = places.iter().map(|at| &segments[*at]).collect();
    let terms = |at: &usize| segments[*at].segment.pattern.terms();
    let tiny = || places.iter().map(terms).sum::<usize>() <= TINY_TERMS;
    let enough = count >= JOINED_AT_LEAST || (count >= 2 && tiny());
    (enough && in_turn(&chosen)).then_some(places)
}

/// What readers get: all segments, those of one log joined however few they are, so that logs written alike look alike.
/// `certain`: it is known of every segment which of its bytes count.
pub(super) fn joined_by_log(segments: &[StoredSegment], certain: bool) -> Vec<Segment> {
    let (mut out, mut groups) = (
        Vec::new(),
        BTreeMap::<LogSource, Vec<&StoredSegment>>::new(),
    );
    let mut rows = 0u64;
    for stored in segments {
        let sum = rows.saturating_add(stored.segment.pattern.rows());
        if stored.hidden == 0 && certain && sum <= REFOLDED_ROWS {
            rows = sum;
            groups
                .entry(stored.segment.source)
                .or_default()
                .push(stored);
        } else {
            out.push(Segment::clone(&stored.segment));
        }
    }
    for (source, mut segments) in groups {
        segments.sort_by_key(|p| first(p));
        let seq = segments.iter().map(|p| p.id.seq).max().unwrap_or_default();
        match fold(segments.iter().copied()) {
            Ok(few) if few.len() < segments.len() && in_turn(&segments) => {
                let segment = |pattern| Segment::new(source, seq, pattern);
                out.extend(few.into_iter().map(segment));
            }
            _ => out.extend(segments.iter().map(|p| Segment::clone(&p.segment))),
        }
    }
    out
}

/// The segments of a file whose newest commit has just landed, joined; `None`: nothing should be joined.
pub(super) fn join(segments: &[StoredSegment]) -> Result<Option<Vec<StoredSegment>>> {
    let (mut old, mut new, mut free) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
    for places in joinable(segments) {
        let made = joined(segments, &places, &mut free)?;
        if made.len() < places.len() {
            old.extend(places);
            new.extend(made);
        }
    }
    if new.is_empty() {
        return Ok(None);
    }
    let all = segments.iter().enumerate();
    let kept = all.filter(|(at, _)| !old.contains(at));
    new.extend(kept.map(|(_, stored)| stored.clone()));
    new.sort_by_key(|p| p.id);
    Ok(Some(new))
}

/// These segments as few. `free`: numbers that no segment of a commit has.
fn joined(
    segments: &[StoredSegment],
    places: &[usize],
    free: &mut BTreeMap<u64, u32>,
) -> Result<Vec<StoredSegment>> {
    let chosen = || places.iter().map(|at| &segments[*at]);
    let (Some(seq), Some(first)) = (chosen().map(|p| p.id.seq).max(), chosen().next()) else {
        return Ok(Vec::new());
    };
    let patterns = fold(chosen())?;
    let free = free.entry(seq).or_insert_with(|| {
        let of_commit = segments.iter().filter(|p| p.id.seq == seq);
        of_commit.map(|p| p.id.number + 1).max().unwrap_or(0)
    });
    let stored = |pattern| {
        let number = *free;
        *free += 1;
        StoredSegment::new(
            PatternId { seq, number },
            Segment::new(first.segment.source, seq, pattern),
        )
    };
    Ok(patterns.into_iter().map(stored).collect())
}

/// The first log address.
fn first(stored: &StoredSegment) -> u64 {
    stored.runs.first().map_or(0, |r| r.start)
}

/// Whether each lies after the one before in the log: an address is found in a segment by its runs, which go up.
fn in_turn(segments: &[&StoredSegment]) -> bool {
    let end = |stored: &StoredSegment| stored.runs.last().map_or(0, |r| r.end);
    segments.windows(2).all(|w| end(w[0]) <= first(w[1]))
}

/// The elements of these segments, folded anew.
fn fold<'a>(segments: impl Iterator<Item = &'a StoredSegment>) -> Result<Vec<Pattern>> {
    let mut folder = Folder::joining();
    for stored in segments {
        let pushed = folder.push_pattern(&stored.segment.pattern);
        pushed.map_err(|error| Error::Corrupt(error.to_string()))?;
    }
    Ok(folder.finish())
}
