//! Names: making nodes, directories and symbolic links, renaming, and looking up an inode by its number, as NFS
//! file handles need.
use crate::protocol::{self, RenameRequest, Request};
use forebay_server::delegate::Delegate;
use forebay_server::{Attr, Fid, Kind, NewInode, RenameFlags, Result};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The inode that a file handle (`open_by_handle_at`) names, or the directory above it. A fid is never given again, so a handle
/// holds as long as the file has a name, through any mount of the service and over restarts.
pub(super) fn find_again(delegate: &Delegate, fid: Fid, above: bool) -> Result<Attr> {
    if fid.owner() >= delegate.members() {
        return Err(Errno::STALE.into());
    }
    let attr = match above {
        true => delegate.names.getattr(delegate.names.parent(fid)?)?,
        false => delegate.names.getattr(fid)?,
    };
    match attr.nlink {
        0 => Err(Errno::STALE.into()),
        _ => Ok(attr),
    }
}

/// A file, FIFO, socket or device; `mode` as `mknod` is given it.
pub(super) fn new_node(mode: u32, rdev: u32) -> Result<NewInode> {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        // The kernel asks only for who may make devices. Nobody can open them here: the mount is `nodev`.
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFBLK => Kind::BlockDevice,
        _ => return Err(Errno::INVAL.into()),
    };
    Ok(NewInode {
        rdev: if kind.is_device() { rdev } else { 0 },
        ..plain(kind, mode)
    })
}

pub(super) fn new_symlink(target: &Path) -> NewInode {
    NewInode {
        target: target.as_os_str().as_bytes().to_vec(),
        ..plain(Kind::Symlink, 0o777)
    }
}

/// Without what only devices and symbolic links have.
pub(super) fn plain(kind: Kind, mode: u32) -> NewInode {
    NewInode::new(kind, mode & 0o7777)
}

pub(super) fn rename(delegate: &Delegate, req: &Request, rename: &RenameRequest<'_>) -> Result<()> {
    use protocol::RenameFlags as Flags;
    if !(Flags::RENAME_NOREPLACE | Flags::RENAME_EXCHANGE).contains(rename.flags) {
        return Err(Errno::INVAL.into());
    }
    let flags = RenameFlags {
        no_replace: rename.flags.contains(Flags::RENAME_NOREPLACE),
        exchange: rename.flags.contains(Flags::RENAME_EXCHANGE),
    };
    let (name, to_name) = (rename.name.as_bytes(), rename.to_name.as_bytes());
    delegate
        .names
        .rename(req.fid, name, rename.to, to_name, flags, req.caller)
}
