//! Which files are versions of one thing, by their paths: the checkpoints of a run differ in a number.
//!
//! The series of a file is its path without the number that counts versions. That is the number after a word for a step of a run
//! ([`STEP_WORDS`]), wherever it is in the path; without such a word the longest run of digits in the file's name, or else in the nearest
//! directory that has one, and the last of equally long ones. So `step_000100/rank_7.pt` is of one series with `step_000200/rank_7.pt`, and not
//! with `rank_8.pt` beside it. A file that is to be renamed counts by the name that it becomes. A wrong guess costs a try to encode against
//! another file, never a byte.
//!
//! Known of files that this node has made, or opened with leave to make them, as long as it is in memory. Nobody is asked: of a directory whose
//! place is not known, the path begins there.
use super::directory_paths::DirectoryPaths;
use crate::Fid;
use forebay_data::SeriesId;
use lru::LruCache;
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::ops::Range;

/// Files that are remembered.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();
/// Words that a number follows which counts steps, in lower case: of training and of simulations.
const STEP_WORDS: [&str; 14] = [
    "step",
    "steps",
    "iter",
    "iteration",
    "epoch",
    "ckpt",
    "checkpoint",
    "cycle",
    "time",
    "restart",
    "dump",
    "plt",
    "chk",
    "snapshot",
];

/// See the head of this file.
pub(super) struct FileSeries {
    /// `None`: nobody will ask.
    known: Option<Mutex<LruCache<Fid, SeriesId>>>,
}

impl FileSeries {
    /// Knows nothing yet. `kept`: it will be asked.
    pub fn new(kept: bool) -> FileSeries {
        FileSeries {
            known: kept.then(|| Mutex::new(LruCache::new(MAX_KNOWN))),
        }
    }

    /// A file has, or will have, this name in this directory.
    pub fn note(&self, directories: &DirectoryPaths, fid: Fid, parent: Fid, name: &[u8]) {
        let Some(known) = &self.known else { return };
        let (top, mut path) = directories.known_path(parent);
        path.push(name.to_vec());
        known.lock().put(fid, series_of(top, &path));
    }

    /// The series of a file, if that is known.
    pub fn of(&self, fid: Fid) -> Option<SeriesId> {
        self.known.as_ref()?.lock().get(&fid).copied()
    }
}

/// The series of a path below a directory, which is given in names.
fn series_of(top: Fid, path: &[Vec<u8>]) -> SeriesId {
    let path = path.join(&b'/');
    let mut hasher = DefaultHasher::new();
    top.0.hash(&mut hasher);
    let mut at = 0;
    for number in version_numbers(&path) {
        path[at..number.start].hash(&mut hasher);
        at = number.end;
    }
    path[at..].hash(&mut hasher);
    SeriesId(hasher.finish())
}

/// Where a path has the numbers that count versions.
fn version_numbers(path: &[u8]) -> Vec<Range<usize>> {
    let (mut numbers, mut at) = (Vec::new(), 0);
    for run in path.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        let here = at..at + run.len();
        at = here.end;
        if run[0].is_ascii_digit() {
            numbers.push(here);
        }
    }
    let of_steps = numbers
        .iter()
        .filter(|n| follows_step_word(&path[..n.start]));
    let of_steps = of_steps.map(|n| n.start..end_of_decimals(path, n.end));
    let of_steps: Vec<Range<usize>> = of_steps.collect();
    if !of_steps.is_empty() {
        return of_steps;
    }
    // In the last component that has one.
    let last = numbers.last().map_or(0, |last| last.start);
    let component = path[..last].iter().rposition(|b| *b == b'/');
    let from = component.map_or(0, |slash| slash + 1);
    let near = numbers.into_iter().filter(|n| n.start >= from);
    near.max_by_key(Range::len).into_iter().collect()
}

/// Where a number ends that ends at `end` but for its decimals: what follows a point, if it is digits alone.
fn end_of_decimals(path: &[u8], end: usize) -> usize {
    let Some((b'.', behind)) = path[end..].split_first() else {
        return end;
    };
    let digits = behind.iter().take_while(|b| b.is_ascii_digit()).count();
    match behind.get(digits) {
        Some(b) if b.is_ascii_alphanumeric() => end,
        _ if digits > 0 => end + 1 + digits,
        _ => end,
    }
}

/// Whether these bytes end with a word for a step, and perhaps what separates it from its number.
fn follows_step_word(before: &[u8]) -> bool {
    let is_separator = |b: &u8| b"_-.= ".contains(b);
    let end = before.iter().rposition(|b| !is_separator(b));
    let word = &before[..end.map_or(0, |last| last + 1)];
    let letters = word
        .iter()
        .rev()
        .take_while(|b| b.is_ascii_alphabetic())
        .count();
    let word = word[word.len() - letters..].to_ascii_lowercase();
    STEP_WORDS.iter().any(|step| word == step.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(path: &str) -> SeriesId {
        let names = path.split('/').map(|name| name.as_bytes().to_vec());
        series_of(Fid(1), &names.collect::<Vec<_>>())
    }

    #[test]
    fn versions_differ_in_the_number_of_a_step_or_else_in_the_longest_near_one() {
        for (one, other) in [
            ("run/ckpt_9.pt", "run/ckpt_10.pt"),
            ("run/rank0003_step100.pt", "run/rank0003_step101.pt"),
            (
                "job_48172630/step_000100/__3_0.distcp",
                "job_48172630/step_000200/__3_0.distcp",
            ),
            (
                "checkpoint-500/model-00001-of-00030.safetensors",
                "checkpoint-1000/model-00001-of-00030.safetensors",
            ),
            (
                "checkpoint-500/global_step500/mp_rank_00.pt",
                "checkpoint-600/global_step600/mp_rank_00.pt",
            ),
            (
                "plt00100/Level_0/Cell_D_00000",
                "plt00200/Level_0/Cell_D_00000",
            ),
            ("20251129/out.0100.nc", "20251129/out.0200.nc"),
            ("out_time_0.50.h5", "out_time_12.75.h5"),
            ("run7/a/data", "run8/a/data"),
            ("last.pt", "last.pt"),
        ] {
            assert_eq!(series(one), series(other), "{one} {other}");
        }
        for (one, other) in [
            ("run/ckpt_9.pt", "other/ckpt_9.pt"),
            ("step_000100/__3_0.distcp", "step_000100/__4_0.distcp"),
            (
                "checkpoint-500/model-00001-of-00030.safetensors",
                "checkpoint-500/model-00002-of-00030.safetensors",
            ),
            ("run7/out.0100.nc", "run8/out.0100.nc"),
            ("a/b.pt", "ab.pt"),
        ] {
            assert_ne!(series(one), series(other), "{one} {other}");
        }
        assert_ne!(
            series_of(Fid(1), &[b"a".to_vec()]),
            series_of(Fid(2), &[b"a".to_vec()])
        );
    }
}
