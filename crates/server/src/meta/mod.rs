//! The namespace and attributes that one member owns: its directories with their entries, and its inodes.
//!
//! Every operation is a plan of needs and steps (`steps`). A plan of one member is one batch. A plan that spans members is
//! an intent (`plan`): the directory's owner coordinates, holds what the plan needs at every member, decides with
//! one batch (its own changes and the intent record: the commit point), has the steps done everywhere, and forgets.
//!
//! Invariants:
//! - Entries live at their directory's owner (`fid.owner()`). New files, symlinks, FIFOs and sockets get their inode
//!   there too; new directories go to the member that `names::home` says.
//! - No inode lock is held while another member is called.
//! - Before the commit point nothing is visible and everything can be taken back; after it, everything gets done,
//!   across crashes of any member, each step once.
//! - The batch that takes a file's last name removes the file whole (`FilesHook::remove_at_once`), or notes it in
//!   `keys::ORPHANS`; then `files` is told after.
mod applied;
mod attrs;
pub mod check;
mod create;
pub(crate) mod entries;
mod gate;
mod intents;
mod link;
mod links;
mod lookup;
mod marks;
pub(crate) mod names;
mod plan;
pub(crate) mod records;
mod recover;
mod remove;
mod rename;
pub mod steps;
#[cfg(test)]
mod tests;
mod xattrs;

pub use forebay_proto::meta as proto;
pub use links::{FilesHook, MetaPeers};
pub use recover::Tender;

use crate::inodes::Inodes;
use crate::{Error, Fid, Member, Result, Time};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use proto::{IntentId, MetaReply, MetaRequest};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why an attempt of an operation ended.
#[derive(Debug)]
pub(crate) enum Stop {
    /// For good.
    Fail(Error),
    /// What it saw is no longer so: look again.
    Changed,
    /// Intent `by` holds something at member `at`: try again when it is over.
    Busy { at: Member, by: IntentId },
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(e: E) -> Stop {
        Stop::Fail(e.into())
    }
}

/// How long an operation tries again while others hold what it needs, before `EBUSY`.
const PATIENCE: Duration = Duration::from_secs(10);
/// Dead directories remembered, so that processes inside them still get answers.
const GRAVEYARD: usize = 1024;

/// One member's namespace.
pub struct Meta {
    pub(crate) store: Arc<Store>,
    pub(crate) inodes: Arc<Inodes>,
    peers: Arc<dyn MetaPeers>,
    files: Arc<dyn FilesHook>,
    pub(crate) marks: marks::Marks,
    intents: intents::Intents,
    applied: applied::Applied,
    gate: gate::Gate,
    /// Unused fids of other members, for new directories there.
    fids: Mutex<HashMap<Member, Vec<Fid>>>,
    graveyard: Mutex<VecDeque<Fid>>,
    clock: fn() -> Time,
    patience: Duration,
    /// Tests only: called before every batch; an error means that the member crashed just before it.
    #[cfg(test)]
    cut: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl Meta {
    /// The namespace in `store`. Makes the root directory if this is member 0 and there is none; calls no one.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub fn new(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        peers: Arc<dyn MetaPeers>,
        files: Arc<dyn FilesHook>,
    ) -> Result<Meta> {
        let meta = Meta {
            marks: marks::Marks::default(),
            intents: intents::Intents::open(&store, peers.member())?,
            applied: applied::Applied::open(&store)?,
            gate: gate::Gate::open(&store)?,
            fids: Mutex::default(),
            graveyard: Mutex::default(),
            clock: Time::now,
            patience: PATIENCE,
            #[cfg(test)]
            cut: Arc::new(|| Ok(())),
            store,
            inodes,
            peers,
            files,
        };
        meta.load()?;
        Ok(meta)
    }

