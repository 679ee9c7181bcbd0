//! Deadlock detection by edge chasing (Chandy, Misra, Haas): no member has the whole wait-for graph, so the node that waits
//! follows the edges from member to member, and looks for a path back to itself. `locks` (of the server) says why no cycle is
//! missed and none is reported falsely.
use crate::locks::{WaitEnd, WaitingRequest};
use crate::{Member, Peers};
use forebay_proto::locks::{GetBlockers, GetWaits, LockOwner, LockToken, OwnerWait};
use std::collections::HashSet;
use std::time::Duration;

/// How long to wait, each time, for another request that sees the same cycle to give up. A grant ends the wait at once.
const YIELD_WAIT: Duration = Duration::from_millis(20);
/// How often.
const YIELD_TRIES: u32 = 100;

/// A wait on the way round, and whose it is.
type WaitStep = (Member, OwnerWait);

/// One owner's look.
pub struct DeadlockProbe<'a> {
    /// Who can be asked.
    pub peers: &'a Peers,
    /// Whose wait it is.
    pub me: LockOwner,
}

impl DeadlockProbe<'_> {
    /// Whether `waiting`, kept by these blockers, closes a cycle, and is the one to give up. If so, it counts as looking until
    /// it is cancelled: another request of the cycle that looks meanwhile still finds this wait, and must not give up too.
    pub fn closes_cycle(&self, waiting: &WaitingRequest, blockers: &[LockOwner]) -> bool {
        waiting.set_searching(true);
        let closes = self.is_to_give_up(waiting, blockers);
        waiting.set_searching(closes);
        closes
    }

    fn is_to_give_up(&self, waiting: &WaitingRequest, blockers: &[LockOwner]) -> bool {
        let mut seen = false;
        for _ in 0..YIELD_TRIES {
            let Some(first) = self.find(blockers) else {
                return false;
            };
            let Some(second) = self.find(blockers) else {
                return false;
            };
            if names(&first) != names(&second) {
                continue;
            }
            seen = true;
            let mine = (self.me.member, waiting.token);
            let other = second
                .iter()
                .any(|(member, wait)| wait.looking && (*member, wait.token) > mine);
            if !other {
                return true;
            }
            if waiting.wait(YIELD_WAIT) != WaitEnd::Time {
                return false;
            }
        }
        seen
    }

    /// The waits from a blocker back to me.
    fn find(&self, blockers: &[LockOwner]) -> Option<Vec<WaitStep>> {
        let mut seen: HashSet<LockOwner> = HashSet::new();
        let mut paths: Vec<(LockOwner, Vec<WaitStep>)> =
            blockers.iter().map(|owner| (*owner, Vec::new())).collect();
        while let Some((owner, path)) = paths.pop() {
            if owner == self.me {
                return Some(path);
            }
            if !seen.insert(owner) {
                continue;
            }
            for wait in self.waits(owner) {
                for next in self.blockers(owner.member, &wait) {
                    let mut path = path.clone();
                    path.push((owner.member, wait));
                    paths.push((next, path));
                }
            }
        }
        None
    }

    /// A member that does not answer waits for nothing.
    fn waits(&self, owner: LockOwner) -> Vec<OwnerWait> {
        let request = GetWaits { owner: owner.id };
        let reply = self.peers.call(owner.member, request);
        reply.map_or_else(|_| Vec::new(), |reply| reply.waits)
    }

    fn blockers(&self, member: Member, wait: &OwnerWait) -> Vec<LockOwner> {
        let request = GetBlockers {
            fid: wait.fid,
            member,
            token: wait.token,
        };
        let blockers = self.peers.call(wait.fid.owner(), request);
        blockers.unwrap_or_default()
    }
}

fn names(path: &[WaitStep]) -> Vec<(Member, LockToken)> {
    path.iter().map(|(m, wait)| (*m, wait.token)).collect()
}
