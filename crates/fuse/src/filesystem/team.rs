//! The directory of teams: processes make collective calls by an `ioctl` on it (`forebay_client::team_ioctl`).
//!
//! It is `.forebay-teams` in the root of the mount; it belongs to the server and is not listed. It is empty, except for files that
//! a team has just opened: the thread that asked for such a file finds it there, once. The kernel may keep the directory's
//! attributes and name, so that a call costs no look-up. Only the user of the service may open it.
//!
//! # Invariants
//! - A call of a team waits for others, so it has a thread of its own; threads that answer requests never wait for a team. A
//!   process that is killed does not wait for it (`calls`).
//! - The kernel does not check permissions on the path of a call. The call's root does, for the user and the groups that the
//!   process had when it joined the team.
//! - A process is a member of its team (`TeamMembership`) while it has the directory open. When it closes the directory, files that
//!   were opened for it and not taken are closed.
//! - Only the thread for which a team opened a file gets the team's handle at its `open`, and the attributes from the team's call
//!   before that.
mod calls;

use super::context::MountContext;
use crate::attempt::{TEAM_DIRECTORY, attempt};
use crate::protocol::{EntryAnswer, FileHandle, IoctlAnswer, Reply, Request};
use crate::thread_status::ThreadStatus;
use calls::TeamCalls;
use forebay_client::embedded::EmbeddedClient;
use forebay_client::team_ioctl::wire::{FileAttributes, TeamOp, grant};
use forebay_client::{EmbeddedTeam, TeamSpec};
use forebay_server::delegate::{Handle, OpenedFile};
use forebay_server::proto::Inode;
use forebay_server::{Attr, Caller, Fid, Kind, Lamination, OpenFlags, Result, Time};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long the kernel may keep entries that never change.
const TEAM_ENTRY_TIMEOUT: Duration = Duration::from_secs(3600);
/// Stack of a thread that makes a call.
const CALL_STACK: usize = 512 << 10;

/// The teams that processes of this mount are in.
pub(super) struct TeamDirectory {
    ctx: Arc<MountContext>,
    /// By the handle of the directory that each has open.
    processes: Mutex<HashMap<u64, TeamProcess>>,
    /// What was opened and not taken yet.
    granted: Mutex<Vec<OpenedForThread>>,
    /// How many those are: usually none, and nobody looks.
    waiting: AtomicUsize,
    calls: Arc<TeamCalls>,
}

#[derive(Default)]
struct TeamProcess {
    /// None while a call is under way, and before the first.
    team: Option<EmbeddedTeam>,
    /// The last handle on each file.
    open: HashMap<u64, Handle>,
}

/// What a process asks for.
enum TeamIoctl {
    /// To become a member of a team; with the groups of the process.
    Join(Vec<u32>),
    /// A call of the team that it is in.
    Of(EmbeddedTeam),
}

struct OpenedForThread {
    directory: u64,
    thread: u32,
    flags: OpenFlags,
    opened: OpenedFile,
}

impl TeamDirectory {
    pub fn new(ctx: Arc<MountContext>) -> Arc<TeamDirectory> {
        Arc::new(TeamDirectory {
            ctx,
            processes: Mutex::default(),
            granted: Mutex::default(),
            waiting: AtomicUsize::new(0),
            calls: Arc::default(),
        })
    }

    /// What is opened for the thread and not taken: all of those, and which it is.
    fn find(&self, fid: Fid, thread: u32) -> Option<(MutexGuard<'_, Vec<OpenedForThread>>, usize)> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let granted = self.granted.lock();
        let own = |g: &OpenedForThread| g.opened.attr.fid == fid && g.thread == thread;
        let at = granted.iter().position(own)?;
        Some((granted, at))
    }

    /// What the service's own files do not answer: the attributes of the directory itself, and of a file that a team has just opened
    /// for this thread.
    pub fn attr(&self, fid: Fid, thread: u32) -> Option<Attr> {
        match fid == TEAM_DIRECTORY {
            true => Some(directory()),
            false => self.opened_attr(fid, thread),
        }
    }

    fn opened_attr(&self, fid: Fid, thread: u32) -> Option<Attr> {
        let found = self.find(fid, thread);
        let attr = found.map(|(granted, at)| granted[at].opened.attr.clone())?;
        Some(self.ctx.delegate.names.as_seen(attr))
    }

