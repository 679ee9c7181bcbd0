//! The backend in the server's own process: each call is carried out by the delegate, in the caller's thread.
//!
//! The server's end of the link calls it too, so a call means the same however it came. Errors carry no path: whoever asked adds it.
mod file;
mod open;

pub use file::EmbeddedFile;
pub(crate) use file::FileLock;
pub(crate) use open::open_or_create;

use crate::path::{brought_back, walk};
use forebay_server::delegate::FileDescription;
use forebay_server::{
    Attr, Caller, Delegate, DirEntry, Fid, Kind, NewInode, RenameFlags, Result, SetAttr,
    SpaceTotals,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Entries of a directory asked for at a time.
const NAMES_PER_REQUEST: u32 = 1024;
/// What an entry takes in a message besides its name, at most.
const ENTRY_OVERHEAD_BYTES: usize = 24;

/// A client of a delegate of this process, for one owner of new files.
#[derive(Clone)]
pub struct EmbeddedClient {
    pub(crate) delegate: Arc<Delegate>,
    pub(crate) caller: Caller,
}

/// Some entries of a directory, in name order.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct DirBatch {
    pub dir: Fid,
    pub entries: Vec<DirEntry>,
    /// No entry follows.
    pub last: bool,
}

impl EmbeddedClient {
    /// A client of `delegate`'s node; new files belong to `caller`.
    pub fn new(delegate: Arc<Delegate>, caller: Caller) -> EmbeddedClient {
        EmbeddedClient { delegate, caller }
    }

    /// The attributes of a file, with all that programs of this node's mount have written to it.
    pub(crate) fn stat(&self, path: &Path, follow: bool) -> Result<Attr> {
        brought_back(&self.delegate, walk(&self.delegate, path, follow)?.file()?)
    }

    /// The first entries of a directory, of about `bytes` at most.
    pub(crate) fn list(&self, path: &Path, bytes: usize) -> Result<DirBatch> {
        let attr = self.stat(path, true)?;
        match attr.kind {
            Kind::Dir => self.list_after(attr.fid, None, bytes),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Those after a name.
    pub(crate) fn list_after(
        &self,
        dir: Fid,
        after: Option<&[u8]>,
        bytes: usize,
    ) -> Result<DirBatch> {
        let names = &self.delegate.names;
        let mut entries = names.readdir(dir, after, NAMES_PER_REQUEST)?;
        let mut room = bytes;
        let fits = |entry: &&DirEntry| {
            let taken = entry.name.len() + ENTRY_OVERHEAD_BYTES;
            let fits = room >= taken;
            room = room.saturating_sub(taken);
            fits
        };
        let kept = entries.iter().take_while(fits).count();
        let cut = kept < entries.len();
        entries.truncate(kept.max(1));
        let last = match entries.last() {
            _ if cut => false,
            None => true,
            Some(_) if entries.len() >= NAMES_PER_REQUEST as usize => false,
            // A member may answer with fewer than asked for.
            Some(entry) => names.readdir(dir, Some(&entry.name), 1)?.is_empty(),
        };
        Ok(DirBatch { dir, entries, last })
    }

    /// Makes a directory, or a symbolic link to `target`.
    pub(crate) fn make(&self, path: &Path, kind: Kind, mode: u32, target: &[u8]) -> Result<()> {
        if kind == Kind::Symlink && target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let (parent, name) = self.entry(path, Errno::EXIST)?;
        let new = NewInode {
            target: target.to_vec(),
            ..NewInode::new(kind, mode)
        };
        let made = self.delegate.names.make(parent, &name, new, self.caller);
        made.map(drop)
    }

    pub(crate) fn remove_file(&self, path: &Path) -> Result<()> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // A trailing slash names a directory.
            let dir = self.stat(path, false)?.kind == Kind::Dir;
            return Err(if dir { Errno::ISDIR } else { Errno::NOTDIR }.into());
        }
        let (parent, name) = self.entry(path, Errno::ISDIR)?;
        self.delegate.names.unlink(parent, &name, self.caller)
    }

    pub(crate) fn remove_dir(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.entry(path, Errno::BUSY)?;
        self.delegate.names.rmdir(parent, &name, self.caller)?;
        self.delegate.kernel_pages.expire_name(parent, &name);
        Ok(())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, old_name) = self.entry(from, Errno::BUSY)?;
        let (new, new_name) = self.entry(to, Errno::BUSY)?;
        let flags = RenameFlags::default();
        self.delegate
            .names
            .rename(old, &old_name, new, &new_name, flags, self.caller)?;
        for (parent, name) in [(old, &old_name), (new, &new_name)] {
            self.delegate.kernel_pages.expire_name(parent, name);
        }
        Ok(())
    }

    /// What a symbolic link says.
    pub(crate) fn read_link(&self, path: &Path) -> Result<Vec<u8>> {
        let attr = self.stat(path, false)?;
        match attr.kind {
            Kind::Symlink => self.delegate.names.readlink(attr.fid),
            _ => Err(Errno::INVAL.into()),
        }
    }

    pub(crate) fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let attr = self.stat(from, false)?;
        let (parent, name) = self.entry(to, Errno::EXIST)?;
        self.delegate.names.link(attr.fid, parent, &name).map(drop)
    }

    pub(crate) fn describe(&self, path: &Path) -> Result<FileDescription> {
        self.delegate.locator.describe(self.stat(path, true)?.fid)
    }

    pub(crate) fn space(&self) -> Result<SpaceTotals> {
        self.delegate.names.statfs()
    }

    /// Sets attributes other than the size.
    pub(crate) fn set_attributes(&self, path: &Path, set: &SetAttr) -> Result<()> {
        let fid = self.stat(path, true)?.fid;
        let changed = self.delegate.names.setattr(fid, set, None, self.caller);
        self.delegate.kernel_pages.refresh_kernel(fid);
        changed.map(drop)
    }

    pub(crate) fn laminate(&self, path: &Path) -> Result<()> {
        let attr = self.stat(path, true)?;
        if self.caller.uid != 0 && self.caller.uid != attr.uid {
            return Err(Errno::PERM.into());
        }
        self.delegate.names.laminate(attr.fid)
    }

    pub(crate) fn xattr(&self, path: &Path, name: &[u8]) -> Result<Vec<u8>> {
        let fid = self.stat(path, true)?.fid;
        self.delegate.names.getxattr(fid, name)
    }

    pub(crate) fn set_xattr(&self, path: &Path, name: &[u8], value: &[u8]) -> Result<()> {
        let fid = self.stat(path, true)?.fid;
        self.delegate.names.setxattr(fid, name, value, false, false)
    }

    pub(crate) fn list_xattrs(&self, path: &Path) -> Result<Vec<Vec<u8>>> {
        let fid = self.stat(path, true)?.fid;
        self.delegate.names.listxattr(fid)
    }

    pub(crate) fn remove_xattr(&self, path: &Path, name: &[u8]) -> Result<()> {
        let fid = self.stat(path, true)?.fid;
        self.delegate.names.removexattr(fid, name)
    }

    fn entry(&self, path: &Path, end: Errno) -> Result<(Fid, Vec<u8>)> {
        // A trailing slash would follow a link as the last name; these calls act on the name itself.
        let bytes = path.as_os_str().as_bytes();
        let last = bytes.iter().rposition(|b| *b != b'/');
        let trimmed = &bytes[..last.map_or(bytes.len(), |last| last + 1)];
        walk(&self.delegate, OsStr::from_bytes(trimmed).as_ref(), false)?.entry(end)
    }
}
