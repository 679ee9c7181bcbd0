//! Series of files: versions of one thing, such as the checkpoints of a run, of which a later one is encoded against an earlier one.
//!
//! Whoever makes a log says which series its file belongs to, and of each append where in the file its bytes go. So bytes at the same
//! place of two versions are found, in whatever order they were appended.
//!
//! The first version of a series is its **base version**: those after it are encoded against it, and it against none, so decoding
//! follows one step. After [`MAX_LATER_VERSIONS`] the next one becomes the base version, because versions grow apart. Of a series in
//! which no version gains only the first one after each base version is tried.
//!
//! All of it is in memory, bounded, and says only what may be worth a try: without it, after a restart, a version is stored by itself.
use forebay_proto::{Fid, LogId};
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Versions that are encoded against one base version.
const MAX_LATER_VERSIONS: usize = 8;
/// Versions in a row that gained nothing, from which on fewer are tried.
const MAX_FAILED_VERSIONS: u32 = 3;
/// Parts of a version whose places are kept; of one that is written in more, none are.
const MAX_PARTS: usize = 1 << 16;
/// Parts of all versions whose places are kept, some 16 MiB: of those used least recently none are.
const MAX_ALL_PARTS: usize = 1 << 18;
/// Series that are kept.
const KEPT_SERIES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// Logs that are kept.
const KEPT_LOGS: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// Names a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeriesId(pub u64);

/// Where consecutive bytes of a file are, or of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlacedPart {
    len: u64,
    log: LogId,
    /// The other place of the first byte: in the log, or in the file.
    at: u64,
}

/// Where the bytes of a version are, by their offsets; or the offsets of a log's bytes, by their addresses.
#[derive(Debug, Default)]
struct PlacedParts {
    parts: BTreeMap<u64, PlacedPart>,
    /// There were too many.
    is_full: bool,
}

impl PlacedParts {
    /// The last put of a byte is what counts.
    fn put(&mut self, start: u64, part: PlacedPart) {
        let end = start.saturating_add(part.len);
        if self.is_full || part.len == 0 {
            return;
        }
        if self.parts.len() >= MAX_PARTS {
            self.parts.clear();
            self.is_full = true;
            return;
        }
        let before = self.parts.range(..start).next_back();
        if let Some((at, before)) = before.map(|(at, part)| (*at, *part)) {
            let goes_on = before.log == part.log && before.at + before.len == part.at;
            if at + before.len > start {
                self.cut(at, before, start..end);
            } else if at + before.len == start && goes_on {
                self.remove_within(start..end);
                let len = before.len + part.len;
                self.parts.insert(at, PlacedPart { len, ..before });
                return;
            }
        }
        self.remove_within(start..end);
        self.parts.insert(start, part);
    }

    fn remove_within(&mut self, range: Range<u64>) {
        while let Some((at, part)) = self.parts.range(range.clone()).next() {
            let (at, part) = (*at, *part);
            self.cut(at, part, range.clone());
        }
    }

    /// Takes a range out of the part at `at`.
    fn cut(&mut self, at: u64, part: PlacedPart, range: Range<u64>) {
        self.parts.remove(&at);
        if at < range.start {
            let len = range.start - at;
            self.parts.insert(at, PlacedPart { len, ..part });
        }
        let end = at + part.len;
        if end > range.end {
            let skip = range.end - at;
            let rest = PlacedPart {
                len: end - range.end,
                at: part.at + skip,
                ..part
            };
            self.parts.insert(range.end, rest);
        }
    }

    /// What is known of a range, in order, without gaps: `None` where nothing is.
    fn over(&self, range: Range<u64>) -> Vec<(u64, Option<(LogId, u64)>)> {
        let mut found = Vec::new();
        let mut at = range.start;
        let first = self.parts.range(..=range.start).next_back();
        let first = first.map_or(range.start, |(at, _)| *at);
        for (start, part) in self.parts.range(first..range.end) {
            let (from, to) = ((*start).max(at), (start + part.len).min(range.end));
            if from >= to {
                continue;
            }
            if from > at {
                found.push((from - at, None));
            }
            found.push((to - from, Some((part.log, part.at + (from - start)))));
            at = to;
        }
        if at < range.end {
            found.push((range.end - at, None));
        }
        found
    }
}

