//! The client of one node: every operation on names.
use crate::error::{Result, WithPath};
use crate::path::{brought_back, walk};
use crate::{File, Metadata, OpenOptions, ReadDir};
use forebay_server::delegate::FileDescription;
use forebay_server::{Attr, Caller, Delegate, Kind, NewInode, RenameFlags, SpaceTotals};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of the service, seen from one node. Cheap to clone; any thread may use it.
///
/// Paths start at the root of the file system (`/a/b`).
#[derive(Clone)]
pub struct Client {
    pub(crate) delegate: Arc<Delegate>,
    pub(crate) caller: Caller,
}

impl Client {
    /// A client of `delegate`'s node; new files belong to this process's user and group.
    pub fn new(delegate: Arc<Delegate>) -> Client {
        let caller = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        Client { delegate, caller }
    }

    /// The same client for another owner of new files.
    pub fn with_owner(&self, uid: u32, gid: u32) -> Client {
        Client {
            delegate: self.delegate.clone(),
            caller: Caller { uid, gid },
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing; creates it, or empties it.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(self, path)
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// As [`OpenOptions::open`] and [`File::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut file = self.open(&path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO).into())
            .at("read", path.as_ref())?;
        Ok(content)
    }

    /// Replaces the content of a file and publishes it.
    ///
    /// # Errors
    /// As [`OpenOptions::open`], [`File::write_at`] and [`File::close`].
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.write_at(content, 0)?;
        file.close()
    }

