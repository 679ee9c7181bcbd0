//! Log bytes that no surviving record names, written shortly before lost batches that may have named them.
//!
//! A log is written by one file's writer, and its row (`keys::LOGS`) says which file, until the log is sealed (complete: nothing
//! is appended any more). A salvaged store keeps every version of a row that its log holds, so what a row said before the lost
//! batches can still be read.
use super::collect::CollectedRecords;
use crate::log_ranges::LogRanges;
use crate::{Fid, files, keys, outbox};
use forebay_data::ranges::subtract;
use forebay_data::{LogId, span::Span};
use forebay_index::Change;
use forebay_pattern::LogSource;
use forebay_storage::{LogEnd, PossibleLoss, Snapshot};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Bound::Unbounded, Range};

/// See the head of this file.
#[derive(Default)]
pub struct UnplacedBytes {
    /// How many, by the files that the lost batches may have placed them in.
    pub lost: BTreeMap<Fid, u64>,
    /// The same of files that were written when the log ended: where nothing is lost, nobody was told that these bytes are stored.
    pub at_end: BTreeMap<Fid, u64>,
}

/// What was written of the logs that were not sealed: log, file, addresses.
fn open_logs(snapshot: &Snapshot) -> Vec<(LogId, Fid, Vec<Range<u64>>)> {
    // What cannot be read is told with the damage of the store.
    let rows = |keyspace| {
        snapshot
            .scan(keyspace, Unbounded, Unbounded)
            .filter_map(Result::ok)
    };
    let log = |(key, value): (bytes::Bytes, bytes::Bytes)| {
        let log = u64::from_be_bytes(key[..].try_into().ok()?);
        let fid = Fid(u64::from_be_bytes(value[..].try_into().ok()?));
        Some((log, (fid, Vec::new())))
    };
    let mut logs: HashMap<LogId, (Fid, Vec<Range<u64>>)> =
        rows(keys::LOGS).filter_map(log).collect();
    for (key, value) in rows(keys::SPANS) {
        if let Ok(span) = Span::decode(&key, &value)
            && let Some((_, written)) = logs.get_mut(&span.log)
        {
            written.push(span.live);
        }
    }
    logs.into_iter()
        .map(|(log, (fid, written))| (log, fid, written))
        .collect()
}

impl UnplacedBytes {
    pub fn of(collected: &CollectedRecords) -> UnplacedBytes {
        let mut unplaced = UnplacedBytes::default();
        let mut written = Vec::new();
        for m in &collected.members {
            let Some(store) = &m.store else { continue };
            let mut lost = HashSet::new();
            for damage in m.damage() {
                if let PossibleLoss::Batches { first, .. } = damage.lost {
                    let before = store.snapshot_at(first.saturating_sub(1));
                    for (log, fid, ranges) in open_logs(&before) {
                        lost.insert(log);
                        written.push((m.member, log, fid, ranges, true));
                    }
                }
            }
            if let LogEnd::Unclean { .. } = store.opened().end {
                let logs = open_logs(&store.snapshot()).into_iter();
                let logs = logs.filter(|(log, ..)| !lost.contains(log));
                written.extend(logs.map(|(log, fid, ranges)| (m.member, log, fid, ranges, false)));
            }
        }
        if written.is_empty() {
            return unplaced;
        }
        let Some(placed) = placed(collected) else {
            return unplaced;
        };
        let mut seen = HashSet::new();
        for (member, log, fid, ranges, is_lost) in written {
            let source = LogSource { member, log };
            let (placed, live) = (placed.of(source), collected.live.of(source));
            let left = ranges.into_iter().flat_map(|range| subtract(range, placed));
            // What was freed since is nobody's.
            let left = left.flat_map(|range| {
                let gone = subtract(range.clone(), live);
                subtract(range, &gone)
            });
            let new = left.filter(|range| seen.insert((member, log, range.start)));
            let bytes: u64 = new.map(|range| range.end - range.start).sum();
            let files = match is_lost {
                true => &mut unplaced.lost,
                false => &mut unplaced.at_end,
            };
            if bytes > 0 {
                *files.entry(fid).or_default() += bytes;
            }
        }
        unplaced
    }
}

/// Log addresses that something names, sorted and joined. `None` if patterns cannot be read: what they name is not known then.
fn placed(collected: &CollectedRecords) -> Option<LogRanges> {
    let mut placed = LogRanges::default();
    for commit in &collected.decided {
        for change in &commit.changes {
            if let Change::Put(e) = change {
                placed.add_extent(e);
            }
        }
    }
    for m in &collected.members {
        let (Some(store), Some(index)) = (&m.store, &m.index) else {
            continue;
        };
        for (_, e) in index.iter().ok()?.filter_map(Result::ok) {
            placed.add_extent(&e);
        }
        for (_, e) in files::check::pattern_extents(store, index).ok()? {
            placed.add_extent(&e);
        }
        outbox::add_waiting(store, &mut placed).ok()?;
    }
    Some(placed.sorted())
}
