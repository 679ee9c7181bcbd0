//! The kernel's requests, one method each; in one file because one trait has them all. Each reports its request to the
//! recorder, calls the delegate or a part of `Filesystem`, and gives the answer to the reply.
use super::file_handle::{handle, open_flags};
use super::init::agree;
use super::team::TeamDirectory;
use super::{Filesystem, attrs, names, xattrs};
use crate::attempt::attempt;
use crate::conversions::{TEAM_DIRECTORY, fid, file_attr, room};
use crate::open_handles::HandleKey;
use crate::protocol::{
    AllocateRequest, CopyRequest, CreateRequest, FileHandle, FopenFlags, Handler, INodeNo,
    KernelConfig, LockRequest, OpenFlags, ReadRequest, RenameFlags, RenameRequest, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SetAttrRequest,
    WriteRequest,
};
use crate::watch::CallInfo;
use forebay_client::team_ioctl::wire::COMMAND;
use forebay_trace::Action;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// What stands for the name of a file that has none, in traces and lists of open files.
const NO_NAME: &str = "(no name)";

/// Of the two inodes of a request the one that refuses it, if one does.
fn own_or(ino: INodeNo, other: INodeNo) -> INodeNo {
    if ino == TEAM_DIRECTORY { ino } else { other }
}

impl Handler for Filesystem {
    fn init(&self, config: &mut KernelConfig) -> io::Result<()> {
        agree(config, self.policy.alone)
    }

    fn destroy(&self) {
        self.locks.end_waits();
        let _ = self.ended.send(());
    }

    fn forget(&self, ino: INodeNo, answers: u64) {
        self.moves.places.directories.forget(fid(ino), answers);
    }

    fn lookup(&self, req: &Request, name: &OsStr, reply: ReplyEntry) {
        let bytes = name.as_bytes();
        if TeamDirectory::has_name(req.ino, bytes) {
            return self.teams.lookup(req, bytes, reply);
        }
        let moved = self.moves.places.directories.due(req.pid);
        let answer = match bytes {
            // The kernel resolves these itself on a path: it asks for them only to find again what a file handle names.
            b"." | b".." => self.attempt(req, CallInfo::on(Action::Stat, req.ino), || {
                names::find_again(&self.delegate, req.fid(), name == "..")
            }),
            _ => self.attempt(req, CallInfo::at(Action::Lookup, req.ino, name), || {
                let attr = self.delegate.names.lookup(req.fid(), bytes)?;
                self.handles.named(attr.fid.0, req.ino.0, bytes);
                Ok(attr)
            }),
        };
        self.moves.answered(&answer, (req.fid(), name), req.pid);
        match moved {
            Some(moved) => self.moves.answer_lookup(moved, answer, reply),
            None => self.policy.found(answer, reply),
        }
    }

    fn getattr(&self, req: &Request, reply: ReplyAttr) {
        let own = self.teams.attr(req.fid(), req.pid);
        if let Some(attr) = own.or_else(|| self.caches.root(req.ino, req.pid)) {
            return self.policy.show(Ok(attr), reply);
        }
        let call = CallInfo::on(Action::Stat, req.ino);
        let answer = self.attempt(req, call, || self.delegate.names.getattr(req.fid()));
        if let Ok(attr) = &answer {
            self.caches.remember_root(attr);
        }
        self.policy.show(answer, reply);
    }

    fn setattr(&self, req: &Request, set: SetAttrRequest, reply: ReplyAttr) {
        let call = match set.size {
            Some(size) => CallInfo::on(Action::Truncate, req.ino).range(0, size),
            None => CallInfo::on(Action::SetAttributes, req.ino),
        };
        let answer = self.attempt(req, call, || {
            attrs::change(&self.delegate, req.fid(), set, req.caller())
        });
        let ttl = answer
            .as_ref()
            .map_or(Duration::ZERO, |attr| self.policy.attr_ttl(attr));
        self.changes.answer(req.ino, answer, move |answer| {
            reply.answer(answer, |reply, attr| reply.attr(&ttl, &file_attr(&attr)));
        });
    }

