//! The kernel's requests, one method each; in one file because one trait has them all. Each reports its request to the
//! recorder, calls the delegate or a part of `Filesystem`, and gives the answer to the reply.
use super::file_handle::{DIRECT, WRITE, handle, has, open_flags};
use super::files::FileRequests;
use super::init::negotiate;
use super::task_threads::spawn_task;
use super::team::TeamDirectory;
use super::{Filesystem, attrs, names, xattrs};
use crate::attempt::{TEAM_DIRECTORY, attempt};
use crate::open_handles::HandleKey;
use crate::protocol::{
    AllocateRequest, CopyRequest, CreateRequest, DirectoryEntries, EntryAnswer, FileHandle,
    FopenFlags, Handler, InitFlags, IoctlAnswer, KernelConfig, LockAnswer, LockRequest, OpenFlags,
    OpenedHandle, ReadRequest, RenameFlags, RenameRequest, Reply, Request, SetAttrRequest,
    WriteRequest, XattrAnswer,
};
use crate::recording::CallInfo;
use bytes::Bytes;
use forebay_client::team_ioctl::wire::COMMAND;
use forebay_server::delegate::KernelLease;
use forebay_server::{Attr, Fid, Kind, SetTime, SpaceTotals};
use forebay_trace::Action;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What stands for the name of a file that has none, in traces and lists of open files.
const NO_NAME: &str = "(no name)";

/// Of the two inodes of a request the one that refuses it, if one does.
fn refused_inode_or(fid: Fid, other: Fid) -> Fid {
    if fid == TEAM_DIRECTORY { fid } else { other }
}

impl Handler for Filesystem {
    fn init(&self, config: &mut KernelConfig) -> io::Result<()> {
        let expire = config.offers(InitFlags::FUSE_HAS_EXPIRE_ONLY);
        let policy = &self.ctx.policy;
        policy.entries_expire.store(expire, Ordering::Relaxed);
        negotiate(config, &policy.write_back)
    }

    fn destroy(&self) {
        self.locks.end_waits();
        let _ = self.ended.send(());
    }

    fn forget(&self, fid: Fid, answers: u64) {
        self.moves.places.directories.forget(fid, answers);
    }

    fn lookup(&self, req: &Request, name: &OsStr, reply: Reply<EntryAnswer>) {
        let bytes = name.as_bytes();
        if TeamDirectory::has_name(req.fid, bytes) {
            return self.teams.lookup(req, bytes, reply);
        }
        let moved = self.moves.places.directories.due(req.pid);
        let mut lease = KernelLease::default();
        let answer = match bytes {
            // The kernel resolves these itself on a path: it asks for them only to find again what a file handle names.
            b"." | b".." => self.attempt(req, CallInfo::on(Action::Stat, req.fid), || {
                names::find_again(&self.ctx.delegate, req.fid, name == "..")
            }),
            _ => self.attempt(req, CallInfo::at(Action::Lookup, req.fid, name), || {
                let names = &self.ctx.delegate.names;
                let attr;
                (attr, lease) = names.lookup_leased(req.fid, bytes, req.thread())?;
                self.ctx.handles.named(attr.fid.0, req.fid.0, bytes);
                Ok(attr)
            }),
        };
        self.moves.answered(&answer, (req.fid, name), req.pid);
        let answer = answer.map(|attr| self.ctx.with_blocks(attr));
        match moved {
            Some(moved) => {
                let entry = answer.map(|attr| self.ctx.policy.entry(attr));
                self.moves.answer_lookup(moved, entry, reply);
            }
            None => reply.answer(self.ctx.policy.found(answer, lease)),
        }
    }

