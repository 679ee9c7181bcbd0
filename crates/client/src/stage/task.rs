//! Tasks: a name to copy, or a piece of a large file; and which node copies it.
use super::endpoint::{ObjectRef, ObjectStat};
use super::hash::StableHash;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What temporary names begin with.
pub const TEMPORARY: &str = ".forebay-stage-";

/// A directory of the source and the one it becomes.
#[derive(Debug)]
pub struct DirectoryPair {
    /// In the source.
    pub from: ObjectRef,
    /// In the target.
    pub to: ObjectRef,
    /// Path of the first, for messages.
    pub from_path: PathBuf,
    /// Path of the second.
    pub to_path: PathBuf,
}

/// A piece of a large file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePiece {
    /// Which one, from 0.
    pub index: u64,
    /// Its bytes.
    pub range: Range<u64>,
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct CopyTask {
    /// Where it is and goes.
    pub folder: Arc<DirectoryPair>,
    /// Its name in the source.
    pub name: OsString,
    /// Its name in the target.
    pub target: OsString,
    /// The object.
    pub from: ObjectRef,
    /// As the walk saw it.
    pub stat: ObjectStat,
    /// A hash of the target's path.
    pub key: u64,
    /// Only this much of it.
    pub piece: Option<FilePiece>,
}

/// A further name of a file.
#[derive(Debug)]
pub struct HardLink {
    /// The name to make.
    pub task: CopyTask,
    /// The directory in the target and the name there that the file is copied to.
    pub first: (Arc<DirectoryPair>, OsString),
}

impl CopyTask {
    /// A whole object.
    pub fn new(
        folder: &Arc<DirectoryPair>,
        name: OsString,
        target: OsString,
        from: ObjectRef,
        stat: ObjectStat,
    ) -> CopyTask {
        let path = StableHash::new(0).add(folder.to_path.as_os_str().as_bytes());
        let key = path.add(b"/").add(target.as_bytes()).finish();
        CopyTask {
            folder: folder.clone(),
            name,
            target,
            from,
            stat,
            key,
            piece: None,
        }
    }

    /// Its path in the source.
    pub fn source_path(&self) -> PathBuf {
        self.folder.from_path.join(&self.name)
    }

    /// Its path in the target.
    pub fn target_path(&self) -> PathBuf {
        self.folder.to_path.join(&self.target)
    }

    /// Its bytes: those of the piece, or all.
    pub fn range(&self) -> Range<u64> {
        let piece = self.piece.as_ref();
        piece.map_or(0..self.stat.size, |piece| piece.range.clone())
    }

    /// The node that copies it, the same in every process: the member that holds most of its bytes; of several that hold as much, and
    /// where nobody holds any, one by hash, so that equal work is spread evenly.
    pub fn node(&self, held: &BTreeMap<u16, u64>, nodes: u16) -> u16 {
        let most = held.values().copied().max().unwrap_or(0);
        let best = |n: &u16| most == 0 || held.get(n).is_some_and(|bytes| *bytes == most);
        let candidates: Vec<u16> = (0..nodes).filter(best).collect();
        // Neighbouring pieces go to neighbouring nodes.
        let piece = self.piece.as_ref().map_or(0, |piece| piece.index);
        let hash = (StableHash::new(2).number(self.key).finish() >> 1).wrapping_add(piece);
        match candidates.len() {
            0 => 0,
            n => candidates[(hash % n as u64) as usize],
        }
    }

    /// Names it, and the piece, in the journal.
    pub fn journal_key(&self) -> u64 {
        match &self.piece {
            Some(piece) => StableHash::new(self.key).number(piece.index).finish(),
            None => self.key,
        }
    }

    /// Names a large file of which an earlier run has finished a piece, and the rest: the copy that has its name is whole.
    pub fn finished_key(&self) -> u64 {
        StableHash::new(self.key).number(u64::MAX).finish()
    }

    /// The name it has in the target until it is whole. Pieces of a changed source go to another one.
    pub fn temporary(&self, job: u64, large: bool) -> OsString {
        let number = match large {
            true => StableHash::new(self.key)
                .number(source_stamp(&self.stat))
                .finish(),
            false => self.key,
        };
        format!("{TEMPORARY}{job:016x}-{number:016x}").into()
    }
}

/// Of a source's content and attributes: another one means that it changed.
pub fn source_stamp(stat: &ObjectStat) -> u64 {
    let time =
        |h: StableHash, t: forebay_server::Time| h.number(t.secs as u64).number(t.nanos.into());
    let hash = StableHash::new(1).number(stat.size).number(stat.id.1);
    time(time(hash, stat.mtime), stat.ctime).finish()
}

/// Whether a name may be a temporary one of this job.
pub fn is_temporary(name: &OsStr, job: u64) -> bool {
    name.as_bytes()
        .starts_with(format!("{TEMPORARY}{job:016x}-").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::{Kind, Time};

    fn task(name: &str) -> CopyTask {
        let place = || ObjectRef::Path("/x".into());
        let folder = Arc::new(DirectoryPair {
            from: place(),
            to: place(),
            from_path: "/x".into(),
            to_path: "/y".into(),
        });
        let stat = ObjectStat {
            kind: Kind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 1,
            stored: 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            id: (0, 0),
            created: None,
            xattrs: false,
            attr: None,
        };
        CopyTask::new(&folder, name.into(), name.into(), place(), stat)
    }

    #[test]
    fn the_member_with_most_bytes_copies_it_and_ties_are_spread() {
        let held = |pairs: &[(u16, u64)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(task("a").node(&held(&[(0, 5), (3, 9), (2, 8)]), 4), 3);
        let mut counts = [0; 4];
        for n in 0..400 {
            let tied = task(&n.to_string()).node(&held(&[(1, 9), (3, 9)]), 4);
            assert!(tied == 1 || tied == 3);
            counts[usize::from(task(&n.to_string()).node(&held(&[]), 4))] += 1;
        }
        assert!(counts.iter().all(|c| (60..140).contains(c)), "{counts:?}");
        // A member that is gone from the service holds nothing that could be copied by it.
        assert_eq!(task("a").node(&held(&[(9, 5)]), 1), 0);
    }
}
