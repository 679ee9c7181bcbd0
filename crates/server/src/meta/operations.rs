//! Operations of the namespace: each reads names and attributes, makes a plan and runs it; it starts again if another
//! operation changed them meanwhile.
//!
//! Until an operation that spans members has done its last step, a name may still show what it was before.
use super::attempt::AttemptError;
use super::coordinator::IntentCoordinator;
use super::local::LocalNamespace;
use super::requests::MemberCalls;
use crate::inodes::leases::LeasedObject;
use crate::{Attr, Caller, Error, Fid, Kind, Member, Result};
use forebay_proto::intents::{EntryTarget, IntentId};
use forebay_proto::meta::{AbortIntent, AskIntent, GetAttr, LeasedAttr};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sticky bit of a directory: only owners remove or rename.
const STICKY: u32 = 0o1000;

/// See the head of this file. `create`, `link`, `remove` and `rename` have the operations that change names.
pub(crate) struct NamespaceOperations {
    pub(super) local: Arc<LocalNamespace>,
    pub(super) members: Arc<MemberCalls>,
    pub(super) coordinator: Arc<IntentCoordinator>,
    /// Unused fids of other members, for new directories there.
    pub(super) fids: Mutex<HashMap<Member, Vec<Fid>>>,
}

impl NamespaceOperations {
    /// Runs `attempt` until it comes to an end: again when what it saw changed, and when another operation that held
    /// what it needs is over.
    ///
    /// # Errors
    /// `EBUSY` when others held it for as long as a request to another member may take.
    pub fn retry<R>(&self, mut attempt: impl FnMut() -> Result<R, AttemptError>) -> Result<R> {
        let (start, limit) = (Instant::now(), self.members.peers.deadline());
        let mut round = 0u32;
        loop {
            match attempt() {
                Ok(result) => return Ok(result),
                Err(AttemptError::Fail(e)) => return Err(e),
                // Mostly the next look finds it at rest; what changes for long must not take a whole processor. Nobody tells of such
                // a change: this is the backoff between optimistic attempts.
                Err(AttemptError::Changed) if round < 4 => {}
                Err(AttemptError::Changed) => std::thread::sleep(self.pause(round)),
                Err(AttemptError::Busy { at, by }) => self.await_release(at, by, round)?,
            }
            round += 1;
            if start.elapsed() > limit {
                return Err(Errno::BUSY.into());
            }
        }
    }

    /// Pauses grow, and differ between members, so that two that got in each other's way part.
    fn pause(&self, round: u32) -> Duration {
        let step = 1u64 << round.min(5);
        Duration::from_micros(500 * step + 130 * step * u64::from(self.local.member() % 8))
    }

    fn await_release(&self, at: Member, by: IntentId, round: u32) -> Result<()> {
        let pause = self.pause(round);
        if at == self.local.member() {
            self.local.holds.wait(by, pause);
            self.members.own.participant.move_lock.wait(by, pause);
        } else {
            // No member keeps a request until something is released, so that no answer waits for another one.
            std::thread::sleep(pause);
        }
        if round < 4 {
            return Ok(());
        }
        // It takes long: the holder may have crashed before it decided.
        let members = &self.members;
        match members.call(by.coordinator, AskIntent { intent: by })? {
            false => members.call(at, AbortIntent { intent: by }),
            true => Ok(()),
        }
    }

    /// `lease_to`: the member whose node's kernel wants to keep the answer. Names of directories can be leased, others cannot: they
    /// come and go, and the kernel would have to drop each of them.
    pub fn lookup(&self, parent: Fid, name: &[u8], lease_to: Option<Member>) -> Result<LeasedAttr> {
        let mut gone = None;
        self.retry(|| {
            let mut entry = self.local.get_entry(parent, name)?;
            let mut entry_leased = false;
            if let Some(member) = lease_to
                && entry.kind == Kind::Dir
            {
                let object = LeasedObject::Entry(parent, name);
                entry_leased = self.local.inodes.leases.grant(object, member);
                // Read again under the lease.
                entry = self.local.get_entry(parent, name)?;
                entry_leased &= entry.kind == Kind::Dir;
            }
            if gone == Some(entry) {
                // Still the same name after its inode went: the last step of a removal waits for this member.
                return Err(Errno::NOENT.into());
            }
            gone = Some(entry);
            Ok(LeasedAttr {
                entry_leased,
                ..self.leased_attr(entry, lease_to)?
            })
        })
    }

    /// Attributes of an inode anywhere. The caller has no locks.
    pub fn attr_of(&self, fid: Fid) -> Result<Attr> {
        let lease_to = None;
        let found = self.members.call(fid.owner(), GetAttr { fid, lease_to })?;
        Ok(found.attr)
    }

    /// Attributes of what an entry of this member names. An inode that is gone was removed since: look again.
    pub fn attr_of_entry(&self, entry: EntryTarget) -> Result<Attr, AttemptError> {
        Ok(self.leased_attr(entry, None)?.attr)
    }

    fn leased_attr(
        &self,
        entry: EntryTarget,
        lease_to: Option<Member>,
    ) -> Result<LeasedAttr, AttemptError> {
        let fid = entry.fid;
        match self.members.call(fid.owner(), GetAttr { fid, lease_to }) {
            Err(Error::Posix(Errno::STALE)) => Err(AttemptError::Changed),
            other => Ok(other?),
        }
    }

    /// The rule of sticky directories for removing or renaming `entry` of directory `(uid, mode)`.
    pub fn check_sticky(
        &self,
        uid: u32,
        mode: u32,
        entry: EntryTarget,
        caller: Caller,
    ) -> Result<(), AttemptError> {
        if mode & STICKY == 0 || caller.uid == 0 || caller.uid == uid {
            return Ok(());
        }
        if self.attr_of_entry(entry)?.uid != caller.uid {
            return Err(Errno::PERM.into());
        }
        Ok(())
    }
}