/// A series: its base version, and the versions after it.
struct SeriesVersions {
    base_version: Fid,
    parts: PlacedParts,
    later: Vec<Fid>,
    /// Versions in a row that gained nothing.
    failed: u32,
}

impl SeriesVersions {
    fn beginning_with(base_version: Fid, parts: PlacedParts, failed: u32) -> SeriesVersions {
        SeriesVersions {
            base_version,
            parts,
            later: Vec::new(),
            failed,
        }
    }
}

/// A log of a version.
struct VersionLog {
    series: SeriesId,
    fid: Fid,
    /// Where in the file its bytes are; not kept of the base version.
    offsets: PlacedParts,
}

struct SeriesState {
    series: LruCache<SeriesId, SeriesVersions>,
    logs: LruCache<LogId, VersionLog>,
    /// Of all of them.
    parts: usize,
}

impl SeriesState {
    /// Changes parts, and drops others if there are too many.
    fn count_parts(&mut self, before: usize, now: usize) {
        self.parts = (self.parts + now).saturating_sub(before);
        while self.parts > MAX_ALL_PARTS {
            let mut logs = self.logs.iter_mut().rev().map(|(_, log)| &mut log.offsets);
            let dropped = match logs.find(|offsets| !offsets.parts.is_empty()) {
                Some(offsets) => {
                    offsets.is_full = true;
                    std::mem::take(&mut offsets.parts)
                }
                None => match self.series.pop_lru() {
                    Some((_, series)) => series.parts.parts,
                    None => return,
                },
            };
            self.parts = self.parts.saturating_sub(dropped.len());
        }
    }
}

/// See the head of this file. Shared by threads.
pub struct SeriesTable(Mutex<SeriesState>);

/// Bytes of the base version at some place; `None`: it has none there.
pub struct BasePart {
    /// How many.
    pub len: u64,
    /// Log and address of the first one.
    pub place: Option<(LogId, u64)>,
}

impl Default for SeriesTable {
    fn default() -> SeriesTable {
        SeriesTable(Mutex::new(SeriesState {
            series: LruCache::new(KEPT_SERIES),
            logs: LruCache::new(KEPT_LOGS),
            parts: 0,
        }))
    }
}

impl SeriesTable {
    /// A log is made for a file of a series.
    pub fn add_log(&self, log: LogId, fid: Fid, id: SeriesId) {
        let mut state = self.0.lock();
        let first = || SeriesVersions::beginning_with(fid, PlacedParts::default(), 0);
        // Whatever the caches drop for these counts no more.
        if !state.series.contains(&id)
            && let Some((_, dropped)) = state.series.push(id, first())
        {
            state.count_parts(dropped.parts.parts.len(), 0);
        }
        let mut before = 0;
        if let Some(known) = state.series.get_mut(&id)
            && known.base_version != fid
            && !known.later.contains(&fid)
        {
            known.later.push(fid);
            if known.later.len() > MAX_LATER_VERSIONS {
                before = known.parts.parts.len();
                *known = SeriesVersions::beginning_with(fid, PlacedParts::default(), known.failed);
            }
        }
        state.count_parts(before, 0);
        let version = VersionLog {
            series: id,
            fid,
            offsets: PlacedParts::default(),
        };
        if let Some((_, dropped)) = state.logs.push(log, version) {
            state.count_parts(dropped.offsets.parts.len(), 0);
        }
    }

