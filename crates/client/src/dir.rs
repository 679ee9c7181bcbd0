//! Listing a directory in batches, so that a directory of any size needs little memory.
use crate::Client;
use crate::client::bytes;
use crate::embedded::DirBatch;
use crate::error::{Result, WithPath};
use crate::link::{List, ListAfter};
use forebay_server::{Fid, Kind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What one request brings, at most: fits a packet of the link.
const BATCH_BYTES: u32 = 48 << 10;

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
    client: Client,
    dir: Fid,
    path: PathBuf,
    batch: std::vec::IntoIter<forebay_server::DirEntry>,
    /// No entry follows the batch.
    last: bool,
    after: Vec<u8>,
}

impl ReadDir {
    pub(crate) fn begin(client: &Client, path: &Path) -> Result<ReadDir> {
        let first = client.call(List {
            path: bytes(path),
            bytes: BATCH_BYTES,
        });
        let DirBatch { dir, entries, last } = first.at("list", path)?;
        Ok(ReadDir {
            client: client.clone(),
            dir,
            path: path.to_path_buf(),
            batch: entries.into_iter(),
            last,
            after: Vec::new(),
        })
    }

    fn fetch(&mut self) -> Result<()> {
        let next = self.client.call(ListAfter {
            path: &self.after,
            dir: self.dir,
            bytes: BATCH_BYTES,
        });
        let next = next.at("list", &self.path)?;
        self.last = next.last || next.entries.is_empty();
        self.batch = next.entries.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.batch.as_slice().is_empty()
            && !self.last
            && let Err(e) = self.fetch()
        {
            self.last = true;
            return Some(Err(e));
        }
        let entry = self.batch.next()?;
        if self.batch.as_slice().is_empty() {
            self.after.clone_from(&entry.name);
        }
        Some(Ok(DirEntry {
            dir: self.path.clone(),
            name: OsString::from_vec(entry.name),
            ino: entry.fid.0,
            kind: entry.kind,
        }))
    }
}