    fn readlink(&self, req: &Request, reply: ReplyData) {
        let call = CallInfo::on(Action::ReadLink, req.ino);
        let answer = self.attempt(req, call, || self.delegate.names.readlink(req.fid()));
        reply.answer(answer, |reply, target| reply.data(&target));
    }

    fn mknod(&self, req: &Request, name: &OsStr, mode: u32, rdev: u32, reply: ReplyEntry) {
        let answer = self.attempt(req, CallInfo::at(Action::MakeNode, req.ino, name), || {
            names::make_node(&self.delegate, req, name, mode, rdev)
        });
        self.policy.enter(answer, reply);
    }

    fn mkdir(&self, req: &Request, name: &OsStr, mode: u32, reply: ReplyEntry) {
        let call = CallInfo::at(Action::MakeDirectory, req.ino, name);
        let answer = self.attempt(req, call, || {
            names::make_directory(&self.delegate, req, name, mode)
        });
        self.moves.answered(&answer, (req.fid(), name), req.pid);
        self.policy.enter(answer, reply);
    }

    fn symlink(&self, req: &Request, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let answer = self.attempt(req, CallInfo::at(Action::Symlink, req.ino, name), || {
            names::make_symlink(&self.delegate, req, name, target)
        });
        self.policy.enter(answer, reply);
    }

    fn link(&self, req: &Request, file: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let call = CallInfo::on(Action::Link, file).to(req.ino, name);
        let record = self.watch.record(req, call);
        let answer = attempt("link", own_or(req.ino, file), || {
            self.delegate
                .names
                .link(fid(file), req.fid(), name.as_bytes())
        });
        record.end(&answer);
        self.policy.enter(answer, reply);
    }

    fn unlink(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.attempt(req, CallInfo::at(Action::Unlink, req.ino, name), || {
            self.delegate
                .names
                .unlink(req.fid(), name.as_bytes(), req.caller())
        });
        reply.done(answer);
    }

    fn rmdir(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        let call = CallInfo::at(Action::RemoveDirectory, req.ino, name);
        let answer = self.attempt(req, call, || {
            self.delegate
                .names
                .rmdir(req.fid(), name.as_bytes(), req.caller())
        });
        reply.done(answer);
    }

    fn rename(&self, req: &Request, rename: RenameRequest<'_>, reply: ReplyEmpty) {
        let (name, to, to_name) = (rename.name, rename.to, rename.to_name);
        let record = self
            .watch
            .record(req, CallInfo::at(Action::Rename, req.ino, name));
        let answer = attempt("rename", own_or(to, req.ino), || {
            names::rename(&self.delegate, req, &rename)
        });
        let mut moved = Vec::new();
        if answer.is_ok() {
            let exchanged = rename.flags.contains(RenameFlags::RENAME_EXCHANGE);
            let (from, to_entry) = ((req.fid(), name), (fid(to), to_name));
            if !self.policy.alone {
                let directories = &self.moves.places.directories;
                moved = directories.renamed(from, to_entry, exchanged);
            }
            record.renamed(to, to_name);
        }
        record.end(&answer);
        self.moves.answer_rename(answer, moved, reply);
    }

    fn open(&self, req: &Request, flags: OpenFlags, kills_set_ids: bool, reply: ReplyOpen) {
        let call = CallInfo::on(Action::Open, req.ino).range(flags.0.unsigned_abs().into(), 0);
        let flags = open_flags(flags);
        let open = || match self.teams.take(req.fid(), flags, req.pid) {
            Some(opened) => Ok(self.policy.opened(&opened, flags)),
            None => self.files.open(req.fid(), flags, kills_set_ids),
        };
        let answer = self.attempt(req, call, open);
        if let Ok((fh, _)) = &answer {
            self.handles
                .opened(HandleKey::File(fh.0), req.ino.0, req.pid);
        }
        // It may have emptied the file.
        self.changes.answer(req.ino, answer, move |answer| {
            reply.answer(answer, ReplyOpen::opened);
        });
    }