    /// Bytes were appended to a log at `addr`, which are in its file from `offset` on.
    pub fn appended(&self, log: LogId, addr: u64, offset: u64, len: u64) {
        let mut state = self.0.lock();
        let SeriesState { series, logs, .. } = &mut *state;
        let Some(version) = logs.get_mut(&log) else {
            return;
        };
        let (parts, start, at) = match series.get_mut(&version.series) {
            Some(series) if series.base_version == version.fid => (&mut series.parts, offset, addr),
            _ => (&mut version.offsets, addr, offset),
        };
        let before = parts.parts.len();
        parts.put(start, PlacedPart { len, log, at });
        let now = parts.parts.len();
        state.count_parts(before, now);
    }

    /// Whether it is worth a try to encode a log's bytes against earlier ones.
    pub fn may_gain(&self, log: LogId) -> bool {
        let state = self.0.lock();
        let version = state.logs.peek(&log);
        version.is_some_and(|version| {
            let series = state.series.peek(&version.series);
            series.is_some_and(|series| {
                series.base_version != version.fid
                    && (series.failed < MAX_FAILED_VERSIONS
                        || series.later.first() == Some(&version.fid))
            })
        })
    }

    /// A log's bytes were tried: whether that gained.
    pub fn note_trials(&self, log: LogId, gained: bool) {
        let mut state = self.0.lock();
        let SeriesState { series, logs, .. } = &mut *state;
        let series = logs.peek(&log).and_then(|log| series.peek_mut(&log.series));
        if let Some(series) = series {
            series.failed = if gained { 0 } else { series.failed + 1 };
        }
    }

    /// Where the base version has its bytes at the places of these of a log. `None`: it has none of them.
    pub fn base_parts(&self, log: LogId, addresses: Range<u64>) -> Option<Vec<BasePart>> {
        let state = self.0.lock();
        let version = state.logs.peek(&log)?;
        let series = state.series.peek(&version.series)?;
        if series.base_version == version.fid {
            return None;
        }
        let mut found = Vec::new();
        for (len, place) in version.offsets.over(addresses) {
            match place {
                None => found.push(BasePart { len, place: None }),
                Some((_, offset)) => {
                    let parts = series.parts.over(offset..offset + len).into_iter();
                    found.extend(parts.map(|(len, place)| BasePart { len, place }));
                }
            }
        }
        let has_any = found.iter().any(|part| part.place.is_some());
        has_any.then_some(found)
    }

