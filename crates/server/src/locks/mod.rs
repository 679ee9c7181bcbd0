//! Advisory locks: those on the files this member owns, and what its own node waits for elsewhere.
//!
//! ```text
//! delegate --Lock--> owner of the file: Granted | Denied | Waiting (for whom)
//!    |                  |
//!    | Waiting:         +-- Notice, one way, when granted; `Lock` with the same token asks again in case it was lost
//!    +-- Waits -------> nodes of the owners it waits for:   what do they wait for?
//!    +-- Blockers ----> owners of those files:              and who is in their way?   ... until it comes back to itself
//! ```
//!
//! # Decisions
//! - **Locks live in memory** at the file's owner. If that member restarts, the locks on its files are gone; a node that
//!   held some meets another *service* at its next call about them, and that call fails with `ENOLCK`.
//! - **A node's end** frees what it held: in order (`Begin` of a session that will not be used), after a restart (`Begin`
//!   at its start), or because it is dead: whoever is kept waiting by a node that does not answer tells the keeper
//!   (`Suspect`), which asks that node itself and buries it only if the transport says that it is dead. A node that was
//!   buried alive is answered `Ended`, and what it held is lost to it in the same way.
//! - **Deadlock** is found by the request that closes the circle, when it begins to wait (and at times while it does): it
//!   asks its way from owner to owner, and it must find the same waits twice. So an edge can be missed by none: of two
//!   requests that close a circle together, each is known to its keeper before it looks, so the later look sees both. If
//!   both see it, the one with the greater name gives up. Only requests for which the kernel looks for deadlocks count
//!   (POSIX record locks).
//! - No request is held open while a lock is waited for, and no thread of the keeper.
//!
//! Invariant: the keeper's mutex is held for its own work only, never while a member is called or told.
mod keeper;
mod table;
mod waits;

#[cfg(test)]
mod tests;

pub use forebay_proto::locks as proto;
pub use table::{Held, Mode, Owner};
pub(crate) use waits::{Waiting, Waits, Woken};

use crate::{Error, Member, Peers, Result};
use forebay_data::Counter;
use forebay_storage::Store;
use keeper::{Answer, Grants, Keeper};
use parking_lot::Mutex;
use proto::{LocksReply, LocksRequest, Notice};
use std::sync::Arc;

/// See the head of this file.
pub struct Locks {
    peers: Arc<Peers>,
    lives: Counter,
    life: u64,
    keeper: Mutex<Keeper>,
    waits: Waits,
}

impl Locks {
    /// No locks yet.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn new(store: Arc<Store>, peers: Arc<Peers>) -> Result<Locks> {
        let lives = Counter::open(store, b"life", 1)?;
        let life = lives.next()?;
        Ok(Locks {
            peers,
            lives,
            life,
            keeper: Mutex::default(),
            waits: Waits::default(),
        })
    }

    /// The number of this life of the member: service as a keeper, first session as a user.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// A number for a new session.
    ///
    /// # Errors
    /// When it cannot be reserved on disk.
    pub fn next_session(&self) -> Result<u64> {
        self.lives.next()
    }

    /// What this node waits for.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Locks held and requests waiting here, of all nodes.
    pub fn counts(&self) -> (usize, usize) {
        self.keeper.lock().counts()
    }

    /// A request of this node has been granted.
    pub fn notice(&self, notice: Notice) {
        self.waits.granted(notice.token);
    }

    /// Answers a request of member `from`.
    ///
    /// # Errors
    /// None of its own; the type is that of every part.
    pub fn handle(&self, from: Member, request: LocksRequest) -> Result<LocksReply> {
        use LocksRequest as R;
        let (answer, grants) = match request {
            R::Lock {
                session,
                token,
                place,
                mode,
                pid,
                wait,
            } => self
                .keeper
                .lock()
                .lock((from, session, token), (place, mode, pid), wait),
            R::Unlock {
                session,
                token,
                place,
            } => self.keeper.lock().unlock((from, session, token), &place),
            R::Cancel {
                session,
                token,
                fid,
            } => self.keeper.lock().cancel((from, session, token), fid),
            R::Begin { session } => self.keeper.lock().begin(from, session),
            R::Suspect { member } => {
                let dropped = self.look_after(member);
                return Ok(match dropped {
                    true => LocksReply::Free,
                    false => LocksReply::Done { service: self.life },
                });
            }
            R::Test { place, mode } => {
                let found = self.keeper.lock().test(from, &place, mode);
                return Ok(found.map_or(LocksReply::Free, |by| LocksReply::Denied { by }));
            }
            R::Blockers { fid, member, token } => {
                let blockers = self.keeper.lock().blockers(fid, member, token);
                return Ok(LocksReply::Blockers(blockers));
            }
            R::Waits { owner } => {
                return Ok(LocksReply::Waits {
                    waits: self.waits.of(owner),
                    life: self.life,
                });
            }
        };
        self.tell(grants);
        let service = self.life;
        Ok(match answer {
            Answer::Granted => LocksReply::Granted { service },
            Answer::Denied(by) => LocksReply::Denied { by },
            Answer::Waiting(blockers) => LocksReply::Waiting { service, blockers },
            Answer::Done => LocksReply::Done { service },
            Answer::Late => LocksReply::Late,
            Answer::Ended => LocksReply::Ended,
        })
    }

    /// Drops what a member held in an earlier life, or all of it if it is dead; true if there may have been something.
    fn look_after(&self, member: Member) -> bool {
        match self.peers.locks(member, LocksRequest::Waits { owner: 0 }) {
            Ok(LocksReply::Waits { life, .. }) => {
                let (earlier, grants) = self.keeper.lock().renew(member, life);
                self.tell(grants);
                earlier
            }
            Err(Error::Fabric(forebay_fabric::Error::Dead(_))) => {
                let (held, grants) = self.keeper.lock().bury(member);
                if held {
                    tracing::warn!(member, "dead; its locks on files of this member are free");
                }
                self.tell(grants);
                held
            }
            _ => false,
        }
    }

    fn tell(&self, grants: Grants) {
        for (member, token) in grants {
            self.peers.notice(member, Notice { token });
        }
    }
}