    fn getattr(&self, req: &Request, fh: Option<FileHandle>, reply: Reply<(Attr, Duration)>) {
        let own = self.teams.attr(req.fid, req.pid);
        if let Some(attr) = own.or_else(|| self.ctx.caches.root(req.fid, req.pid)) {
            return reply.answer(Ok(self.ctx.policy.shown(attr)));
        }
        if let Some(fh) = fh.filter(|fh| self.ctx.policy.write_back.is_on() && has(*fh, WRITE)) {
            return self.ctx.answer_before_write(req.fid, fh, reply);
        }
        let mut lease = KernelLease::default();
        let ask = || {
            let attr;
            let names = &self.ctx.delegate.names;
            (attr, lease) = names.getattr_leased(req.fid, req.thread())?;
            Ok(attr)
        };
        let answer = self.attempt(req, CallInfo::on(Action::Stat, req.fid), ask);
        if let Ok(attr) = &answer {
            self.ctx.caches.remember_root(attr);
        }
        let answer = answer.map(|attr| self.ctx.with_blocks(attr));
        reply.answer(answer.map(|attr| self.ctx.policy.shown_leased(attr, lease)));
    }

    fn setattr(&self, req: &Request, set: SetAttrRequest, reply: Reply<(Attr, Duration)>) {
        if !set.hands_over_time && self.ctx.caches.calls(req.pid) {
            let own = self.ctx.own_change(req.fid, set.set.size.is_some());
            return reply.answer(own.map(|attr| self.ctx.policy.shown(attr)));
        }
        if let Some(SetTime::At(mtime)) = set.set.mtime
            && self.ctx.policy.write_back.is_on()
        {
            self.ctx.delegate.write_back.observe_kernel_time(mtime);
        }
        if set.hands_over_time && self.ctx.policy.write_back.is_on() {
            let take = || attrs::take_time(&self.ctx.delegate, req.fid, &set);
            let taken = self.attempt_for_kernel("take a time", req.fid, take);
            if let Some(answer) = taken.transpose() {
                return reply.answer(answer.map(|attr| self.ctx.policy.shown(attr)));
            }
        }
        let call = match set.set.size {
            Some(size) => CallInfo::on(Action::Truncate, req.fid).range(0, size),
            None => CallInfo::on(Action::SetAttributes, req.fid),
        };
        let answer = self.attempt(req, call, || {
            let timed = self.ctx.policy.write_back.is_on();
            attrs::change(&self.ctx.delegate, req.fid, set, timed, req.caller)
        });
        let answer = answer.map(|attr| self.ctx.with_blocks(attr));
        let answer = answer.map(|attr| self.ctx.policy.shown(attr));
        self.changes.answer(req.fid, answer, reply);
    }

    fn readlink(&self, req: &Request, reply: Reply<Bytes>) {
        let call = CallInfo::on(Action::ReadLink, req.fid);
        let answer = self.attempt(req, call, || self.ctx.delegate.names.readlink(req.fid));
        reply.answer(answer.map(Bytes::from));
    }

    fn mknod(&self, req: &Request, name: &OsStr, mode: u32, rdev: u32, reply: Reply<EntryAnswer>) {
        let new = || names::new_node(mode, rdev);
        self.make(req, Action::MakeNode, name, new, reply);
    }

    fn mkdir(&self, req: &Request, name: &OsStr, mode: u32, reply: Reply<EntryAnswer>) {
        let new = || Ok(names::plain(Kind::Dir, mode));
        self.make(req, Action::MakeDirectory, name, new, reply);
    }

    fn symlink(&self, req: &Request, name: &OsStr, target: &Path, reply: Reply<EntryAnswer>) {
        let new = || Ok(names::new_symlink(target));
        self.make(req, Action::Symlink, name, new, reply);
    }

    fn link(&self, req: &Request, file: Fid, name: &OsStr, reply: Reply<EntryAnswer>) {
        let call = CallInfo::on(Action::Link, file).to(req.fid, name);
        let record = self.ctx.recording.record(req, call);
        let answer = attempt("link", refused_inode_or(req.fid, file), || {
            self.ctx.delegate.names.link(file, req.fid, name.as_bytes())
        });
        record.end(&answer);
        let answer = answer.map(|attr| self.ctx.with_blocks(attr));
        reply.answer(answer.map(|attr| self.ctx.policy.entry(attr)));
    }

