//! Opening files: the builder.
use crate::client::Backend;
use crate::error::{Result, WithPath};
use crate::file::FileBackend;
use crate::link::CallError;
use crate::{Client, File};
use forebay_server::OpenFlags;
use rustix::io::Errno;
use std::path::Path;

/// Options of an open; starts with everything off, as `std::fs::OpenOptions` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) flags: OpenFlags,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) temporary: bool,
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
            temporary: false,
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
    /// The file's name is removed when the file is closed, or when the process ends, however it ends, unless the file was renamed before.
    /// Needs [`OpenOptions::create_new`]. What a server's crash leaves stays.
    pub fn temporary(&mut self, on: bool) -> &mut Self {
        self.temporary = on;
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
        let opened = match &client.backend {
            Backend::Embedded(client) => client
                .open(path, self)
                .map(FileBackend::Embedded)
                .map_err(CallError::from),
            Backend::Link(client) => client.open(path, self).map(FileBackend::Link),
        };
        Ok(File::new(opened.at("open", path)?, self.flags, path))
    }

    /// What a handle opened so may do, whatever happens to the file at the open.
    pub fn handle_flags(&self) -> OpenFlags {
        OpenFlags {
            write: self.flags.write || self.flags.append,
            truncate: false,
            ..self.flags
        }
    }

    /// All but the mode as bits, from the lowest: read, write, append, truncate, create, create_new, temporary.
    pub(crate) fn bits(&self) -> u32 {
        let flags = &self.flags;
        let opens = [flags.read, flags.write, flags.append, flags.truncate];
        let creates = [self.create, self.create_new, self.temporary];
        let all = opens.into_iter().chain(creates);
        all.zip(0..).map(|(on, bit)| u32::from(on) << bit).sum()
    }

    /// The options that [`OpenOptions::bits`] gave, with the permission bits of a new file.
    pub(crate) fn from_bits(bits: u32, mode: u32) -> OpenOptions {
        let [read, write, append, truncate, create, create_new, temporary] =
            [0, 1, 2, 3, 4, 5, 6].map(|bit| bits >> bit & 1 == 1);
        OpenOptions {
            flags: OpenFlags {
                read,
                write,
                append,
                truncate,
            },
            create,
            create_new,
            temporary,
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
        let may_be_temporary = !self.temporary || self.create_new;
        match opens && may_create && may_truncate && may_be_temporary {
            true => Ok(flags),
            false => Err(Errno::INVAL.into()),
        }
    }
}