    /// The base version of a log's series was removed: the version of this log takes its place.
    pub fn replace_base_version(&self, log: LogId) {
        let mut state = self.0.lock();
        let SeriesState { series, logs, .. } = &mut *state;
        let version = logs.peek(&log).map(|version| (version.series, version.fid));
        let Some((id, fid)) = version else { return };
        let known = series.peek_mut(&id);
        let Some(known) = known.filter(|series| series.base_version != fid) else {
            return;
        };
        let (mut before, mut parts) = (known.parts.parts.len(), PlacedParts::default());
        let same = |v: &VersionLog| v.series == id && v.fid == fid;
        for (_, version) in logs.iter_mut().filter(|(_, v)| same(v)) {
            let offsets = std::mem::take(&mut version.offsets);
            before += offsets.parts.len();
            parts.is_full |= offsets.is_full;
            for (addr, PlacedPart { len, log, at }) in offsets.parts {
                parts.put(at, PlacedPart { len, log, at: addr });
            }
        }
        let now = parts.parts.len();
        *known = SeriesVersions::beginning_with(fid, parts, known.failed);
        state.count_parts(before, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERIES: SeriesId = SeriesId(7);

    fn places(table: &SeriesTable, log: LogId, addresses: Range<u64>) -> Vec<Option<(LogId, u64)>> {
        let parts = table.base_parts(log, addresses).unwrap_or_default();
        let places = parts.into_iter().flat_map(|part| {
            (0..part.len).map(move |i| part.place.map(|(log, addr)| (log, addr + i)))
        });
        places.collect()
    }

    proptest! {
        #[test]
        fn bytes_at_the_same_place_of_two_versions_are_found(
            first in prop::collection::vec((0u64..200, 1u64..40), 1..30),
            later in prop::collection::vec((0u64..200, 1u64..40), 1..30),
        ) {
            let table = SeriesTable::default();
            table.add_log(1, Fid(10), SERIES);
            table.add_log(2, Fid(10), SERIES);
            table.add_log(3, Fid(11), SERIES);
            let (mut ends, mut in_first) = ([0; 3], [None; 300]);
            for (i, (offset, len)) in first.into_iter().enumerate() {
                let log = 1 + i as u64 % 2;
                let addr = ends[log as usize];
                table.appended(log, addr, offset, len);
                (0..len).for_each(|i| in_first[(offset + i) as usize] = Some((log, addr + i)));
                ends[log as usize] += len;
            }
            let mut wanted = Vec::new();
            for (offset, len) in later {
                table.appended(3, wanted.len() as u64, offset, len);
                wanted.extend((0..len).map(|i| in_first[(offset + i) as usize]));
            }
            let found = places(&table, 3, 0..wanted.len() as u64);
            match wanted.iter().any(Option::is_some) {
                true => prop_assert_eq!(&found, &wanted),
                false => prop_assert!(found.is_empty()),
            }
            let half = wanted.len() as u64 / 2;
            let found = places(&table, 3, half..wanted.len() as u64);
            prop_assert!(found.is_empty() || found == wanted[half as usize..]);
        }
    }

    #[test]
    fn a_base_version_has_some_later_ones_and_then_another_one_is_it() {
        let table = SeriesTable::default();
        let version = |n: u64| {
            table.add_log(n, Fid(n), SERIES);
            table.appended(n, 0, 0, 100);
            places(&table, n, 0..1)
        };
        assert!(version(1).is_empty() && !table.may_gain(1));
        for n in 2..2 + MAX_LATER_VERSIONS as u64 {
            assert_eq!(version(n), [Some((1, 0))]);
            assert!(table.may_gain(n));
        }
        assert!(version(50).is_empty());
        assert_eq!(version(51), [Some((50, 0))]);
        table.replace_base_version(51);
        assert_eq!(version(52), [Some((51, 0))]);
        table.replace_base_version(51);
        assert_eq!(version(53), [Some((51, 0))]);
    }

    #[test]
    fn of_a_version_in_too_many_parts_none_are_kept() {
        let table = SeriesTable::default();
        table.add_log(1, Fid(1), SERIES);
        for i in 0..=MAX_PARTS as u64 {
            table.appended(1, i, 2 * i, 1);
        }
        table.add_log(2, Fid(2), SERIES);
        table.appended(2, 0, 0, 10);
        assert!(table.base_parts(2, 0..10).is_none());
    }

    #[test]
    fn of_a_series_that_gains_nothing_only_the_first_version_is_tried() {
        let table = SeriesTable::default();
        table.add_log(1, Fid(1), SERIES);
        let tried = (2..30).filter(|n| {
            table.add_log(*n, Fid(*n), SERIES);
            let tried = table.may_gain(*n);
            if tried {
                table.note_trials(*n, false);
            }
            tried
        });
        assert_eq!(tried.collect::<Vec<_>>(), [2, 3, 4, 11, 20, 29]);
        table.note_trials(29, true);
        table.add_log(30, Fid(30), SERIES);
        assert!(table.may_gain(30));
    }

    #[test]
    fn memory_of_all_versions_is_bounded() {
        let table = SeriesTable::default();
        for n in 0..20 {
            table.add_log(n, Fid(n), SeriesId(n));
            for i in 0..MAX_PARTS as u64 / 2 {
                table.appended(n, i, 2 * i, 1);
            }
        }
        let state = table.0.lock();
        let parts = state.series.iter().map(|(_, s)| s.parts.parts.len());
        assert_eq!(parts.sum::<usize>(), state.parts);
        assert!(state.parts <= MAX_ALL_PARTS);
        assert!(state.series.contains(&SeriesId(19)) && !state.series.contains(&SeriesId(0)));
    }
}
