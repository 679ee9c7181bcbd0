//! The kernel's requests, one method each; in one file because one trait has them all. Each names what
//! is asked for whoever watches, has a neighbouring file do it, and sends its answer as `replies` says.
use super::replies::{data, done, give, room, written};
use super::team::DIRECTORY;
use super::{Filesystem, files};
use crate::open_handles::HandleKey;
use crate::protocol::{
    Errno, FileHandle, FopenFlags, Handler, INodeNo, KernelConfig, LockRequest, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    SetAttrRequest, WriteFlags,
};
use crate::reply::{fid, file_attr};
use crate::watch::Note;
use forebay_client::job::wire::COMMAND;
use forebay_server::Caller;
use forebay_trace::Action;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What stands for the name of a file that has none, in traces and lists of open files.
const NO_NAME: &str = "(no name)";

pub(super) fn caller(req: &Request) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
    }
}

impl Handler for Filesystem {
    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()> {
        self.agree(config)
    }

    fn destroy(&self) {
        self.lock_waiters.ended.store(true, Ordering::SeqCst);
        let _ = self.ended.send(());
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.is_team_name(parent, name.as_bytes()) {
            return self.team_lookup(parent, name.as_bytes(), req.pid(), reply);
        }
        let moved = self.places.due(req.pid());
        let answer = match name.as_bytes() {
            // The kernel resolves these itself on a path: it asks for them only to find again what a file handle names.
            b"." | b".." => self.attempt(req, Note::on(Action::Stat, parent), || {
                self.find_again(fid(parent), name == "..")
            }),
            _ => self.attempt(req, Note::at(Action::Lookup, parent, name), || {
                let attr = self.delegate.names.lookup(fid(parent), name.as_bytes())?;
                self.handles.named(attr.fid.0, parent.0, name.as_bytes());
                Ok(attr)
            }),
        };
        self.place(&answer, (fid(parent), name), req.pid());
        match moved {
            Some(moved) => self.found_after(moved, answer, reply),
            None => self.found(answer, reply),
        }
    }

    fn forget(&self, ino: INodeNo, answers: u64) {
        self.places.forget(fid(ino), answers);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, reply: ReplyAttr) {
        let own = self.team_attr(ino, req.pid());
        if let Some(attr) = own.or_else(|| self.caches.root(ino, req.pid())) {
            return self.show(Ok(attr), reply);
        }
        let note = Note::on(Action::Stat, ino);
        let answer = self.attempt(req, note, || self.delegate.names.getattr(fid(ino)));
        if let Ok(attr) = &answer {
            self.caches.told(attr);
        }
        self.show(answer, reply);
    }

