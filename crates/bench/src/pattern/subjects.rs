//! The subjects: each makes an index of the same extents.

use super::cases::FileLogs;
use super::published::{self, Global, Local, LogLocation};
use crate::fail::{Context, Result};
use crate::report::{Spread, Values};
use forebay_pattern::{Element, Folder, LogSource, MapLookup, PatternMap, Patterns, Segment};
use forebay_testkit::random::Random;
use std::hint::black_box;
use std::time::Instant;

/// Bytes of a raw entry.
const ENTRY: usize = 48;
/// Offsets looked up in one timed batch, and batches: fewer, but some, if they take longer than [`MAX_SECONDS`] seconds in all.
const BATCH: usize = 64;
const BATCHES: usize = 301;
const MIN_BATCHES: usize = 3;
const MAX_SECONDS: f64 = 1.0;
/// Pieces resolved at a time.
const PIECES_AT_ONCE: usize = 4096;

/// A way to index: its name, and what does it once.
pub type Subject = (&'static str, fn(&[FileLogs]) -> Result<Values>);

/// The subjects of `pattern`.
pub const SUBJECTS: [Subject; 4] = [
    ("forebay", forebay),
    ("published", published),
    ("raw", raw),
    ("zstd", zstd),
];

fn count(files: &[FileLogs]) -> f64 {
    let logs = files.iter().flatten();
    logs.map(|(_, log)| log.len()).sum::<usize>() as f64
}

fn forebay(files: &[FileLogs]) -> Result<Values> {
    let (mut maps, mut encoded, mut merged, mut seconds) = (Vec::new(), 0, 0, 0.0);
    for file in files {
        let mut segments = Vec::new();
        for (log, extents) in file {
            let source = LogSource {
                member: 0,
                log: *log,
            };
            let start = Instant::now();
            let mut folder = Folder::joining();
            for e in extents {
                folder.push_at(e.offset, e.len, e.addr)?;
            }
            let found = folder.finish();
            seconds += start.elapsed().as_secs_f64();
            segments.extend(found.into_iter().map(|p| Segment::new(source, 1, p)));
        }
        encoded += segments.iter().map(|s| s.encoded().len()).sum::<usize>();
        let patterns = Patterns::merged(segments);
        merged += patterns.encoded().len();
        maps.push(patterns.map());
    }
    let memory = maps.iter().map(PatternMap::memory).sum::<usize>();
    let resolve = resolve(&maps);
    let lookup = lookup(files, |file, offset| {
        matches!(maps[file].lookup(offset), MapLookup::Data(_))
    });
    Ok(vec![
        ("encoded_bytes", "B", encoded as f64),
        ("merged_bytes", "B", merged as f64),
        ("memory_bytes", "B", memory as f64),
        ("discover_per_s", "1/s", count(files) / seconds),
        ("lookup_ns", "ns", lookup),
        ("resolve_ns", "ns", resolve),
    ])
}

fn published(files: &[FileLogs]) -> Result<Values> {
    let (mut indexes, mut encoded, mut merged, mut seconds) = (Vec::new(), 0, 0, 0.0);
    for file in files {
        let mut locals = Vec::new();
        for (log, extents) in file {
            let start = Instant::now();
            locals.extend(published::entries(*log, extents.iter().copied()));
            seconds += start.elapsed().as_secs_f64();
        }
        encoded += locals.iter().map(Local::bytes).sum::<usize>();
        let (globals, rest) = published::merge(locals);
        merged += globals.iter().map(Global::bytes).sum::<usize>();
        merged += rest.iter().map(Local::bytes).sum::<usize>();
        indexes.push((globals, rest));
    }
    let lookup = lookup(files, |file, offset| {
        let (globals, rest) = &indexes[file];
        newest(globals, |g| g.logical.init, |g| g.lookup(offset), offset)
            || newest(rest, |l| l.logical.init, |l| l.lookup(offset), offset)
    });
    Ok(vec![
        ("encoded_bytes", "B", encoded as f64),
        ("merged_bytes", "B", merged as f64),
        ("discover_per_s", "1/s", count(files) / seconds),
        ("lookup_ns", "ns", lookup),
    ])
}

/// Searches entries that are sorted by first offset, from the last that can hold `offset` on down.
fn newest<T>(
    entries: &[T],
    init: impl Fn(&T) -> u64,
    find: impl Fn(&T) -> Option<LogLocation>,
    offset: u64,
) -> bool {
    let above = entries.partition_point(|e| init(e) <= offset);
    entries[..above].iter().rev().any(|e| find(e).is_some())
}

fn raw(files: &[FileLogs]) -> Result<Values> {
    let bytes = count(files) * ENTRY as f64;
    let sorted: Vec<Vec<Element>> = files
        .iter()
        .map(|file| {
            let logs = file.iter().flat_map(|(_, log)| log.iter().copied());
            let mut all: Vec<Element> = logs.collect();
            all.sort_by_key(|e| e.offset);
            all
        })
        .collect();
    let lookup = lookup(files, |file, offset| {
        let above = sorted[file].partition_point(|e| e.offset <= offset);
        above > 0 && sorted[file][above - 1].offset <= offset
    });
    Ok(vec![
        ("encoded_bytes", "B", bytes),
        ("merged_bytes", "B", bytes),
        ("memory_bytes", "B", bytes),
        ("lookup_ns", "ns", lookup),
    ])
}

fn zstd(files: &[FileLogs]) -> Result<Values> {
    let (mut encoded, mut seconds) = (0, 0.0);
    for (log, extents) in files.iter().flatten() {
        let mut entries = Vec::with_capacity(extents.len() * ENTRY);
        for e in extents {
            // Offset, length, address, log, and two times, which are not given here.
            for field in [e.offset, e.len, e.addr, *log, 0, 0] {
                entries.extend(field.to_le_bytes());
            }
        }
        let start = Instant::now();
        encoded += zstd::bulk::compress(&entries, 3).doing("zstd")?.len();
        seconds += start.elapsed().as_secs_f64();
    }
    Ok(vec![
        ("encoded_bytes", "B", encoded as f64),
        ("discover_per_s", "1/s", count(files) / seconds),
    ])
}

/// Time of a piece when all are gone through in order.
fn resolve(maps: &[PatternMap]) -> f64 {
    let (mut found, mut out) = (0, Vec::with_capacity(PIECES_AT_ONCE));
    let begin = Instant::now();
    for map in maps {
        let mut pieces = map.pieces(0..u64::MAX);
        loop {
            out.clear();
            let more = pieces.fill(PIECES_AT_ONCE, &mut out);
            found += black_box(&out).len();
            if !more || begin.elapsed().as_secs_f64() > MAX_SECONDS {
                break;
            }
        }
    }
    begin.elapsed().as_nanos() as f64 / found.max(1) as f64
}

/// Median time of a lookup of a byte that some extent holds.
fn lookup(files: &[FileLogs], find: impl Fn(usize, u64) -> bool) -> f64 {
    let mut random = Random::new(1);
    let mut below = move |n: usize| random.below(n as u64) as usize;
    let mut times = Vec::with_capacity(BATCHES);
    let begin = Instant::now();
    while times.len() < MIN_BATCHES
        || (times.len() < BATCHES && begin.elapsed().as_secs_f64() < MAX_SECONDS)
    {
        let file = below(files.len());
        let offsets: [u64; BATCH] = std::array::from_fn(|_| {
            let (_, log) = &files[file][below(files[file].len())];
            let e = log[below(log.len())];
            e.offset + below(e.len as usize) as u64
        });
        let start = Instant::now();
        let found = offsets.iter().filter(|o| find(file, black_box(**o)));
        black_box(found.count());
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    Spread::of(&times).median
}
