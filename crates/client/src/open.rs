//! How a file is opened: the builder, and the steps of an open that may create.
use crate::error::{Result, WithPath};
use crate::path::{MAX_LINKS, walk};
use crate::{Client, File};
use forebay_server::delegate::OpenedFile;
use forebay_server::{Kind, OpenFlags};
use rustix::io::Errno;
use std::path::Path;

/// Refuses what the library cannot open, as the mount would: it has no devices, FIFOs or sockets of its own.
pub(crate) fn check_opens(kind: Kind) -> forebay_server::Result<()> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(Errno::ISDIR.into()),
        Kind::Symlink => Err(Errno::LOOP.into()),
        Kind::Fifo | Kind::Socket => Err(Errno::NXIO.into()),
        // As on a mount, which is `nodev`.
        Kind::CharDevice | Kind::BlockDevice => Err(Errno::ACCESS.into()),
    }
}

/// Options of an open; starts with everything off, as `std::fs::OpenOptions` does.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    flags: OpenFlags,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing asked yet; mode `0o644` for new files.
    pub fn new() -> OpenOptions {
        OpenOptions {
            flags: OpenFlags::default(),
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }
    /// Reading is allowed.
    pub fn read(&mut self, on: bool) -> &mut Self {
        self.flags.read = on;
        self
    }
    /// Writing is allowed.
    pub fn write(&mut self, on: bool) -> &mut Self {
        self.flags.write = on;
        self
    }
    /// Every write goes to the end of the file, whatever other nodes do meanwhile. Implies writing.
    pub fn append(&mut self, on: bool) -> &mut Self {
        self.flags.append = on;
        self
    }
    /// The file is emptied when it is opened; needs writing.
    pub fn truncate(&mut self, on: bool) -> &mut Self {
        self.flags.truncate = on;
        self
    }
    /// The file is created if it does not exist; needs writing.
    pub fn create(&mut self, on: bool) -> &mut Self {
        self.create = on;
        self
    }
    /// The file is created and must not exist, not even as a dangling link; needs writing.
    pub fn create_new(&mut self, on: bool) -> &mut Self {
        self.create_new = on;
        self
    }
    /// Permission bits of a new file; no umask is applied.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode & 0o7777;
        self
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// `EINVAL` for options that contradict each other, `ENOENT`, `EEXIST` (with [`OpenOptions::create_new`]),
    /// `EISDIR` for a directory, `ELOOP`, `ENXIO` for FIFOs and sockets (they work on a mount only), and for a laminated
    /// file opened for writing what the mount answers.
    pub fn open(&self, client: &Client, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let opened = self.steps(client, path).at("open", path)?;
        Ok(File::new(client, opened, self.flags, path))
    }

    /// What the handle may do, as asked.
    pub(crate) fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Whether the file is created, and must be.
    pub(crate) fn creates(&self) -> (bool, bool) {
        (self.create, self.create_new)
    }

    /// Permission bits of a new file.
    pub(crate) fn new_mode(&self) -> u32 {
        self.mode
    }

    /// The flags of the open; `EINVAL` if the options contradict each other.
    pub(crate) fn effective(&self) -> forebay_server::Result<OpenFlags> {
        let mut flags = self.flags;
        flags.write |= flags.append;
        let creates = self.create || self.create_new;
        let opens = flags.read || flags.write;
        let may_create = flags.write || !creates;
        let may_truncate = !flags.truncate || self.create_new || (flags.write && !flags.append);
        match opens && may_create && may_truncate {
            true => Ok(flags),
            false => Err(Errno::INVAL.into()),
        }
    }

    fn steps(&self, client: &Client, path: &Path) -> forebay_server::Result<OpenedFile> {
        let flags = self.effective()?;
        let creates = self.create || self.create_new;
        // A file that is removed between the walk and the open is looked for again, so that an open with `create`
        // never answers ENOENT because of such a race.
        for _ in 0..MAX_LINKS {
            let walked = walk(&client.delegate, path, !self.create_new)?;
            if let Some(attr) = &walked.found {
                if self.create_new {
                    return Err(Errno::EXIST.into());
                }
                check_opens(attr.kind)?;
                match client.delegate.open(attr.fid, flags) {
                    Err(e) if self.create && matches!(e.errno(), Errno::NOENT | Errno::STALE) => {
                        continue;
                    }
                    done => return done,
                }
            }
            if !creates {
                return Err(Errno::NOENT.into());
            }
            if walked.slash {
                return Err(Errno::ISDIR.into());
            }
            let (parent, name) = walked.entry(Errno::ISDIR)?;
            match client.delegate.create(
                parent,
                &name,
                self.mode,
                self.create_new,
                flags,
                client.caller,
            ) {
                // Another node made a link or a directory of this name meanwhile: walk again.
                Ok(opened) if opened.attr.kind != Kind::File => {
                    client.delegate.release(opened.handle)?;
                }
                done => return done,
            }
        }
        Err(Errno::LOOP.into())
    }
}