    fn setattr(&self, req: &Request, ino: INodeNo, set: SetAttrRequest, reply: ReplyAttr) {
        let note = match set.size {
            Some(size) => Note::on(Action::Truncate, ino).range(0, size),
            None => Note::on(Action::SetAttributes, ino),
        };
        let answer = self.attempt(req, note, || {
            self.set_attributes(fid(ino), set, caller(req))
        });
        let ttl = answer
            .as_ref()
            .map_or(Duration::ZERO, |attr| self.ttls(attr).0);
        self.shown(ino, answer, false, move |answer| match answer {
            Ok(attr) => reply.attr(&ttl, &file_attr(&attr)),
            Err(e) => reply.error(e),
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let note = Note::on(Action::ReadLink, ino);
        let answer = self.attempt(req, note, || self.delegate.names.readlink(fid(ino)));
        data(answer, reply);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let answer = self.attempt(req, Note::at(Action::MakeNode, parent, name), || {
            self.make_node(fid(parent), name, (mode, rdev), caller(req))
        });
        self.enter(answer, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, reply: ReplyEntry) {
        let answer = self.attempt(req, Note::at(Action::MakeDirectory, parent, name), || {
            self.make_directory(fid(parent), name, mode, caller(req))
        });
        self.place(&answer, (fid(parent), name), req.pid());
        self.enter(answer, reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let answer = self.attempt(req, Note::at(Action::Symlink, parent, name), || {
            self.make_link(fid(parent), name, target, caller(req))
        });
        self.enter(answer, reply);
    }

    fn link(&self, req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(self.link_entry(req, ino, parent, name), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.attempt(req, Note::at(Action::Unlink, parent, name), || {
            self.delegate
                .names
                .unlink(fid(parent), name.as_bytes(), caller(req))
        });
        done(answer, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let note = Note::at(Action::RemoveDirectory, parent, name);
        let answer = self.attempt(req, note, || {
            self.delegate
                .names
                .rmdir(fid(parent), name.as_bytes(), caller(req))
        });
        done(answer, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.rename_entry(req, (parent, name), (to, to_name), flags);
        self.renamed(renamed, reply);
    }

    fn open(
        &self,
        req: &Request,
        ino: INodeNo,
        flags: OpenFlags,
        kills_set_ids: bool,
        reply: ReplyOpen,
    ) {
        let note = Note::on(Action::Open, ino).range(flags.0.unsigned_abs().into(), 0);
        let open = || match self.team_open(ino, flags, req.pid()) {
            Some(opened) => Ok(opened),
            None => self.open_file(fid(ino), flags, kills_set_ids),
        };
        let answer = self.attempt(req, note, open);
        if let Ok((fh, _)) = &answer {
            self.handles.opened(HandleKey::File(fh.0), ino.0, req.pid());
        }
        // It may have emptied the file.
        self.shown(ino, answer, false, move |answer| match answer {
            Ok((fh, flags)) => reply.opened(fh, flags),
            Err(e) => reply.error(e),
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: OpenFlags,
        reply: ReplyCreate,
    ) {
        let note = Note::at(Action::Create, parent, name).range(flags.0.unsigned_abs().into(), 0);
        let answer = self.attempt(req, note, || {
            let created = self.create_file(fid(parent), name, mode, flags, caller(req))?;
            let (attr, fh, _) = &created;
            self.handles.named(attr.fid.0, parent.0, name.as_bytes());
            self.handles
                .opened(HandleKey::File(fh.0), attr.fid.0, req.pid());
            Ok(created)
        });
        self.created(answer, reply);
    }

    fn tmpfile(
        &self,
        req: &Request,
        parent: INodeNo,
        mode: u32,
        flags: OpenFlags,
        reply: ReplyCreate,
    ) {
        let note = Note::at(Action::Create, parent, OsStr::new(NO_NAME));
        let note = note.range(flags.0.unsigned_abs().into(), 0);
        let answer = self.attempt(req, note, || {
            self.create_unnamed(fid(parent), mode, flags, caller(req))
        });
        if let Ok((attr, fh, _)) = &answer {
            self.handles.named(attr.fid.0, parent.0, NO_NAME.as_bytes());
            self.handles
                .opened(HandleKey::File(fh.0), attr.fid.0, req.pid());
        }
        self.created(answer, reply);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        owner: Option<u64>,
        reply: ReplyData,
    ) {
        let note = Note::on(Action::Read, ino)
            .through(fh)
            .range(offset, size.into());
        let answer = self.attempt(req, note, || {
            // The kernel names an owner for direct I/O only.
            if owner.is_none() {
                self.delegate
                    .kernel_pages
                    .enters_page_cache(files::handle(fh))?;
            }
            self.delegate.read(files::handle(fh), offset, size)
        });
        data(answer, reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        owner: Option<u64>,
        reply: ReplyWrite,
    ) {
        let note = Note::on(Action::Write, ino)
            .through(fh)
            .range(offset, data.len() as u64);
        let answer = self.attempt(req, note, || {
            // As for a read.
            if owner.is_none() {
                self.delegate
                    .kernel_pages
                    .enters_page_cache(files::handle(fh))?;
            }
            self.write_file(fid(ino), fh, offset, data, write_flags, flags, caller(req))
        });
        let direct = owner.is_some();
        self.written((ino, fh), (offset, answer, data.len()), direct, reply);
    }

    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, owner: u64, reply: ReplyEmpty) {
        let note = Note::on(Action::Flush, ino).through(fh);
        done(
            self.attempt(req, note, || self.flush_file(fh, owner)),
            reply,
        );
    }

    fn set_lock(&self, req: &Request, lock: LockRequest, reply: ReplyEmpty) {
        self.lock_or_unlock(req, lock, reply);
    }

    fn get_lock(&self, req: &Request, lock: LockRequest, reply: ReplyLock) {
        self.look_for_lock(req, lock, reply);
    }

    fn release(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        let note = Note::on(Action::Close, ino).through(fh);
        self.handles.closed(HandleKey::File(fh.0));
        done(self.attempt(req, note, || self.release_file(fh)), reply);
    }

    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        self.sync_file(req, ino, fh, reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let note = Note::on(Action::Allocate, ino)
            .through(fh)
            .range(offset, len);
        let answer = self.attempt(req, note, || {
            self.allocate((ino, fh), mode, (offset, len), caller(req))
        });
        self.shown(ino, answer, false, move |answer| done(answer, reply));
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let note = Note::on(Action::Seek, ino)
            .through(fh)
            .range(offset.unsigned_abs(), 0);
        match self.attempt(req, note, || self.seek_file(fh, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(e) => reply.error(e),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        (ino, fh_in, offset_in): (INodeNo, FileHandle, u64),
        (ino_out, fh_out, offset_out): (INodeNo, FileHandle, u64),
        len: u64,
        reply: ReplyWrite,
    ) {
        let note = Note::on(Action::Copy, ino)
            .through(fh_in)
            .range(offset_in, len);
        let target = Note::on(Action::CopyTo, ino_out)
            .through(fh_out)
            .range(offset_out, len);
        let target = self.watch.mark(req, target);
        let answer = self.attempt(req, note, || {
            self.copy((fh_in, offset_in), (fh_out, offset_out), len, caller(req))
        });
        if let Some(target) = target {
            target.end(&answer);
        }
        self.shown(ino_out, answer, false, move |answer| written(answer, reply));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, reply: ReplyOpen) {
        let fh = self.open_directory(req, ino);
        self.handles
            .opened(HandleKey::Directory(fh.0), ino.0, req.pid());
        reply.opened(fh, FopenFlags::empty());
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino == DIRECTORY {
            return reply.ok();
        }
        let note = Note::on(Action::List, ino).range(offset, 0);
        match self.attempt(req, note, || self.list(fh, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        self.handles.closed(HandleKey::Directory(fh.0));
        self.close_directory(req, ino, fh);
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, reply: ReplyEmpty) {
        let note = Note::on(Action::SyncDirectory, ino);
        done(
            self.attempt(req, note, || self.delegate.names.sync_directory(fid(ino))),
            reply,
        );
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let note = Note::on(Action::StatFs, ino);
        room(
            self.attempt(req, note, || self.delegate.names.statfs()),
            reply,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let answer = self.attempt(req, Note::on(Action::Attribute, ino), || {
            self.set_xattr(fid(ino), name.as_bytes(), value, flags, caller(req))
        });
        done(answer, reply);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        give(
            self.attempt(req, Note::on(Action::Attribute, ino), || {
                self.get_xattr(fid(ino), name.as_bytes(), size)
            }),
            reply,
        );
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        give(
            self.attempt(req, Note::on(Action::Attribute, ino), || {
                self.list_xattrs(fid(ino), size)
            }),
            reply,
        );
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(
            self.attempt(req, Note::on(Action::Attribute, ino), || {
                self.remove_xattr(fid(ino), name.as_bytes())
            }),
            reply,
        );
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        command: u32,
        data: &[u8],
        reply: ReplyIoctl,
    ) {
        if ino == DIRECTORY && command == COMMAND {
            return self.team_call(fh, data, (caller(req), req.pid()), reply);
        }
        reply.error(Errno::ENOTTY);
    }
}
