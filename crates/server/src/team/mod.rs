//! Teams: clients of one or more nodes that do the same thing at once, as the ranks of a job open one file.
//!
//! A call of a team goes in two levels. The clients of a node meet at their server (`local_team`); the last to come asks
//! for all of them. The servers then reduce along the tree of [`forebay_fabric::ring`] to the call's root, which executes
//! it once, and the answer comes back the same way. So a root among `n` servers receives `ceil(log2 n)` messages, however
//! many clients there are.
//!
//! Values and answers are opaque bytes here; what they mean is known to the users of a call.
//!
//! # Invariants
//! - All clients of a team make the same calls in the same order, as in MPI; a client makes one at a time. Calls are told apart
//!   by their number in that order (*round*), which every client counts for itself, so that a call that fails leaves the next
//!   one alone. If a failed call leaves clients at different rounds, they must form a new team, with another number.
//! - A call lasts [`CollectiveTimeouts::whole`] and the wait for the node's own clients at most. Both grow from the deadline of the service,
//!   the first with the logarithm of the number of servers.
//! - A call is executed once at most. What ends it early says whether that may have happened.

mod local_team;
mod past_rounds;

use crate::{Error, Member, Result};
use bytes::Bytes;
use forebay_fabric::Rank;
use forebay_fabric::ring::{
    CollectiveTimeouts, Collectives, Group, NetworkCost, Operation, TreeShape,
};
use forebay_proto::placement::rank_of;
use local_team::LocalTeam;
use parking_lot::{Condvar, Mutex};
use past_rounds::PastRounds;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The highest number that a team may have.
pub const MAX_NUMBER: u32 = (1 << 31) - 1;

/// Teams without clients that stay in the table. Of others only the next round is remembered.
const MAX_EMPTY_TEAMS: usize = 4096;

/// A team, described alike by all its clients (but for `here`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamSpec {
    /// Its number, [`MAX_NUMBER`] at most. Two teams that exist at once have different ones; one after the other may have the same.
    pub number: u32,
    /// The members at whose nodes it has clients, in the same order everywhere.
    pub members: Vec<Member>,
    /// How many clients it has at this node.
    pub here: u32,
}

impl TeamSpec {
    /// A digest of number and members, which make a team: where it is formed again, it goes on after its last call.
    pub fn identity(&self) -> u64 {
        let members = self.members.iter().flat_map(|m| m.to_le_bytes());
        let bytes = self.number.to_le_bytes().into_iter().chain(members);
        // FNV-1a, and the last steps of MurmurHash3, so that similar teams lie far apart.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ hash >> 33
    }
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
struct TeamTable {
    /// By number.
    teams: HashMap<u32, Arc<LocalTeam>>,
    /// Of teams that are not in the table.
    past: PastRounds,
}

impl TeamTable {
    /// Forgets the teams without clients.
    fn forget_empty(&mut self) {
        let past = &mut self.past;
        self.teams.retain(|_, local| {
            let stays = !local.empty();
            if !stays {
                past.keep(local.plan.identity(), local.next_round());
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
    client_wait: Duration,
    limits: CollectiveTimeouts,
    table: Mutex<TeamTable>,
    /// A client has left its team.
    left: Condvar,
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
            client_wait: deadline,
            // One level more than the servers' tree has: that of a node's own clients.
            limits: CollectiveTimeouts {
                base: deadline + per_level,
                per_level,
            },
            table: Mutex::default(),
            left: Condvar::new(),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Joins a team as one of its clients at this node. Waits for a place as long as a request may take, because the server hears
    /// a moment late that the processes which were clients before have ended.
    ///
    /// # Errors
    /// `Refused` for a plan that cannot be; `EBUSY` if all places stay taken, or the number is another team's that has clients here.
    pub fn join(self: &Arc<Teams>, plan: &TeamSpec) -> Result<TeamMembership> {
        self.join_within(plan, self.client_wait)
    }

    fn join_within(self: &Arc<Teams>, plan: &TeamSpec, wait: Duration) -> Result<TeamMembership> {
        let deadline = Instant::now() + wait;
        let mut table = self.table.lock();
        loop {
            let joined = self.try_join(&mut table, plan);
            let busy = matches!(&joined, Err(e) if e.errno() == Errno::BUSY);
            if !busy || self.left.wait_until(&mut table, deadline).timed_out() {
                return joined;
            }
        }
    }

    fn try_join(
        self: &Arc<Teams>,
        table: &mut TeamTable,
        plan: &TeamSpec,
    ) -> Result<TeamMembership> {
        let refuse = |why: String| Err(Error::Refused(format!("team {}: {why}", plan.number)));
        if plan.number > MAX_NUMBER {
            return refuse(format!("the highest number is {MAX_NUMBER}"));
        }
        if plan.here == 0 || !plan.members.contains(&self.me) {
            return refuse("it has no client at this node".into());
        }
        let local = match table.teams.get(&plan.number) {
            Some(local) if local.plan == *plan => local.clone(),
            Some(other) if !other.empty() => {
                return Err(Error::TeamTaken(plan.number));
            }
            _ => {
                let ranks: Vec<Rank> = plan.members.iter().map(|m| rank_of(*m)).collect();
                let shape = TreeShape::Fitted(NetworkCost::default());
                let group = match Group::new(plan.number.into(), ranks, shape) {
                    Ok(group) => group,
                    Err(e) => return refuse(e.to_string()),
                };
                if let Some(other) = table.teams.remove(&plan.number) {
                    table.past.keep(other.plan.identity(), other.next_round());
                }
                let next = table.past.next_round(plan.identity());
                let (plan, wait) = (plan.clone(), self.client_wait);
                let local = LocalTeam::new(plan, group, next, self.me, wait);
                let local = Arc::new(local);
                if table.teams.len() >= MAX_EMPTY_TEAMS {
                    table.forget_empty();
                }
                table.teams.insert(local.plan.number, local.clone());
                local
            }
        };
        // With the table locked, so that nobody takes it for empty meanwhile.
        match local.join() {
            Some(next) => Ok(TeamMembership {
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
pub struct TeamMembership {
    teams: Arc<Teams>,
    local: Arc<LocalTeam>,
    next: u64,
}

impl TeamMembership {
    /// The team.
    pub fn plan(&self) -> &TeamSpec {
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
        let answer = local.call(round, value, combine, ask, decline);
        answer.map_err(|failure| Error::Team {
            number: local.plan.number,
            round,
            failure,
        })
    }
}

impl Drop for TeamMembership {
    fn drop(&mut self) {
        self.local.leave(self.next);
        // With the table locked, so that nobody who has just found all places taken misses it.
        let _table = self.teams.table.lock();
        self.teams.left.notify_all();
    }
}

#[cfg(test)]
mod tests;
