//! Rebuilds the state in memory from the span records and the directory of segments when a store is opened, after a stop or a
//! crash.
//!
//! Segments that no raw span and no container names are removed: their bytes were written but never recorded, or freed. Free space
//! inside the others is what lies between raw spans and named chunks. Nothing is ever appended to a segment of an earlier run.
//!
//! A damaged record of a span or container makes its bytes unreadable, and nothing else. Which bytes it named is not known, so then
//! every segment is kept whole, and all of it counts as live.
use crate::container::{self, ContainerTable, EncodedBytes};
use crate::keyspaces::LOGS;
use crate::pieces::ChecksummedPieces;
use crate::reclaim::{LARGE_HOLE, MOST_SMALL_HOLES, whole_pages};
use crate::segment::header::{self, HEADER_BYTES};
use crate::segment::{SEGMENT_BYTES, SegmentRange, SegmentUsage};
use crate::span::{self, SpanBytes};
use forebay_proto::{Error, Fid, LogId, Member, Result};
use forebay_storage::{Error as StorageError, Io, IoContext, Store};
use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;

/// What an open found.
pub struct RecoveredState {
    /// Stored bytes: live ones of raw spans, and chunks that are named.
    pub live: u64,
    /// Those of them that are chunks.
    pub named: u64,
    /// Those of them in encoded containers.
    pub encoded: EncodedBytes,
    /// Live bytes of mapped spans.
    pub mapped: u64,
    /// Those of them that are zeros.
    pub zeros: u64,
    /// Segments that hold some.
    pub table: HashMap<u32, SegmentUsage>,
    /// A segment number never used.
    pub next: u32,
    /// Free parts of segments that are kept.
    pub gaps: Vec<SegmentRange>,
    /// Logs that were not sealed.
    pub unsealed: Vec<(LogId, Fid)>,
}

impl RecoveredState {
    /// Counts these bytes of a segment as live.
    fn count(&mut self, segment: u32, bytes: u64) {
        let usage = self.table.entry(segment).or_insert(SegmentUsage {
            sealed: true,
            ..SegmentUsage::default()
        });
        usage.live += bytes;
        self.next = self.next.max(segment + 1);
    }
}

/// Looks at the store and at `dir` (created if missing), and removes segments that nothing names.
///
/// # Errors
/// As disk and store; `Format` for segments of another member or a newer version.
pub fn recover(io: &dyn Io, dir: &Path, store: &Store, member: Member) -> Result<RecoveredState> {
    io.create_dir_all(dir).context("create", dir)?;
    // Its own name is on disk before anything in it is; those above it are the store's, which lies beside it.
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        io.sync_dir(parent).context("sync", parent)?;
    }
    let mut found = RecoveredState {
        live: 0,
        named: 0,
        encoded: EncodedBytes::default(),
        mapped: 0,
        zeros: 0,
        table: HashMap::new(),
        next: 1,
        gaps: Vec::new(),
        unsealed: Vec::new(),
    };
    match unsealed_logs(store) {
        Ok(logs) => found.unsealed = logs,
        // Their unused bytes take room until the record can be read again.
        Err(error) => pass_over_damage(error)?,
    }
    let mut stored = Vec::new();
    let mut whole = true;
    for span in span::all(store) {
        let span = match span {
            Ok(span) => span,
            Err(error) => {
                pass_over_damage(error)?;
                whole = false;
                continue;
            }
        };
        match &span.bytes {
            SpanBytes::Raw(raw) => {
                found.live += span.live_len();
                found.count(raw.segment, raw.stored_len());
                stored.push(raw.segment_range(&raw.stored));
            }
            SpanBytes::Mapped(runs) => {
                found.mapped += span.live_len();
                found.zeros += runs.zeros();
            }
        }
    }
    for container in container::all(store) {
        let counted = container.and_then(|c| Ok((container::load_counts(store, &c)?, c)));
        let (counts, container) = match counted {
            Ok(counted) => counted,
            Err(error) => {
                pass_over_damage(error)?;
                whole = false;
                continue;
            }
        };
        let named = container.named_len(&counts);
        found.named += named;
        found.encoded.add(&container, &counts);
        found.live += named;
        found.count(container.segment, named);
        stored.extend(container.places(|i| counts.0[i] > 0));
    }
    let mut dead = Vec::new();
    for entry in io.list(dir).context("list", dir)? {
        let Some(number) = header::number(&entry.name) else {
            continue;
        };
        found.next = found.next.max(number + 1);
        if !whole {
            found.table.entry(number).or_default();
        }
        match found.table.get_mut(&number) {
            None => dead.push(number),
            Some(usage) => {
                usage.len = entry.len;
                let allocated = check(io, &dir.join(&entry.name), member, number)?;
                usage.holes = entry.len.saturating_sub(allocated);
            }
        }
    }
    for (number, _) in found.table.iter().filter(|(_, u)| u.len == 0) {
        tracing::error!(
            "{}: missing; reads of its bytes fail, run `forebay fsck`",
            dir.join(header::name(*number)).display()
        );
    }
    if !dead.is_empty() {
        // The frees that emptied them must not be undone by a power loss.
        store.sync()?;
    }
    for number in dead {
        let path = dir.join(header::name(number));
        // Not emptied before: in a salvage it is another name of a file of the damaged store.
        io.remove(&path).context("remove", &path)?;
    }
    if whole {
        found.gaps = gaps(stored, &found.table);
    } else {
        keep_everything(&mut found);
    }
    Ok(found)
}