    fn unlink(&self, req: &Request, name: &OsStr, reply: Reply<()>) {
        let call = CallInfo::at(Action::Unlink, req.fid, name);
        self.answer(req, call, reply, || {
            let names = &self.ctx.delegate.names;
            names.unlink(req.fid, name.as_bytes(), req.origin())
        });
    }

    fn rmdir(&self, req: &Request, name: &OsStr, reply: Reply<()>) {
        let call = CallInfo::at(Action::RemoveDirectory, req.fid, name);
        self.answer(req, call, reply, || {
            let names = &self.ctx.delegate.names;
            names.rmdir(req.fid, name.as_bytes(), req.origin())
        });
    }

    fn rename(&self, req: &Request, rename: RenameRequest<'_>, reply: Reply<()>) {
        let (name, to, to_name) = (rename.name, rename.to, rename.to_name);
        let record = self
            .ctx
            .recording
            .record(req, CallInfo::at(Action::Rename, req.fid, name));
        let answer = attempt("rename", refused_inode_or(to, req.fid), || {
            names::rename(&self.ctx.delegate, req, &rename)
        });
        let mut moved = Vec::new();
        if answer.is_ok() {
            let exchanged = rename.flags.contains(RenameFlags::RENAME_EXCHANGE);
            let (from, to_entry) = ((req.fid, name), (to, to_name));
            if !self.ctx.policy.alone {
                let directories = &self.moves.places.directories;
                moved = directories.renamed(from, to_entry, exchanged);
            }
            record.renamed(to, to_name);
        }
        record.end(&answer);
        self.moves.answer_rename(answer, moved, reply);
    }

    fn open(
        &self,
        req: &Request,
        flags: OpenFlags,
        kills_set_ids: bool,
        reply: Reply<OpenedHandle>,
    ) {
        let call = CallInfo::on(Action::Open, req.fid).range(flags.0.unsigned_abs().into(), 0);
        let flags = open_flags(flags);
        let mut stale = None;
        let answer = self.attempt(req, call, || {
            let opened = match self.teams.take(req.fid, flags, req.pid) {
                Some(opened) => opened,
                None => self.files.open(req.fid, flags, kills_set_ids)?,
            };
            stale = self.ctx.policy.stale(&opened);
            Ok(self.ctx.policy.opened(&opened, flags))
        });
        if let Ok((fh, _)) = &answer {
            let (handle, writes) = (HandleKey::File(fh.0), has(*fh, WRITE));
            self.ctx.handles.opened(handle, req.fid.0, req.pid, writes);
        }
        // It may have emptied the file.
        self.changes
            .answer_opened(req.fid, answer, stale, |opened| &mut opened.1, reply);
    }

    fn create(
        &self,
        req: &Request,
        create: CreateRequest<'_>,
        reply: Reply<(EntryAnswer, OpenedHandle)>,
    ) {
        let name = create.name.unwrap_or(OsStr::new(NO_NAME));
        let flags = create.flags.0.unsigned_abs().into();
        let call = CallInfo::at(Action::Create, req.fid, name).range(flags, 0);
        let (mut lease, mut stale) = (KernelLease::default(), None);
        let answer = self.attempt(req, call, || {
            let created;
            (created, lease) = self.files.create(req, &create)?;
            stale = self.ctx.policy.stale(&created);
            let open = self.ctx.policy.opened(&created, open_flags(create.flags));
            let (attr, fh) = (created.attr, open.0);
            self.ctx
                .handles
                .named(attr.fid.0, req.fid.0, name.as_bytes());
            let (handle, writes) = (HandleKey::File(fh.0), has(fh, WRITE));
            self.ctx.handles.opened(handle, attr.fid.0, req.pid, writes);
            Ok((attr, open))
        });
        let fid = answer.as_ref().map_or(Fid(0), |created| created.0.fid);
        let answer = answer.map(|(attr, open)| {
            let attr = self.ctx.with_blocks(attr);
            (self.ctx.policy.entry_leased(attr, lease), open)
        });
        // It may have emptied a file that another node made.
        self.changes
            .answer_opened(fid, answer, stale, |created| &mut created.1.1, reply);
    }

