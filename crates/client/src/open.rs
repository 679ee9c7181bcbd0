//! Opening files: the builder, and the steps of an open that may create.
use crate::error::{Result, WithPath};
use crate::path::{MAX_LINKS, PathWalk, walk};
use crate::{Client, File};
use forebay_server::delegate::OpenedFile;
use forebay_server::{Attr, Fid, Kind, OpenFlags};
use rustix::io::Errno;
use std::path::Path;

/// Refuses what the library cannot open, as the mount would: it has no devices, FIFOs or sockets of its own.
fn check_opens(kind: Kind) -> forebay_server::Result<()> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(Errno::ISDIR.into()),
        Kind::Symlink => Err(Errno::LOOP.into()),
        Kind::Fifo | Kind::Socket => Err(Errno::NXIO.into()),
        // As on a mount, which is `nodev`.
        Kind::CharDevice | Kind::BlockDevice => Err(Errno::ACCESS.into()),
    }
}

/// The steps of an open that may create a file, and with `create_new` must. `walk` is told whether a link as the last name is
/// followed. `make` gives `None` if somebody made a link or a directory of this name meanwhile. A name that changes between two
/// steps is looked for again, so that an open with `create` never answers ENOENT because of such a race.
pub(crate) fn open_or_create<T>(
    (create, create_new): (bool, bool),
    walk: impl Fn(bool) -> forebay_server::Result<PathWalk>,
    open: impl Fn(&Attr) -> forebay_server::Result<T>,
    make: impl Fn(Fid, &[u8]) -> forebay_server::Result<Option<T>>,
) -> forebay_server::Result<T> {
    for _ in 0..MAX_LINKS {
        let walked = walk(!create_new)?;
        let opened = match &walked.found {
            Some(_) if create_new => return Err(Errno::EXIST.into()),
            Some(attr) => {
                check_opens(attr.kind)?;
                open(attr).map(Some)
            }
            None if !create && !create_new => return Err(Errno::NOENT.into()),
            None if walked.slash => return Err(Errno::ISDIR.into()),
            None => {
                let (parent, name) = walked.entry(Errno::ISDIR)?;
                make(parent, &name)
            }
        };
        match opened {
            Ok(None) => {}
            Err(e) if create && matches!(e.errno(), Errno::NOENT | Errno::STALE) => {}
            Ok(Some(opened)) => return Ok(opened),
            Err(e) => return Err(e),
        }
    }
    Err(Errno::LOOP.into())
}

/// Options of an open; starts with everything off, as `std::fs::OpenOptions` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) flags: OpenFlags,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) mode: u32,
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
        if self.flags.truncate && !opened.made {
            client.delegate.kernel_pages.refresh_kernel(opened.attr.fid);
        }
        Ok(File::new(client, opened, self.flags, path))
    }

    /// What a handle opened so may do, whatever happens to the file at the open.
    pub fn handle_flags(&self) -> OpenFlags {
        OpenFlags {
            write: self.flags.write || self.flags.append,
            truncate: false,
            ..self.flags
        }
    }

    /// All but the mode as bits, from the lowest: read, write, append, truncate, create, create_new.
    pub(crate) fn bits(&self) -> u32 {
        let flags = &self.flags;
        let opens = [flags.read, flags.write, flags.append, flags.truncate];
        let all = opens.into_iter().chain([self.create, self.create_new]);
        all.zip(0..).map(|(on, bit)| u32::from(on) << bit).sum()
    }

    /// The options that [`OpenOptions::bits`] gave, with the permission bits of a new file.
    pub(crate) fn from_bits(bits: u32, mode: u32) -> OpenOptions {
        let [read, write, append, truncate, create, create_new] =
            [0, 1, 2, 3, 4, 5].map(|bit| bits >> bit & 1 == 1);
        OpenOptions {
            flags: OpenFlags {
                read,
                write,
                append,
                truncate,
            },
            create,
            create_new,
            mode: mode & 0o7777,
        }
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
        let (flags, delegate) = (self.effective()?, &client.delegate);
        open_or_create(
            (self.create, self.create_new),
            |follow| walk(delegate, path, follow),
            |attr| delegate.open(attr.fid, flags),
            |parent, name| {
                let (mode, new) = (self.mode, self.create_new);
                let opened = delegate.create(parent, name, mode, new, flags, client.caller)?;
                if opened.attr.kind == Kind::File {
                    return Ok(Some(opened));
                }
                delegate.release(opened.handle)?;
                Ok(None)
            },
        )
    }
}
