//! Checks what a commit says of a file's bytes, before anything is locked: a writer that is wrong, or whose message was
//! damaged, is refused, and nothing has happened.
//!
//! # Invariants
//! What is accepted can be counted exactly:
//! 1. Each log byte is named once, and each byte of the file is in one pattern or put. Puts without patterns may overlap; the
//!    index counts what a later one takes away.
//! 2. Sums of lengths, offsets and log addresses fit their numbers.
//! 3. Every extent and pattern names an existing member.
use super::super::records::CommitId;
use crate::Result;
use forebay_index::{Change, Extent};
use forebay_pattern::{LogSource, Segment, all_disjoint, decode_all};
use rustix::io::Errno;
use std::ops::Range;

/// Bytes that the puts of one commit hold together, at most: the index makes a record of each MiB.
const MAX_PUT_BYTES: u64 = 1 << 46;

/// Elements and puts of a commit that are looked at one by one, at most. A commit of more must show by its strides that
/// they do not overlap; the delegate that folds them keeps to that.
pub(crate) const MAX_COMPARED_PUTS: u64 = 1 << 22;

/// Log bytes that a commit names.
type NamedLogBytes = Vec<(LogSource, u64, u64)>;

/// The segments of a commit, decoded.
///
/// # Errors
/// `EINVAL` for what no writer may ask; the log says what.
pub(in super::super) fn validated(
    id: CommitId,
    changes: &[Change],
    patterns: &[u8],
    members: u16,
) -> Result<Vec<Segment>> {
    let found = puts(changes, members).and_then(|named| match patterns {
        [] => once(named).map(|()| Vec::new()),
        _ => segments(changes, patterns, named, members),
    });
    found.map_err(|why| {
        let CommitId { fid, writer, .. } = id;
        tracing::warn!(fid = fid.0, writer, why, "a commit was refused: it cannot be what the writer meant; its member's program is damaged, or of another version");
        Errno::INVAL.into()
    })
}

/// The log bytes of puts.
fn puts(changes: &[Change], members: u16) -> Result<NamedLogBytes, &'static str> {
    let (mut named, mut left) = (Vec::new(), MAX_PUT_BYTES);
    for change in changes {
        let e = match change {
            Change::Put(e) => e,
            Change::Cut { start, end } if start <= end => continue,
            Change::Cut { .. } => return Err("a cut ends before it starts"),
        };
        let there = e.len > 0 && e.offset.checked_add(e.len).is_some();
        let end = e.addr.checked_add(e.len).filter(|_| there);
        let end = end.ok_or("an extent is empty, or ends behind all numbers")?;
        left = left
            .checked_sub(e.len)
            .ok_or("its extents hold more than there can be")?;
        let Extent { member, log, .. } = *e;
        known(member, members)?;
        named.push((LogSource { member, log }, e.addr, end));
    }
    Ok(named)
}

/// The segments: whole, none empty, in the order of the log, apart from each other and from puts.
fn segments(
    changes: &[Change],
    patterns: &[u8],
    mut named: NamedLogBytes,
    members: u16,
) -> Result<Vec<Segment>, &'static str> {
    let (found, lost) = decode_all(patterns);
    let found = match (lost.is_empty(), found.globals.is_empty()) {
        (true, true) => found.segments,
        _ => return Err("its patterns cannot be read, or are not those of one log each"),
    };
    for segment in &found {
        known(segment.source.member, members)?;
        let runs = segment.pattern.runs();
        let up = runs.windows(2).all(|w| w[0].end <= w[1].start);
        if segment.limit.is_some() || segment.pattern.bytes() == 0 || !up {
            return Err("a pattern is empty, cut, or not in the order of its log");
        }
        named.extend(runs.iter().map(|r| (segment.source, r.start, r.end)));
    }
    once(named)?;
    let ranges = changes.iter().filter_map(|change| match change {
        Change::Put(e) => Some(e.offset..e.end()),
        Change::Cut { .. } => None,
    });
    let ranges: Vec<Range<u64>> = ranges.collect();
    match all_disjoint(&found, &ranges, MAX_COMPARED_PUTS) {
        Some(true) => Ok(found),
        Some(false) => Err("a byte of the file is in two of its patterns or extents"),
        None => Err("its patterns lie over each other too finely to be counted"),
    }
}

fn known(member: u16, members: u16) -> Result<(), &'static str> {
    match member < members {
        true => Ok(()),
        false => Err("there is no member that has the bytes"),
    }
}

/// Each log byte once.
fn once(mut named: NamedLogBytes) -> Result<(), &'static str> {
    named.sort_unstable();
    let twice = |w: &[(LogSource, u64, u64)]| w[0].0 == w[1].0 && w[1].1 < w[0].2;
    match named.windows(2).any(twice) {
        true => Err("it names a log byte twice"),
        false => Ok(()),
    }
}