    fn read(&self, req: &Request, read: ReadRequest, reply: Reply<Bytes>) {
        let call = CallInfo::on(Action::Read, req.fid).through(read.fh);
        let call = call.range(read.offset, read.size.into());
        let _noted = self.files.note(&read);
        self.answer(req, call, reply, || self.files.read(&read));
    }

    fn write(&self, req: &Request, write: WriteRequest<'_>, reply: Reply<u32>) {
        let call = CallInfo::on(Action::Write, req.fid).through(write.fh);
        let call = call.range(write.offset, write.data.len() as u64);
        let answer = self.attempt(req, call, || self.files.write(req, &write));
        self.changes.answer_write(req.fid, &write, answer, reply);
    }

    fn flush(&self, req: &Request, fh: FileHandle, owner: u64, reply: Reply<()>) {
        let call = CallInfo::on(Action::Flush, req.fid).through(fh);
        if !has(fh, WRITE) || !has(fh, DIRECT) || !self.ctx.policy.write_back.is_on() {
            return self.answer(req, call, reply, || self.files.flush(fh, owner));
        }
        let flushed = self.attempt(req, call, || self.files.flush(fh, owner));
        let (ctx, fid) = (self.ctx.clone(), req.fid);
        spawn_task("to show the time of a file", move || {
            ctx.show_time(fid);
            reply.answer(flushed);
        });
    }

    fn release(&self, req: &Request, fh: FileHandle, reply: Reply<()>) {
        let call = CallInfo::on(Action::Close, req.fid).through(fh);
        let last_writer = self.ctx.handles.closed(HandleKey::File(fh.0));
        // A mapping may outlive the last close; its pages arrive between that flush and this, which commits them.
        self.answer(req, call, reply, || self.ctx.delegate.release(handle(fh)));
        if last_writer {
            self.ctx.last_writer_closed(req.fid);
        }
    }

    fn fsync(&self, req: &Request, fh: FileHandle, reply: Reply<()>) {
        self.locks.sync_file(req, fh, reply);
    }

    fn fallocate(&self, req: &Request, allocate: AllocateRequest, reply: Reply<()>) {
        let call = CallInfo::on(Action::Allocate, req.fid).through(allocate.fh);
        let call = call.range(allocate.offset, allocate.len);
        let answer = self.attempt(req, call, || self.files.allocate(req, &allocate));
        self.changes.answer(req.fid, answer, reply);
    }

    fn lseek(&self, req: &Request, fh: FileHandle, offset: i64, whence: i32, reply: Reply<i64>) {
        let call = CallInfo::on(Action::Seek, req.fid).through(fh);
        let call = call.range(offset.unsigned_abs(), 0);
        if !self.ctx.may_hold_unseen(req.fid) {
            return self.answer(req, call, reply, || self.files.seek(fh, offset, whence));
        }
        // The kernel asks without writing back what it keeps, which would look like holes.
        let (ctx, fid) = (self.ctx.clone(), req.fid);
        let record = self.ctx.recording.record(req, call);
        spawn_task("to look for data and holes", move || {
            let sought = attempt("seek", fid, || {
                ctx.write_back_and_drop_pages(fid)?;
                FileRequests { ctx }.seek(fh, offset, whence)
            });
            record.end(&sought);
            reply.answer(sought);
        });
    }

    fn copy_file_range(&self, req: &Request, copy: CopyRequest, reply: Reply<u32>) {
        let call = CallInfo::on(Action::Copy, req.fid).through(copy.from);
        let call = call.range(copy.from_offset, copy.len);
        let target = CallInfo::on(Action::CopyTo, copy.to_fid).through(copy.to);
        let target = target.range(copy.to_offset, copy.len);
        let target = self.ctx.recording.record(req, target);
        let answer = self.attempt(req, call, || self.files.copy(&copy, req.caller));
        target.end(&answer);
        self.changes.answer(copy.to_fid, answer, reply);
    }