    fn create(&self, req: &Request, create: CreateRequest<'_>, reply: ReplyCreate) {
        let name = create.name.unwrap_or(OsStr::new(NO_NAME));
        let flags = create.flags.0.unsigned_abs().into();
        let call = CallInfo::at(Action::Create, req.ino, name).range(flags, 0);
        let answer = self.attempt(req, call, || {
            let created = self.files.create(req, &create)?;
            let (attr, fh, _) = &created;
            self.handles.named(attr.fid.0, req.ino.0, name.as_bytes());
            self.handles
                .opened(HandleKey::File(fh.0), attr.fid.0, req.pid);
            Ok(created)
        });
        let ino = answer.as_ref().map_or(INodeNo(0), |a| INodeNo(a.0.fid.0));
        let answer = answer.map(|(attr, fh, flags)| {
            // One time-out serves name and attributes here, so the shorter one.
            let (attr_ttl, entry_ttl) = self.policy.ttls(&attr);
            (attr_ttl.min(entry_ttl), file_attr(&attr), fh, flags)
        });
        // It may have emptied a file that another node made.
        self.changes.answer(ino, answer, move |answer| {
            reply.answer(answer, |reply, (ttl, attr, fh, flags)| {
                reply.created(&ttl, &attr, fh, flags);
            });
        });
    }

    fn read(&self, req: &Request, read: ReadRequest, reply: ReplyData) {
        let call = CallInfo::on(Action::Read, req.ino).through(read.fh);
        let call = call.range(read.offset, read.size.into());
        let answer = self.attempt(req, call, || self.files.read(&read));
        reply.answer(answer, |reply, bytes| reply.data(&bytes));
    }

    fn write(&self, req: &Request, write: WriteRequest<'_>, reply: ReplyWrite) {
        let call = CallInfo::on(Action::Write, req.ino).through(write.fh);
        let call = call.range(write.offset, write.data.len() as u64);
        let answer = self.attempt(req, call, || self.files.write(req, &write));
        self.changes.answer_write(req.ino, &write, answer, reply);
    }

    fn flush(&self, req: &Request, fh: FileHandle, owner: u64, reply: ReplyEmpty) {
        let call = CallInfo::on(Action::Flush, req.ino).through(fh);
        reply.done(self.attempt(req, call, || self.files.flush(fh, owner)));
    }

    fn release(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty) {
        let call = CallInfo::on(Action::Close, req.ino).through(fh);
        self.handles.closed(HandleKey::File(fh.0));
        // A mapping may outlive the last close; its pages arrive between that flush and this, which commits them.
        reply.done(self.attempt(req, call, || self.delegate.release(handle(fh))));
    }

    fn fsync(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty) {
        self.locks.sync_file(req, fh, reply);
    }

    fn fallocate(&self, req: &Request, allocate: AllocateRequest, reply: ReplyEmpty) {
        let call = CallInfo::on(Action::Allocate, req.ino).through(allocate.fh);
        let call = call.range(allocate.offset, allocate.len);
        let answer = self.attempt(req, call, || self.files.allocate(req, &allocate));
        self.changes
            .answer(req.ino, answer, move |answer| reply.done(answer));
    }

    fn lseek(&self, req: &Request, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let call = CallInfo::on(Action::Seek, req.ino).through(fh);
        let call = call.range(offset.unsigned_abs(), 0);
        let answer = self.attempt(req, call, || self.files.seek(fh, offset, whence));
        reply.answer(answer, ReplyLseek::offset);
    }