    /// The handle that a team has just opened for this thread.
    pub fn take(&self, fid: Fid, flags: OpenFlags, thread: u32) -> Option<OpenedFile> {
        let (mut granted, at) = self.find(fid, thread)?;
        // One that truncates is never the team's, whose flags say nothing of that.
        if granted[at].flags != flags {
            return None;
        }
        let taken = granted.swap_remove(at).opened;
        self.waiting.store(granted.len(), Ordering::Relaxed);
        Some(taken)
    }

    /// The process has closed the directory.
    pub fn leave(&self, directory: u64) {
        if self.processes.lock().remove(&directory).is_none() {
            return;
        }
        let untaken: Vec<OpenedForThread> = {
            let mut granted = self.granted.lock();
            let untaken = granted.extract_if(.., |g| g.directory == directory);
            let untaken = untaken.collect();
            self.waiting.store(granted.len(), Ordering::Relaxed);
            untaken
        };
        for granted in untaken {
            // Tried again in the background.
            let _ = self.ctx.delegate.release(granted.opened.handle);
        }
    }

    fn join(
        &self,
        directory: u64,
        op: &TeamOp,
        caller: Caller,
        groups: Vec<u32>,
    ) -> Result<FileAttributes, Errno> {
        let TeamOp::Join {
            number,
            here,
            members,
        } = op
        else {
            return Err(Errno::INVAL);
        };
        // Not locked while a place in the team is waited for.
        match self.processes.lock().entry(directory) {
            Entry::Occupied(_) => return Err(Errno::ISCONN),
            Entry::Vacant(entry) => _ = entry.insert(TeamProcess::default()),
        }
        let client = EmbeddedClient::new(self.ctx.delegate.clone(), caller);
        let all = client.plan_of_all(*number, *here);
        let plan = match members.is_empty() {
            true => all,
            false => TeamSpec {
                members: members.clone(),
                ..all
            },
        };
        let joined = client.team(&plan);
        let mut processes = self.processes.lock();
        match joined {
            Ok(team) => {
                // Unless the process is gone.
                if let Some(process) = processes.get_mut(&directory) {
                    process.team = Some(team.by_mode(groups));
                }
                Ok(FileAttributes::default())
            }
            Err(e) => {
                processes.remove(&directory);
                tracing::warn!(error = %e, "a process cannot join a team");
                let busy = e.errno() == Errno::BUSY;
                Err(if busy { Errno::BUSY } else { Errno::INVAL })
            }
        }
    }

    /// Makes a call of a team for a process.
    fn call(
        &self,
        team: &mut EmbeddedTeam,
        directory: u64,
        op: &TeamOp,
        thread: u32,
    ) -> Result<FileAttributes> {
        match op {
            TeamOp::Join { .. } => Ok(FileAttributes::default()),
            TeamOp::Stat { path } => {
                let seen = team.stat(OsStr::from_bytes(path).as_ref())?;
                Ok(shown(&seen))
            }
            TeamOp::Open { path, options } => {
                let path = OsStr::from_bytes(path);
                let opened = team.open(path.as_ref(), options)?;
                let answer = shown(&opened.attr);
                self.grant(OpenedForThread {
                    directory,
                    thread,
                    flags: options.handle_flags(),
                    opened,
                });
                Ok(answer)
            }
            TeamOp::Close { ino } => {
                let handle = {
                    let mut processes = self.processes.lock();
                    processes
                        .get_mut(&directory)
                        .and_then(|s| s.open.remove(ino))
                };
                match handle {
                    Some(handle) => Ok(shown(&team.close(handle)?)),
                    None => {
                        team.skip();
                        Err(Errno::BADF.into())
                    }
                }
            }
        }
    }

    fn grant(&self, granted: OpenedForThread) {
        let mut processes = self.processes.lock();
        let Some(process) = processes.get_mut(&granted.directory) else {
            // The process is gone.
            drop(processes);
            let _ = self.ctx.delegate.release(granted.opened.handle);
            return;
        };
        process
            .open
            .insert(granted.opened.attr.fid.0, granted.opened.handle);
        // With `processes` locked, so that it is found when the process leaves.
        let mut all = self.granted.lock();
        all.push(granted);
        self.waiting.store(all.len(), Ordering::Relaxed);
    }