    fn set_lock(&self, req: &Request, lock: LockRequest, reply: Reply<()>) {
        self.locks.set(req, lock, reply);
    }

    fn get_lock(&self, req: &Request, lock: LockRequest, reply: Reply<LockAnswer>) {
        self.locks.find(req, lock, reply);
    }

    fn opendir(&self, req: &Request, reply: Reply<OpenedHandle>) {
        let call = CallInfo::on(Action::OpenDirectory, req.fid);
        let record = self.ctx.recording.record(req, call);
        let number = self.listings.open(req.fid);
        record.end(&Ok(()));
        self.ctx
            .handles
            .opened(HandleKey::Directory(number), req.fid.0, req.pid, false);
        reply.answer(Ok((FileHandle(number), FopenFlags::empty())));
    }

    fn readdir(
        &self,
        req: &Request,
        fh: FileHandle,
        offset: u64,
        room: u32,
        reply: Reply<DirectoryEntries>,
    ) {
        if req.fid == TEAM_DIRECTORY {
            return reply.answer(Ok(DirectoryEntries::new(room)));
        }
        let call = CallInfo::on(Action::List, req.fid).range(offset, 0);
        let list = || self.listings.list(&self.ctx.delegate, fh.0, offset, room);
        self.answer(req, call, reply, list);
    }

    /// Also forgets the teams that were entered through the handle.
    fn releasedir(&self, req: &Request, fh: FileHandle, reply: Reply<()>) {
        self.ctx.handles.closed(HandleKey::Directory(fh.0));
        let call = CallInfo::on(Action::CloseDirectory, req.fid);
        let record = self.ctx.recording.record(req, call);
        self.listings.close(fh.0);
        self.teams.leave(fh.0);
        record.end(&Ok(()));
        reply.answer(Ok(()));
    }

    fn fsyncdir(&self, req: &Request, reply: Reply<()>) {
        let call = CallInfo::on(Action::SyncDirectory, req.fid);
        let names = &self.ctx.delegate.names;
        self.answer(req, call, reply, || names.sync_directory(req.fid));
    }

    fn statfs(&self, req: &Request, reply: Reply<SpaceTotals>) {
        let call = CallInfo::on(Action::StatFs, req.fid);
        self.answer(req, call, reply, || self.ctx.delegate.names.statfs());
    }

    fn setxattr(&self, req: &Request, name: &OsStr, value: &[u8], flags: i32, reply: Reply<()>) {
        let call = CallInfo::on(Action::Attribute, req.fid);
        self.answer(req, call, reply, || {
            let (name, caller) = (name.as_bytes(), req.caller);
            xattrs::set(&self.ctx.delegate, req.fid, name, value, flags, caller)
        });
    }

    fn getxattr(&self, req: &Request, name: &OsStr, size: u32, reply: Reply<XattrAnswer>) {
        let call = CallInfo::on(Action::Attribute, req.fid);
        self.answer(req, call, reply, || {
            xattrs::get(&self.ctx.delegate, req.fid, name.as_bytes(), size)
        });
    }

    fn listxattr(&self, req: &Request, size: u32, reply: Reply<XattrAnswer>) {
        let call = CallInfo::on(Action::Attribute, req.fid);
        let delegate = &self.ctx.delegate;
        self.answer(req, call, reply, || xattrs::list(delegate, req.fid, size));
    }

    fn removexattr(&self, req: &Request, name: &OsStr, reply: Reply<()>) {
        let call = CallInfo::on(Action::Attribute, req.fid);
        self.answer(req, call, reply, || {
            xattrs::remove(&self.ctx.delegate, req.fid, name.as_bytes())
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        fh: FileHandle,
        command: u32,
        data: &[u8],
        reply: Reply<IoctlAnswer>,
    ) {
        if req.fid == TEAM_DIRECTORY && command == COMMAND {
            return self.teams.begin_call(req, fh, data, reply);
        }
        reply.error(Errno::NOTTY);
    }
}
