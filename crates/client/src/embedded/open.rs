//! The steps of an open that may create.
use super::file::NameInDir;
use super::{EmbeddedClient, EmbeddedFile};
use crate::OpenOptions;
use crate::path::{MAX_LINKS, PathWalk, walk};
use forebay_server::delegate::OpenedFile;
use forebay_server::{Attr, Fid, Kind, OpenFlags, Result};
use rustix::io::Errno;
use std::path::Path;

/// Refuses what the library cannot open, as the mount would: it has no devices, FIFOs or sockets of its own.
fn check_opens(kind: Kind) -> Result<()> {
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
    walk: impl Fn(bool) -> Result<PathWalk>,
    open: impl Fn(&Attr) -> Result<T>,
    make: impl Fn(Fid, &[u8]) -> Result<Option<T>>,
) -> Result<T> {
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

impl EmbeddedClient {
    /// Opens a file.
    pub(crate) fn open(&self, path: &Path, options: &OpenOptions) -> Result<EmbeddedFile> {
        let (opened, name) = self.open_steps(path, options)?;
        if options.flags.truncate && !opened.made {
            self.delegate.kernel_pages.refresh_kernel(opened.attr.fid);
        }
        let file = EmbeddedFile::new(self, opened);
        Ok(match name.filter(|_| options.temporary) {
            Some(name) => file.with_temporary_name(name),
            None => file,
        })
    }

    /// Opens a file that was open before, by its id, for what `flags` say; it is not emptied.
    pub(crate) fn reopen(&self, fid: Fid, flags: OpenFlags) -> Result<EmbeddedFile> {
        let flags = OpenFlags {
            truncate: false,
            ..flags
        };
        Ok(EmbeddedFile::new(self, self.delegate.open(fid, flags)?))
    }

    /// The file, and the name that was made for it.
    fn open_steps(
        &self,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<(OpenedFile, Option<NameInDir>)> {
        let (flags, delegate) = (options.effective()?, &self.delegate);
        open_or_create(
            (options.create, options.create_new),
            |follow| walk(delegate, path, follow),
            |attr| Ok((delegate.open(attr.fid, flags)?, None)),
            |parent, name| {
                let (mode, new) = (options.mode, options.create_new);
                let opened = delegate.create(parent, name, mode, new, flags, self.caller)?;
                if opened.attr.kind == Kind::File {
                    let name = (parent, name.to_vec());
                    return Ok(Some((opened, Some(name))));
                }
                delegate.release(opened.handle)?;
                Ok(None)
            },
        )
    }
}
