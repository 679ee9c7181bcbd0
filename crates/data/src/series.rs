//! Series of files: versions of one thing, such as the checkpoints of a run, of which a later one is encoded against an earlier one.
//!
//! Whoever makes a log says which series its file belongs to, and of each append where in the file its bytes go. So bytes at the same
//! place of two versions are found, in whatever order they were appended.
//!
//! The first version of a series is its **key**: those after it are encoded against it, and it against none, so decoding
//! follows one step. After [`MAX_LATER_VERSIONS`] the next one becomes the key, because versions grow apart.
//!
//! All of it is in memory, bounded, and says only what may be worth a try: without it, after a restart, a version is stored by itself.
use forebay_proto::{Fid, LogId};
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Versions that are encoded against one key.
const MAX_LATER_VERSIONS: u32 = 8;
/// Parts of a version whose places are kept; of one that is written in more, none are.
const MAX_PARTS: usize = 1 << 16;
/// Series that are kept.
const KEPT_SERIES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// Logs that are kept.
const KEPT_LOGS: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

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

/// A series: its key, and how many versions came after it.
struct Series {
    key: Fid,
    parts: PlacedParts,
    last: Fid,
    later: u32,
}

/// A log of a version.
struct VersionLog {
    series: SeriesId,
    fid: Fid,
    /// Where in the file its bytes are; not kept of the key.
    offsets: PlacedParts,
}

struct SeriesState {
    series: LruCache<SeriesId, Series>,
    logs: LruCache<LogId, VersionLog>,
}

/// See the head of this file. Shared by threads.
pub struct SeriesTable(Mutex<SeriesState>);

/// Bytes of the key at some place; `None`: it has none there.
pub struct KeyPart {
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
        }))
    }
}

impl SeriesTable {
    /// A log is made for a file of a series.
    pub fn add_log(&self, log: LogId, fid: Fid, series: SeriesId) {
        let mut state = self.0.lock();
        let key = || Series {
            key: fid,
            parts: PlacedParts::default(),
            last: fid,
            later: 0,
        };
        let known = state.series.get_or_insert_mut(series, key);
        if known.last != fid && known.key != fid {
            known.last = fid;
            known.later += 1;
            if known.later > MAX_LATER_VERSIONS {
                *known = key();
            }
        }
        let version = VersionLog {
            series,
            fid,
            offsets: PlacedParts::default(),
        };
        state.logs.put(log, version);
    }

    /// Bytes were appended to a log at `addr`, which are in its file from `offset` on.
    pub fn appended(&self, log: LogId, addr: u64, offset: u64, len: u64) {
        let mut state = self.0.lock();
        let SeriesState { series, logs } = &mut *state;
        let Some(version) = logs.peek_mut(&log) else {
            return;
        };
        match series.peek_mut(&version.series) {
            Some(series) if series.key == version.fid => {
                let at = addr;
                series.parts.put(offset, PlacedPart { len, log, at });
            }
            _ => {
                let at = offset;
                version.offsets.put(addr, PlacedPart { len, log, at });
            }
        }
    }

    /// Whether a log's bytes may be encoded against earlier ones.
    pub fn has_key(&self, log: LogId) -> bool {
        let state = self.0.lock();
        let version = state.logs.peek(&log);
        version.is_some_and(|version| {
            let series = state.series.peek(&version.series);
            series.is_some_and(|series| series.key != version.fid)
        })
    }

    /// Where the key has its bytes at the places of these of a log. `None`: it has none of them.
    pub fn key_parts(&self, log: LogId, addresses: Range<u64>) -> Option<Vec<KeyPart>> {
        let state = self.0.lock();
        let version = state.logs.peek(&log)?;
        let series = state.series.peek(&version.series)?;
        if series.key == version.fid {
            return None;
        }
        let mut found = Vec::new();
        for (len, place) in version.offsets.over(addresses) {
            match place {
                None => found.push(KeyPart { len, place: None }),
                Some((_, offset)) => {
                    let parts = series.parts.over(offset..offset + len).into_iter();
                    found.extend(parts.map(|(len, place)| KeyPart { len, place }));
                }
            }
        }
        found
            .iter()
            .any(|part| part.place.is_some())
            .then_some(found)
    }

    /// The key of a log's series is gone: the version of this log becomes the key.
    pub fn replace_key(&self, log: LogId) {
        let mut state = self.0.lock();
        let SeriesState { series, logs } = &mut *state;
        let version = logs.peek(&log).map(|version| (version.series, version.fid));
        let Some((id, fid)) = version else { return };
        let Some(series) = series.peek_mut(&id).filter(|series| series.key != fid) else {
            return;
        };
        let mut parts = PlacedParts::default();
        for (_, version) in logs
            .iter_mut()
            .filter(|(_, v)| v.series == id && v.fid == fid)
        {
            let offsets = std::mem::take(&mut version.offsets);
            parts.is_full |= offsets.is_full;
            for (addr, PlacedPart { len, log, at }) in offsets.parts {
                parts.put(at, PlacedPart { len, log, at: addr });
            }
        }
        *series = Series {
            key: fid,
            parts,
            last: fid,
            later: 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERIES: SeriesId = SeriesId(7);

    fn places(table: &SeriesTable, log: LogId, addresses: Range<u64>) -> Vec<Option<(LogId, u64)>> {
        let parts = table.key_parts(log, addresses).unwrap_or_default();
        let places = parts.into_iter().flat_map(|part| {
            (0..part.len).map(move |i| part.place.map(|(log, addr)| (log, addr + i)))
        });
        places.collect()
    }

    proptest! {
        #[test]
        fn bytes_at_the_same_place_of_two_versions_are_found(
            key in prop::collection::vec((0u64..200, 1u64..40), 1..30),
            later in prop::collection::vec((0u64..200, 1u64..40), 1..30),
        ) {
            let table = SeriesTable::default();
            table.add_log(1, Fid(10), SERIES);
            table.add_log(2, Fid(10), SERIES);
            table.add_log(3, Fid(11), SERIES);
            let (mut ends, mut in_key) = ([0; 3], [None; 300]);
            for (i, (offset, len)) in key.into_iter().enumerate() {
                let log = 1 + i as u64 % 2;
                let addr = ends[log as usize];
                table.appended(log, addr, offset, len);
                (0..len).for_each(|i| in_key[(offset + i) as usize] = Some((log, addr + i)));
                ends[log as usize] += len;
            }
            let mut wanted = Vec::new();
            for (offset, len) in later {
                table.appended(3, wanted.len() as u64, offset, len);
                wanted.extend((0..len).map(|i| in_key[(offset + i) as usize]));
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
    fn a_key_has_some_versions_and_then_another_one_is() {
        let table = SeriesTable::default();
        let version = |n: u64| {
            table.add_log(n, Fid(n), SERIES);
            table.appended(n, 0, 0, 100);
            places(&table, n, 0..1)
        };
        assert!(version(1).is_empty() && !table.has_key(1));
        for n in 2..2 + u64::from(MAX_LATER_VERSIONS) {
            assert_eq!(version(n), [Some((1, 0))]);
            assert!(table.has_key(n));
        }
        assert!(version(50).is_empty());
        assert_eq!(version(51), [Some((50, 0))]);
        table.replace_key(51);
        assert_eq!(version(52), [Some((51, 0))]);
        table.replace_key(51);
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
        assert!(table.key_parts(2, 0..10).is_none());
    }
}
