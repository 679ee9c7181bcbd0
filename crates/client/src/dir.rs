//! Listing a directory in batches, so that a directory of any size needs little memory.
use crate::error::{Result, WithPath};
use forebay_server::{Delegate, Fid, Kind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries asked for at a time.
const NAMES_PER_REQUEST: u32 = 1024;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    dir: PathBuf,
    name: OsString,
    ino: u64,
    kind: Kind,
}

impl DirEntry {
    /// The name, without the directory.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }
    /// The directory's path joined with the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }
    /// The file id.
    pub fn ino(&self) -> u64 {
        self.ino
    }
    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// The entries of a directory in name order, without `.` and `..`.
pub struct ReadDir {
    delegate: Arc<Delegate>,
    fid: Fid,
    path: PathBuf,
    batch: std::vec::IntoIter<forebay_server::DirEntry>,
    after: Option<Vec<u8>>,
    done: bool,
}

impl ReadDir {
    pub(crate) fn new(delegate: Arc<Delegate>, fid: Fid, path: &Path) -> ReadDir {
        ReadDir {
            delegate,
            fid,
            path: path.to_path_buf(),
            batch: Vec::new().into_iter(),
            after: None,
            done: false,
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.batch.as_slice().is_empty() && !self.done {
            match self
                .delegate
                .names
                .readdir(self.fid, self.after.as_deref(), NAMES_PER_REQUEST)
                .at("list", &self.path)
            {
                Ok(entries) => {
                    self.done = entries.is_empty();
                    self.batch = entries.into_iter();
                }
                Err(e) => {
                    self.done = true;
                    return Some(Err(e));
                }
            }
        }
        let entry = self.batch.next()?;
        self.after = Some(entry.name.clone());
        Some(Ok(DirEntry {
            dir: self.path.clone(),
            name: OsString::from_vec(entry.name),
            ino: entry.fid.0,
            kind: entry.kind,
        }))
    }
}