/// Finds the holds of containers on their bases.
///
/// # Errors
/// As the store.
pub fn find_holds(store: &Store, containers: &ContainerTable) -> Result<()> {
    for hold in container::all_holds(store) {
        let found = hold.and_then(|(id, base)| {
            let container = container::load(store, id)?;
            let needed = container.is_some_and(|c| c.base().is_some());
            containers.bases.add_found(id, &base, needed);
            Ok(())
        });
        // What cannot be read is held for ever, and told by fsck.
        found.or_else(pass_over_damage)?;
    }
    Ok(())
}

/// Logs damage and goes on; anything else stops the start.
fn pass_over_damage(error: Error) -> Result<()> {
    if !error.is_damage() {
        return Err(error);
    }
    tracing::error!(%error, "records of file data cannot be read; what needs them answers EIO, and no space is given back");
    Ok(())
}

/// Keeps every segment whole: none is reclaimed or removed, however much of it is freed.
fn keep_everything(found: &mut RecoveredState) {
    found.live = 0;
    for usage in found.table.values_mut() {
        // A file that is missing has no length; its bytes may be freed all the same.
        found.live += if usage.len == 0 {
            SEGMENT_BYTES
        } else {
            usage.len
        };
        // More than can be freed, since parts of a span may count a piece twice.
        usage.live = 2 * usage.len.max(SEGMENT_BYTES);
        usage.sealed = true;
        usage.pinned = true;
    }
}

/// Checks a segment's header and returns the file's space on the disk. A damaged header alone costs no data, because every piece has its
/// own checksum.
fn check(io: &dyn Io, path: &Path, member: Member, number: u32) -> Result<u64> {
    let file = io.open(path).context("open", path)?;
    match header::check_header(&*file, path, member, number) {
        Err(error @ Error::Storage(StorageError::Corrupt { .. })) => {
            tracing::warn!(%error, "reading on");
        }
        other => other?,
    }
    Ok(file.allocated().context("stat", path)?)
}

/// The gaps between the stored ranges of each segment; these ranges may overlap. A crash may have come before a punch, and small gaps wait for
/// it; but where a segment has as many holes as its gaps have pages, the small ones are holes already. (On a file system that compresses
/// that may be wrong; such gaps go with their segment.)
fn gaps(mut stored: Vec<SegmentRange>, table: &HashMap<u32, SegmentUsage>) -> Vec<SegmentRange> {
    stored.sort_unstable();
    let (mut gaps, mut small) = (Vec::new(), 0);
    for of_segment in stored.chunk_by(|a, b| a.segment == b.segment) {
        let segment = of_segment[0].segment;
        let usage = table.get(&segment).copied().unwrap_or_default();
        let (mut found, mut at) = (Vec::new(), HEADER_BYTES);
        let ends = of_segment.iter().map(|p| (p.start, p.end));
        for (start, end) in ends.chain([(usage.len, usage.len)]) {
            let gap = SegmentRange {
                segment,
                start: at,
                end: start.max(at),
            };
            found.extend(whole_pages(&gap).map(|_| gap));
            at = at.max(end);
        }
        let pages = found.iter().filter_map(whole_pages);
        let bytes: u64 = pages.map(|p| p.end - p.start).sum();
        let punched = usage.holes >= bytes;
        gaps.extend(found.into_iter().filter(|gap| {
            let is_small = gap.end - gap.start < LARGE_HOLE;
            small += usize::from(is_small && !punched);
            !is_small || !punched && small <= MOST_SMALL_HOLES
        }));
    }
    gaps
}

/// Logs that were not sealed.
///
/// # Errors
/// As the store; `Corrupt` for a record of a wrong length.
pub fn unsealed_logs(store: &Store) -> Result<Vec<(LogId, Fid)>> {
    let entries = store.scan(LOGS, Bound::Unbounded, Bound::Unbounded);
    entries
        .map(|entry| {
            let (key, value) = entry?;
            match (key[..].try_into(), value[..].try_into()) {
                (Ok(log), Ok(fid)) => Ok((u64::from_be_bytes(log), Fid(u64::from_be_bytes(fid)))),
                _ => Err(Error::Corrupt(format!(
                    "log record {key:02x?}; run `forebay fsck`"
                ))),
            }
        })
        .collect()
}