    fn copy_file_range(&self, req: &Request, copy: CopyRequest, reply: ReplyWrite) {
        let call = CallInfo::on(Action::Copy, req.ino).through(copy.from);
        let call = call.range(copy.from_offset, copy.len);
        let target = CallInfo::on(Action::CopyTo, copy.to_ino).through(copy.to);
        let target = target.range(copy.to_offset, copy.len);
        let target = self.watch.record(req, target);
        let answer = self.attempt(req, call, || self.files.copy(&copy, req.caller()));
        target.end(&answer);
        self.changes.answer(copy.to_ino, answer, move |answer| {
            reply.answer(answer, ReplyWrite::written);
        });
    }

    fn set_lock(&self, req: &Request, lock: LockRequest, reply: ReplyEmpty) {
        self.locks.set(req, lock, reply);
    }

    fn get_lock(&self, req: &Request, lock: LockRequest, reply: ReplyLock) {
        self.locks.find(req, lock, reply);
    }

    fn opendir(&self, req: &Request, reply: ReplyOpen) {
        let call = CallInfo::on(Action::OpenDirectory, req.ino);
        let record = self.watch.record(req, call);
        let number = self.listings.open(req.fid());
        record.end(&Ok(()));
        self.handles
            .opened(HandleKey::Directory(number), req.ino.0, req.pid);
        reply.opened((FileHandle(number), FopenFlags::empty()));
    }

    fn readdir(&self, req: &Request, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if req.ino == TEAM_DIRECTORY {
            return reply.ok();
        }
        let call = CallInfo::on(Action::List, req.ino).range(offset, 0);
        let list = || self.listings.list(&self.delegate, fh.0, offset, &mut reply);
        match self.attempt(req, call, list) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    /// Also forgets the teams that were entered through the handle.
    fn releasedir(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty) {
        self.handles.closed(HandleKey::Directory(fh.0));
        let call = CallInfo::on(Action::CloseDirectory, req.ino);
        let record = self.watch.record(req, call);
        self.listings.close(fh.0);
        self.teams.leave(fh.0);
        record.end(&Ok(()));
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, reply: ReplyEmpty) {
        let call = CallInfo::on(Action::SyncDirectory, req.ino);
        let synced = self.attempt(req, call, || self.delegate.names.sync_directory(req.fid()));
        reply.done(synced);
    }

    fn statfs(&self, req: &Request, reply: ReplyStatfs) {
        let call = CallInfo::on(Action::StatFs, req.ino);
        let answer = self.attempt(req, call, || self.delegate.names.statfs());
        reply.answer(answer, room);
    }

    fn setxattr(&self, req: &Request, name: &OsStr, value: &[u8], flags: i32, reply: ReplyEmpty) {
        let answer = self.attempt(req, CallInfo::on(Action::Attribute, req.ino), || {
            let (name, caller) = (name.as_bytes(), req.caller());
            xattrs::set(&self.delegate, req.fid(), name, value, flags, caller)
        });
        reply.done(answer);
    }

    fn getxattr(&self, req: &Request, name: &OsStr, size: u32, reply: ReplyXattr) {
        let answer = self.attempt(req, CallInfo::on(Action::Attribute, req.ino), || {
            xattrs::get(&self.delegate, req.fid(), name.as_bytes(), size)
        });
        reply.answer(answer, xattrs::give);
    }

    fn listxattr(&self, req: &Request, size: u32, reply: ReplyXattr) {
        let answer = self.attempt(req, CallInfo::on(Action::Attribute, req.ino), || {
            xattrs::list(&self.delegate, req.fid(), size)
        });
        reply.answer(answer, xattrs::give);
    }

    fn removexattr(&self, req: &Request, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.attempt(req, CallInfo::on(Action::Attribute, req.ino), || {
            xattrs::remove(&self.delegate, req.fid(), name.as_bytes())
        });
        reply.done(answer);
    }

    fn ioctl(&self, req: &Request, fh: FileHandle, command: u32, data: &[u8], reply: ReplyIoctl) {
        if req.ino == TEAM_DIRECTORY && command == COMMAND {
            return self.teams.begin_call(req, fh, data, reply);
        }
        reply.error(Errno::NOTTY);
    }
}