    /// Answers an `ioctl` on the directory, now or from a thread.
    pub fn begin_call(
        self: &Arc<TeamDirectory>,
        req: &Request,
        fh: FileHandle,
        data: &[u8],
        reply: Reply<IoctlAnswer>,
    ) {
        let (caller, thread) = (req.caller, req.pid);
        let Some(op) = TeamOp::decode(data) else {
            return reply.error(Errno::INVAL);
        };
        if thread == 0 {
            // Of another world of process numbers: the kernel cannot tell such threads apart, and one might get another's handle.
            return reply.error(Errno::OPNOTSUPP);
        }
        let (teams, directory) = (self.clone(), fh.0);
        let call = match op {
            TeamOp::Join { .. } => match ThreadStatus::new(thread).groups() {
                Some(groups) => TeamIoctl::Join(groups),
                None => return reply.error(Errno::OPNOTSUPP),
            },
            _ => match teams
                .processes
                .lock()
                .get_mut(&directory)
                .map(|s| s.team.take())
            {
                Some(Some(team)) => TeamIoctl::Of(team),
                // Another thread of the process makes one; or it has not joined.
                Some(None) => return reply.error(Errno::BUSY),
                None => return reply.error(Errno::NOTCONN),
            },
        };
        let answer = teams.calls.begin(thread, reply);
        let started = std::thread::Builder::new()
            .name("team call".into())
            .stack_size(CALL_STACK)
            .spawn(move || {
                let outcome = match call {
                    TeamIoctl::Join(groups) => teams.join(directory, &op, caller, groups),
                    TeamIoctl::Of(mut team) => {
                        let outcome = attempt("team call", Fid::ROOT, || {
                            teams.call(&mut team, directory, &op, thread)
                        });
                        if let Some(process) = teams.processes.lock().get_mut(&directory) {
                            process.team = Some(team);
                        }
                        outcome
                    }
                };
                // Unless it was killed meanwhile.
                if let Some(reply) = answer.take() {
                    reply.answer(outcome.map(|shown| IoctlAnswer(shown.encode(&op).to_vec())));
                }
            });
        if let Err(error) = started {
            // The closure is gone, and the reply in it has answered EIO; the process is in no team any more.
            tracing::error!(%error, "no thread for a call of a team; raise the limit on processes");
        }
    }

    /// Whether a name is where the service's own files are not: it is the directory's in the root, or in the directory.
    pub fn has_name(parent: Fid, name: &[u8]) -> bool {
        parent == TEAM_DIRECTORY
            || (parent == Fid::ROOT
                && name == forebay_client::team_ioctl::wire::DIRECTORY.as_bytes())
    }

    /// Looks such a name up: the directory, or what was opened in it for the thread that asks.
    pub fn lookup(&self, req: &Request, name: &[u8], reply: Reply<EntryAnswer>) {
        let kept = |attr, ttl| EntryAnswer {
            attr: Some(attr),
            attr_ttl: ttl,
            entry_ttl: ttl,
        };
        if req.fid != TEAM_DIRECTORY {
            return reply.answer(Ok(kept(directory(), TEAM_ENTRY_TIMEOUT)));
        }
        if let Some(fid) = self.ctx.caches.renewed(name) {
            let names = &self.ctx.delegate.names;
            let seen = match self.ctx.policy.alone {
                // A file that was changed around the mount need not be open here.
                true => attempt("look up", fid, || names.getattr(fid)),
                false => names.seen(fid).ok_or(Errno::STALE),
            };
            return reply.answer(seen.map(|attr| kept(attr, Duration::ZERO)));
        }
        let ino = std::str::from_utf8(name).ok();
        let ino = ino.and_then(|text| u64::from_str_radix(text, 16).ok());
        let found = ino.filter(|ino| grant(*ino).as_bytes() == name);
        let attr = found.and_then(|ino| self.opened_attr(Fid(ino), req.pid));
        let entry = attr.map(|attr| self.ctx.policy.entry(attr));
        reply.answer(entry.ok_or(Errno::NOENT));
    }
}

/// The directory never changes.
fn directory() -> Attr {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Attr {
        lamination: Lamination::Permanent,
        ..Inode::new(Kind::Dir, 0o500, uid, gid, Time::default()).attr(TEAM_DIRECTORY)
    }
}

fn shown(attr: &Attr) -> FileAttributes {
    FileAttributes {
        ino: attr.fid.0,
        size: attr.size,
        mtime: (attr.mtime.secs, attr.mtime.nanos),
        mode: attr.mode & 0o7777,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        kind: match attr.kind {
            Kind::File => 1,
            Kind::Dir => 2,
            Kind::Symlink => 3,
            Kind::Fifo => 4,
            Kind::Socket => 5,
            Kind::CharDevice => 6,
            Kind::BlockDevice => 7,
        },
        generation: attr.generation,
    }
}

#[cfg(test)]
mod tests;
