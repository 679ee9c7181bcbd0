//! What there is to do: a name to copy, or a piece of a large file.
use super::hash::Hash;
use super::tree::{Place, Stat};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What temporary names begin with.
pub const TEMPORARY: &str = ".forebay-stage-";

/// A directory of the source and the one it becomes.
#[derive(Debug)]
pub struct Folder {
    /// In the source.
    pub from: Place,
    /// In the target.
    pub to: Place,
    /// Path of the first, for messages.
    pub from_path: PathBuf,
    /// Path of the second.
    pub to_path: PathBuf,
}

/// A piece of a large file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which one, from 0.
    pub index: u64,
    /// Its bytes.
    pub range: Range<u64>,
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Task {
    /// Where it is and goes.
    pub folder: Arc<Folder>,
    /// Its name in the source.
    pub name: OsString,
    /// Its name in the target.
    pub target: OsString,
    /// The object.
    pub from: Place,
    /// As the walk saw it.
    pub stat: Stat,
    /// A hash of the target's path.
    pub key: u64,
    /// Only this much of it.
    pub piece: Option<Piece>,
}

/// A further name of a file.
#[derive(Debug)]
pub struct Link {
    /// The name to make.
    pub task: Task,
    /// The directory in the target and the name there that the file is copied to.
    pub first: (Arc<Folder>, OsString),
}

impl Task {
    /// A whole object.
    pub fn new(
        folder: &Arc<Folder>,
        name: OsString,
        target: OsString,
        from: Place,
        stat: Stat,
    ) -> Task {
        let path = Hash::new(0).add(folder.to_path.as_os_str().as_bytes());
        let key = path.add(b"/").add(target.as_bytes()).end();
        Task {
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

    /// Names it, and the piece, in the journal.
    pub fn record(&self) -> u64 {
        match &self.piece {
            Some(piece) => Hash::new(self.key).number(piece.index).end(),
            None => self.key,
        }
    }

    /// Names a large file of which an earlier run has finished a piece, and the rest: the copy that has its name is whole.
    pub fn finished(&self) -> u64 {
        Hash::new(self.key).number(u64::MAX).end()
    }

    /// The name it has in the target until it is whole. Pieces of a changed source go to another one.
    pub fn temporary(&self, job: u64, large: bool) -> OsString {
        let number = match large {
            true => Hash::new(self.key).number(stamp(&self.stat)).end(),
            false => self.key,
        };
        format!("{TEMPORARY}{job:016x}-{number:016x}").into()
    }
}

/// Of a source's content and attributes: another one means that it changed.
pub fn stamp(stat: &Stat) -> u64 {
    let time = |h: Hash, t: forebay_server::Time| h.number(t.secs as u64).number(t.nanos.into());
    let hash = Hash::new(1).number(stat.size).number(stat.id.1);
    time(time(hash, stat.mtime), stat.ctime).end()
}

/// Whether a name may be a temporary one of this job.
pub fn is_temporary(name: &OsStr, job: u64) -> bool {
    name.as_bytes()
        .starts_with(format!("{TEMPORARY}{job:016x}-").as_bytes())
}
