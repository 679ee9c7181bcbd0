//! Teams: clients of one or more nodes that do the same thing at once, as the ranks of a job open one file.
//!
//! A call of a team goes in two levels. The clients of a node meet at their server (`local`); the last to come speaks for them.
//! The servers then reduce along the tree of [`forebay_fabric::ring`] to the call's root, which carries it out once, and the answer
//! comes back the same way. So a root among `n` servers receives `ceil(log2 n)` messages, however many clients there are.
//!
//! What a call is about is its users' business: values and answers are bytes here.
//!
//! # Invariants
//! - All clients of a team make the same calls in the same order, as in MPI; a client makes one at a time. Calls are told apart
//!   by their number in that order (*round*), which every client counts for itself, so that a call that fails leaves the next
//!   one alone. Clients that do different things after a failure of some are no team any more: they form one with another number.
//! - A call lasts [`Limits::whole`] and the wait for the node's own clients at most. Both grow from the deadline of the service,
//!   the first with the logarithm of the number of servers.
//! - A call is carried out once at most. What ends it early says whether that may have happened.

mod local;
mod rounds;

use crate::{Error, Member, Result};
use bytes::Bytes;
use forebay_fabric::Rank;
use forebay_fabric::ring::{Collectives, Fit, Group, Limits, Operation, Shape};
use local::{Local, Part};
use parking_lot::Mutex;
use rounds::Rounds;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The highest number that a team may have.
pub const MAX_NUMBER: u32 = (1 << 31) - 1;

/// Teams without clients that are remembered whole. Of others only how far they came is, so that one with the same number goes on
/// behind their last call.
const MOST_EMPTY: usize = 4096;

/// A team, described alike by all its clients (but for `here`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamPlan {
    /// Its number, [`MAX_NUMBER`] at most. Two teams that exist at once have different ones.
    pub number: u32,
    /// The members at whose nodes it has clients, in the same order everywhere.
    pub members: Vec<Member>,
    /// How many clients it has at this node.
    pub here: u32,
}

/// Calls of teams at one node: since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TeamCounts {
    /// Calls that this node took part in.
    pub calls: u64,
    /// Those of them that failed because a client or server was missing, slow or of another opinion.
    pub failed: u64,
}

#[derive(Default)]
struct Table {
    teams: HashMap<u32, Arc<Local>>,
    /// Of those that are not among them.
    left: Rounds,
}

impl Table {
    /// Forgets the teams without clients.
    fn clear(&mut self) {
        let left = &mut self.left;
        self.teams.retain(|number, local| {
            let stays = !local.empty();
            if !stays {
                left.keep(*number, local.begin());
            }
            stays
        });
    }
}

/// The teams that clients of one node are in.
pub struct Teams {
    collectives: Arc<Collectives>,
    me: Member,
    /// How long the clients of one node wait for each other.
    patience: Duration,
    limits: Limits,
    table: Mutex<Table>,
    calls: AtomicU64,
    failed: AtomicU64,
}

impl Teams {
    /// The teams of member `me`. `deadline`: how long a request may take.
    pub fn new(collectives: Arc<Collectives>, me: Member, deadline: Duration) -> Arc<Teams> {
        let per_level = deadline / 4;
        Arc::new(Teams {
            collectives,
            me,
            patience: deadline,
            // One level more than the servers' tree has: that of a node's own clients.
            limits: Limits {
                base: deadline + per_level,
                per_level,
            },
            table: Mutex::default(),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Takes one of the seats of a team at this node.
    ///
    /// # Errors
    /// `Refused` for a plan that cannot be; `EBUSY` if all seats are taken.
    pub fn join(self: &Arc<Teams>, plan: &TeamPlan) -> Result<Seat> {
        let refuse = |why: String| Err(Error::Refused(format!("team {}: {why}", plan.number)));
        if plan.number > MAX_NUMBER {
            return refuse(format!("the highest number is {MAX_NUMBER}"));
        }
        if plan.here == 0 || !plan.members.contains(&self.me) {
            return refuse("it has no client at this node".into());
        }
        let mut table = self.table.lock();
        let local = match table.teams.get(&plan.number) {
            Some(local) if local.plan == *plan => local.clone(),
            Some(other) if !other.empty() => {
                return refuse("its number is another team's; choose a new one".into());
            }
            other => {
                let ranks: Vec<Rank> = plan.members.iter().map(|m| Rank::from(*m)).collect();
                let shape = Shape::Fitted(Fit::default());
                let group = match Group::new(plan.number.into(), ranks, shape) {
                    Ok(group) => group,
                    Err(e) => return refuse(e.to_string()),
                };
                let next = match other {
                    Some(other) => other.begin(),
                    None => table.left.of(plan.number),
                };
                let local = Arc::new(Local::new(plan.clone(), group, next));
                if table.teams.len() >= MOST_EMPTY {
                    table.clear();
                }
                table.teams.insert(plan.number, local.clone());
                local
            }
        };
        // With the table locked, so that nobody takes it for empty meanwhile.
        match local.sit() {
            Some(next) => Ok(Seat {
                teams: self.clone(),
                local,
                next,
            }),
            None => Err(Errno::BUSY.into()),
        }
    }

    /// What this node took part in.
    pub fn counts(&self) -> TeamCounts {
        TeamCounts {
            calls: self.calls.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

/// One client's place in a team. Dropping it gives it up.
pub struct Seat {
    teams: Arc<Teams>,
    local: Arc<Local>,
    next: u64,
}

impl Seat {
    /// The team.
    pub fn plan(&self) -> &TeamPlan {
        &self.local.plan
    }

    /// The number of the next call.
    pub fn round(&self) -> u64 {
        self.next
    }

    /// `wanted` if it is in the team; else one that is.
    pub fn root(&self, wanted: Member) -> Member {
        let members = &self.local.plan.members;
        match members.contains(&wanted) {
            true => wanted,
            false => members[usize::from(wanted) % members.len()],
        }
    }

    /// Takes part in the team's next call. `root`, one of its members, is the same for all clients. `combine` makes one value of
    /// two, in any order; at the root `execute` runs once on all combined; its answer is everyone's.
    ///
    /// # Errors
    /// `Team`: someone was missing, slow, dead, or of another opinion. See the head of this file for how long that may take.
    pub fn call(
        &mut self,
        root: Member,
        value: Bytes,
        combine: &dyn Fn(Bytes, Bytes) -> Bytes,
        execute: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Bytes> {
        let round = self.next;
        self.next += 1;
        let (teams, local) = (&self.teams, &self.local);
        let operation = Operation {
            group: local.group.clone(),
            key: Bytes::new(),
            round,
            root: root.into(),
            limits: teams.limits,
        };
        let part = Part {
            round,
            value,
            combine,
            patience: teams.patience,
            me: teams.me,
        };
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let ask = |value| {
            count(&teams.calls);
            let collectives = &teams.collectives;
            let answer = collectives.reduce(&operation, value, combine, execute);
            if answer.is_err() {
                count(&teams.failed);
            }
            answer
        };
        let decline = || {
            count(&teams.calls);
            count(&teams.failed);
            teams.collectives.decline(&operation);
        };
        let answer = local.call(part, ask, decline);
        answer.map_err(|failure| Error::Team {
            number: local.plan.number,
            round,
            failure,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.local.leave(self.next);
    }
}

#[cfg(test)]
mod tests;