    /// This member.
    pub fn member(&self) -> Member {
        self.peers.member()
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// Answers a request of a delegate or of another member, from any thread.
    ///
    /// # Errors
    /// The errno of the system call; fabric errors if another member that is needed does not answer.
    pub fn handle(&self, request: MetaRequest) -> Result<MetaReply> {
        use MetaRequest as R;
        match request {
            R::Lookup { parent, name } => self.lookup(parent, &name).map(MetaReply::Attr),
            R::GetAttr { fid } => self.getattr(fid).map(MetaReply::Attr),
            R::SetAttr { fid, set, caller } => self.setattr(fid, &set, caller).map(MetaReply::Attr),
            R::Create {
                parent,
                name,
                new,
                caller,
                exclusive,
            } => {
                let (attr, made) = self.create(parent, &name, &new, caller, exclusive)?;
                Ok(MetaReply::Created(attr, made))
            }
            R::Link { fid, parent, name } => self.link(fid, parent, &name).map(MetaReply::Attr),
            R::Unlink {
                parent,
                name,
                caller,
            } => self.unlink(parent, &name, caller).map(done),
            R::Rmdir {
                parent,
                name,
                caller,
            } => self.rmdir(parent, &name, caller).map(done),
            R::Rename {
                from,
                name,
                to,
                to_name,
                flags,
                caller,
            } => self
                .rename(from, &name, to, &to_name, flags, caller)
                .map(done),
            R::ReadDir { fid, after, limit } => self
                .readdir(fid, after.as_deref(), limit)
                .map(MetaReply::Entries),
            R::ReadLink { fid } => self.readlink(fid).map(MetaReply::Bytes),
            R::Parent { fid } => self.parent(fid).map(MetaReply::Parent),
            R::GetXattr { fid, name } => self.getxattr(fid, &name).map(MetaReply::Bytes),
            R::SetXattr {
                fid,
                name,
                value,
                create,
                replace,
            } => self.setxattr(fid, &name, value, create, replace).map(done),
            R::ListXattr { fid } => self.listxattr(fid).map(MetaReply::Names),
            R::RemoveXattr { fid, name } => self.removexattr(fid, &name).map(done),
            R::Peek { dir, name } => self.peek(dir, &name).map(MetaReply::Entry),
            R::Mint { count } => self.mint(count).map(MetaReply::Fids),
            R::Prepare {
                intent,
                below,
                needs,
            } => stop_reply(self.prepare(intent, below, needs)),
            R::Finish {
                intent,
                below,
                part,
            } => self.apply_part(intent, below, &part).map(done),
            R::Remake {
                intent,
                below,
                makes,
            } => self.remake(intent, below, makes).map(done),
            R::Sync => Ok(done(self.store.barrier()?)),
            R::Abort { intent } => self.abort(intent).map(done),
            R::Ask { intent } => Ok(MetaReply::Live(self.intents.is_live(intent))),
            R::Gate { intent } => stop_reply(self.take_gate(intent)),
        }
    }

    /// Asks another member, or this one, without ever going through the fabric to oneself.
    pub(crate) fn call(&self, to: Member, request: MetaRequest) -> Result<MetaReply> {
        if to == self.member() {
            self.handle(request)
        } else {
            self.peers.ask(to, request)
        }
    }

    /// Every batch of the namespace goes through here.
    pub(crate) fn apply(&self, batch: Batch) -> Result<()> {
        #[cfg(test)]
        (self.cut)()?;
        Ok(self.store.apply(batch)?)
    }

    /// Tells of a landed batch. The caller has no locks.
    pub(crate) fn settle(&self, after: steps::After) {
        for fid in after.orphans {
            self.files.orphaned(fid);
        }
        for fid in after.buried {
            let mut graveyard = self.graveyard.lock();
            graveyard.push_back(fid);
            let oldest = if graveyard.len() > GRAVEYARD {
                graveyard.pop_front()
            } else {
                None
            };
            drop(graveyard);
            if let Some(oldest) = oldest {
                // What cannot be removed now is removed at the next start.
                if let Err(e) = self.remove_dead(oldest) {
                    tracing::warn!(
                        "dead directory {:#x} stays until the next start: {e}",
                        oldest.0
                    );
                }
            }
        }
    }

    /// Removes the record of a dead directory.
    pub(crate) fn remove_dead(&self, fid: Fid) -> Result<()> {
        let _lock = self.inodes.lock(fid);
        let mut batch = Batch::new();
        self.inodes.remove(&mut batch, fid)?;
        self.apply(batch)
    }

    /// Runs `attempt` until it comes to an end: again when what it saw changed, and when another operation that held
    /// what it needs is over.
    ///
    /// # Errors
    /// `EBUSY` when others held it all the time.
    pub(crate) fn retry<R>(&self, mut attempt: impl FnMut() -> Result<R, Stop>) -> Result<R> {
        let start = Instant::now();
        let mut round = 0u32;
        loop {
            match attempt() {
                Ok(result) => return Ok(result),
                Err(Stop::Fail(e)) => return Err(e),
                // Mostly the next look finds it at rest; what changes for long must not take a whole processor.
                Err(Stop::Changed) if round < 4 => {}
                Err(Stop::Changed) => std::thread::sleep(self.pause(round)),
                Err(Stop::Busy { at, by }) => self.await_release(at, by, round)?,
            }
            round += 1;
            if start.elapsed() > self.patience {
                return Err(Errno::BUSY.into());
            }
        }
    }

    /// Pauses grow, and differ between members, so that two that got in each other's way part.
    fn pause(&self, round: u32) -> Duration {
        let step = 1u64 << round.min(5);
        Duration::from_micros(500 * step + 130 * step * u64::from(self.member() % 8))
    }

    fn await_release(&self, at: Member, by: IntentId, round: u32) -> Result<()> {
        let pause = self.pause(round);
        if at != self.member() || !self.marks.wait(by, pause) {
            std::thread::sleep(pause);
        }
        if round < 4 {
            return Ok(());
        }
        // It takes long: the holder may have crashed before it decided.
        match self.call(by.coordinator, MetaRequest::Ask { intent: by })? {
            MetaReply::Live(false) => self.call(at, MetaRequest::Abort { intent: by }).map(drop),
            _ => Ok(()),
        }
    }
}

fn done(_: ()) -> MetaReply {
    MetaReply::Done
}

/// Refusals that the asker acts on travel as replies.
fn stop_reply(result: Result<(), Stop>) -> Result<MetaReply> {
    match result {
        Ok(()) => Ok(MetaReply::Done),
        Err(Stop::Changed) => Ok(MetaReply::Changed),
        Err(Stop::Busy { by, .. }) => Ok(MetaReply::Busy(by)),
        Err(Stop::Fail(e)) => Err(e),
    }
}

/// The other direction of `stop_reply`, at the asker.
pub(crate) fn reply_stop(at: Member, reply: MetaReply) -> Result<(), Stop> {
    match reply {
        MetaReply::Changed => Err(Stop::Changed),
        MetaReply::Busy(by) => Err(Stop::Busy { at, by }),
        _ => Ok(()),
    }
}

/// A member answered something else than the question asks for.
pub(crate) fn unexpected(to: Member, reply: &MetaReply) -> Error {
    Error::Refused(format!(
        "member {to} answered {reply:?}; do all members run the same version?"
    ))
}
