//! Which files are versions of one thing, by their paths: the checkpoints of a run differ in a number.
//!
//! The series of a file is its path without the digits that count versions: the longest run of digits of the path, the last of equally
//! long ones. So `step_000100/rank_7.pt` is of one series with `step_000200/rank_7.pt`, and not with `rank_8.pt` beside it. A file that is to
//! be renamed counts by the name that it becomes. A wrong guess costs a try to encode against another file, never a byte.
//!
//! Known of files that this node has made or opened by name, as long as it is in memory.
use super::context::DelegateContext;
use crate::Fid;
use forebay_data::SeriesId;
use lru::LruCache;
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;

/// Files that are remembered.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

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
    pub fn note(&self, ctx: &DelegateContext, fid: Fid, parent: Fid, name: &[u8]) {
        let Some(known) = &self.known else { return };
        let Some(mut path) = ctx.directory_paths.path(ctx, parent) else {
            return;
        };
        path.push(name.to_vec());
        known.lock().put(fid, series_of(&path));
    }

    /// The series of a file, if that is known.
    pub fn of(&self, fid: Fid) -> Option<SeriesId> {
        self.known.as_ref()?.lock().get(&fid).copied()
    }
}

/// The series of a path, which is given in names.
fn series_of(path: &[Vec<u8>]) -> SeriesId {
    let path = path.join(&b'/');
    let (mut longest, mut at) = (0..0, 0);
    for run in path.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        let here = at..at + run.len();
        at = here.end;
        if run[0].is_ascii_digit() && here.len() >= longest.len() {
            longest = here;
        }
    }
    let mut hasher = DefaultHasher::new();
    path[..longest.start].hash(&mut hasher);
    path[longest.end..].hash(&mut hasher);
    SeriesId(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(path: &str) -> SeriesId {
        let names: Vec<Vec<u8>> = path
            .split('/')
            .map(|name| name.as_bytes().to_vec())
            .collect();
        series_of(&names)
    }

    #[test]
    fn versions_differ_in_the_longest_number() {
        for (one, other) in [
            ("run/ckpt_9.pt", "run/ckpt_10.pt"),
            ("run/rank3_step100.pt", "run/rank3_step101.pt"),
            ("run/step100_rank3.pt", "run/step200_rank3.pt"),
            ("step_000100/__3_0.distcp", "step_000200/__3_0.distcp"),
            ("last.pt", "last.pt"),
        ] {
            assert_eq!(series(one), series(other), "{one} {other}");
        }
        for (one, other) in [
            ("run/ckpt_9.pt", "other/ckpt_9.pt"),
            ("step_000100/__3_0.distcp", "step_000100/__4_0.distcp"),
            ("a/b.pt", "ab.pt"),
        ] {
            assert_ne!(series(one), series(other), "{one} {other}");
        }
    }
}