    /// The attributes of a file; follows symbolic links.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `EIO`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr("stat", path.as_ref(), true).map(Metadata)
    }

    /// The attributes of a name; does not follow a symbolic link as the last name.
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr("stat", path.as_ref(), false).map(Metadata)
    }

    /// Whether a path names something that exists; errors count as no.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As [`Client::metadata`], and `ENOTDIR`. Reading an entry may fail with `EIO`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let attr = self.attr("list", path, true)?;
        if attr.kind != Kind::Dir {
            return Err(Errno::NOTDIR.into()).at("list", path);
        }
        Ok(ReadDir::new(self.delegate.clone(), attr.fid, path))
    }

    /// Makes a directory with mode `0o755`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the parent does not exist, `ENOTDIR`, `ENOSPC`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, kind) = (path.as_ref(), Kind::Dir);
        self.make("make directory", path, kind, 0o755, Vec::new())
    }

    /// Makes a directory and all its missing parents; one that exists already is fine.
    ///
    /// # Errors
    /// `EEXIST` if something else has the name, and those of [`Client::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_there = || self.metadata(path).is_ok_and(|m| m.is_dir());
        match self.create_dir(path) {
            Err(e) if e.errno() == Errno::NOENT => {
                let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
                self.create_dir_all(parent.ok_or(e)?)?;
                match self.create_dir(path) {
                    Err(e) if e.errno() == Errno::EXIST && is_there() => Ok(()),
                    done => done,
                }
            }
            // Made earlier, or by another node meanwhile.
            Err(_) if is_there() => Ok(()),
            done => done,
        }
    }

    /// Removes a name that is not a directory. The content stays until its last close.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EPERM` in a sticky directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().as_bytes().ends_with(b"/") {
            // A trailing slash names a directory.
            let dir = self.attr("remove", path, false)?.kind == Kind::Dir;
            let outcome = if dir { Errno::ISDIR } else { Errno::NOTDIR };
            return Err(outcome.into()).at("remove", path);
        }
        let (parent, name) = self.entry("remove", path, Errno::ISDIR)?;
        self.delegate
            .names
            .unlink(parent, &name, self.caller)
            .at("remove", path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (parent, name) = self.entry("remove directory", path, Errno::BUSY)?;
        self.delegate
            .names
            .rmdir(parent, &name, self.caller)
            .at("remove directory", path)?;
        self.delegate.kernel_pages.expire_name(parent, &name);
        Ok(())
    }

    /// Removes a directory with everything in it; does not follow symbolic links.
    ///
    /// # Errors
    /// As [`Client::remove_file`] and [`Client::remove_dir`]; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.attr("remove directory", path, false)?.kind != Kind::Dir {
            return self.remove_file(path);
        }
        for entry in self.read_dir(path)? {
            let entry = entry?;
            match entry.kind() {
                Kind::Dir => self.remove_dir_all(entry.path())?,
                _ => self.remove_file(entry.path())?,
            }
        }
        self.remove_dir(path)
    }

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EINVAL` for a directory moved into itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old, old_name) = self.entry("rename", from, Errno::BUSY)?;
        let (new, new_name) = self.entry("rename to", to, Errno::BUSY)?;
        let flags = RenameFlags::default();
        self.delegate
            .names
            .rename(old, &old_name, new, &new_name, flags, self.caller)
            .at("rename", from)?;
        for (parent, name) in [(old, &old_name), (new, &new_name)] {
            self.delegate.kernel_pages.expire_name(parent, name);
        }
        Ok(())
    }

    /// Makes the symbolic link `link` that says `target`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the link's directory does not exist or `target` is empty.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes().to_vec();
        if target.is_empty() {
            return Err(Errno::NOENT.into()).at("link", link.as_ref());
        }
        self.make("link", link.as_ref(), Kind::Symlink, 0o777, target)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `EINVAL` if it is not one, and those of [`Client::metadata`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let attr = self.attr("read link", path, false)?;
        if attr.kind != Kind::Symlink {
            return Err(Errno::INVAL.into()).at("read link", path);
        }
        let target = self
            .delegate
            .names
            .readlink(attr.fid)
            .at("read link", path)?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Gives the file `from` a second name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EPERM` for directories, `EMLINK`.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let attr = self.attr("link", from.as_ref(), false)?;
        let (parent, name) = self.entry("link to", to.as_ref(), Errno::EXIST)?;
        let linked = self.delegate.names.link(attr.fid, parent, &name);
        linked.map(drop).at("link", from.as_ref())
    }

    /// Where the committed bytes of a file are: its patterns, and what the index has.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EISDIR` or `EINVAL` for what is not a regular file.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<FileDescription> {
        let path = path.as_ref();
        let attr = self.attr("describe", path, true)?;
        self.delegate
            .locator
            .describe(attr.fid)
            .at("describe", path)
    }

    /// Room of the whole service.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer.
    pub fn space(&self) -> Result<SpaceTotals> {
        self.delegate.names.statfs().at("measure", Path::new("/"))
    }

    pub(crate) fn attr(&self, operation: &'static str, path: &Path, follow: bool) -> Result<Attr> {
        walk(&self.delegate, path, follow)
            .and_then(|walked| brought_back(&self.delegate, walked.file()?))
            .at(operation, path)
    }

    fn entry(
        &self,
        operation: &'static str,
        path: &Path,
        end: Errno,
    ) -> Result<(forebay_server::Fid, Vec<u8>)> {
        // A trailing slash would follow a link as the last name; these calls act on the name itself.
        let bytes = path.as_os_str().as_bytes();
        let last = bytes.iter().rposition(|b| *b != b'/');
        let trimmed = &bytes[..last.map_or(bytes.len(), |last| last + 1)];
        walk(&self.delegate, OsStr::from_bytes(trimmed).as_ref(), false)
            .and_then(|walked| walked.entry(end))
            .at(operation, path)
    }

    fn make(
        &self,
        operation: &'static str,
        path: &Path,
        kind: Kind,
        mode: u32,
        target: Vec<u8>,
    ) -> Result<()> {
        let (parent, name) = self.entry(operation, path, Errno::EXIST)?;
        let new = NewInode {
            target,
            ..NewInode::new(kind, mode)
        };
        let made = self.delegate.names.make(parent, &name, new, self.caller);
        made.map(drop).at(operation, path)
    }
}
