//! Names: making nodes, directories and links, and renaming.
use super::Filesystem;
use super::requests::caller;
use super::team::DIRECTORY;
use crate::protocol::{INodeNo, Request};
use crate::reply::{attempt, fid};
use crate::watch::Note;
use forebay_server::{Attr, Caller, Fid, Kind, NewNode, RenameFlags};
use forebay_trace::Action;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

type Result<T, E = forebay_server::Error> = std::result::Result<T, E>;

/// Of the two inodes of a request the one that refuses it, if one does.
fn own_or(ino: INodeNo, other: INodeNo) -> INodeNo {
    if ino == DIRECTORY { ino } else { other }
}

impl Filesystem {
    /// The inode that a file handle (`open_by_handle_at`) names, or the directory above it. A fid is never given again, so a handle
    /// holds as long as the file has a name, through any mount of the service and over restarts.
    pub(super) fn find_again(&self, fid: Fid, above: bool) -> Result<Attr> {
        if fid.owner() >= self.delegate.members() {
            return Err(Errno::STALE.into());
        }
        let attr = match above {
            true => self
                .delegate
                .names
                .getattr(self.delegate.names.parent(fid)?)?,
            false => self.delegate.names.getattr(fid)?,
        };
        match attr.nlink {
            0 => Err(Errno::STALE.into()),
            _ => Ok(attr),
        }
    }

    pub(super) fn make_node(
        &self,
        parent: Fid,
        name: &OsStr,
        (mode, rdev): (u32, u32),
        caller: Caller,
    ) -> Result<Attr> {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Kind::File,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            // The kernel asks only for who may make devices. Nobody can open them here: the mount is `nodev`.
            libc::S_IFCHR => Kind::CharDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            _ => return Err(Errno::INVAL.into()),
        };
        let new = NewNode {
            kind,
            mode: mode & 0o7777,
            rdev: if kind.is_device() { rdev } else { 0 },
            target: Vec::new(),
        };
        self.delegate
            .names
            .make(parent, name.as_bytes(), new, caller)
    }

    pub(super) fn make_directory(
        &self,
        parent: Fid,
        name: &OsStr,
        mode: u32,
        caller: Caller,
    ) -> Result<Attr> {
        self.make(parent, name, Kind::Dir, mode, Vec::new(), caller)
    }

    pub(super) fn make_link(
        &self,
        parent: Fid,
        name: &OsStr,
        target: &Path,
        caller: Caller,
    ) -> Result<Attr> {
        self.make(
            parent,
            name,
            Kind::Symlink,
            0o777,
            target.as_os_str().as_bytes().to_vec(),
            caller,
        )
    }

    fn make(
        &self,
        parent: Fid,
        name: &OsStr,
        kind: Kind,
        mode: u32,
        target: Vec<u8>,
        caller: Caller,
    ) -> Result<Attr> {
        let new = NewNode {
            kind,
            mode: mode & 0o7777,
            rdev: 0,
            target,
        };
        self.delegate
            .names
            .make(parent, name.as_bytes(), new, caller)
    }

    pub(super) fn link_entry(
        &self,
        req: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<Attr, crate::protocol::Errno> {
        let mark = self
            .watch
            .mark(req, Note::on(Action::Link, ino).to(parent, name));
        let answer = attempt("link", own_or(parent, ino), || {
            self.delegate
                .names
                .link(fid(ino), fid(parent), name.as_bytes())
        });
        if let Some(mark) = mark {
            mark.end(&answer);
        }
        answer
    }

    /// Also the directories that have another parent now, and where they are.
    pub(super) fn rename_entry(
        &self,
        req: &Request,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: crate::protocol::RenameFlags,
    ) -> (Result<(), crate::protocol::Errno>, Vec<(Fid, PathBuf)>) {
        let mark = self
            .watch
            .mark(req, Note::at(Action::Rename, from.0, from.1));
        let answer = attempt("rename", own_or(to.0, from.0), || {
            self.rename((fid(from.0), from.1), (fid(to.0), to.1), flags, caller(req))
        });
        let mut moved = Vec::new();
        if answer.is_ok() && !self.alone {
            let exchanged = flags.contains(crate::protocol::RenameFlags::RENAME_EXCHANGE);
            let (from, to) = ((fid(from.0), from.1), (fid(to.0), to.1));
            moved = self.places.renamed(from, to, exchanged);
        }
        if let Some(mark) = mark {
            if answer.is_ok() {
                mark.renamed(to.0, to.1);
            }
            mark.end(&answer);
        }
        (answer, moved)
    }

    fn rename(
        &self,
        (from, name): (Fid, &OsStr),
        (to, to_name): (Fid, &OsStr),
        flags: crate::protocol::RenameFlags,
        caller: Caller,
    ) -> Result<()> {
        let known = crate::protocol::RenameFlags::RENAME_NOREPLACE
            | crate::protocol::RenameFlags::RENAME_EXCHANGE;
        if !known.contains(flags) {
            return Err(Errno::INVAL.into());
        }
        let flags = RenameFlags {
            no_replace: flags.contains(crate::protocol::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(crate::protocol::RenameFlags::RENAME_EXCHANGE),
        };
        self.delegate
            .names
            .rename(from, name.as_bytes(), to, to_name.as_bytes(), flags, caller)
    }
}
