//! Looking for a circle of owners that wait for each other; see `locks` for why none is missed or imagined.
use crate::locks::proto::{LocksReply, LocksRequest, Token, Wait};
use crate::locks::{Owner, Waiting, Woken};
use crate::{Member, Peers};
use std::collections::HashSet;
use std::time::Duration;

/// Another request that sees the circle too gets so long, so often, to give up.
const POLITE: Duration = Duration::from_millis(5);
const TIMES: u32 = 40;

/// A wait on the way round, and whose it is.
type Step = (Member, Wait);

/// One owner's look.
pub struct Circle<'a> {
    /// Who can be asked.
    pub peers: &'a Peers,
    /// Whose wait it is.
    pub me: Owner,
}

impl Circle<'_> {
    /// Whether `waiting`, kept by these blockers, closes a circle, and is the one to give up.
    pub fn closes(&self, waiting: &Waiting, blockers: &[Owner]) -> bool {
        let mut seen = false;
        for _ in 0..TIMES {
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
            if waiting.wait(POLITE) != Woken::Time {
                return false;
            }
        }
        seen
    }

    /// The waits from a blocker back to me.
    fn find(&self, blockers: &[Owner]) -> Option<Vec<Step>> {
        let mut seen: HashSet<Owner> = HashSet::new();
        let mut paths: Vec<(Owner, Vec<Step>)> =
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
    fn waits(&self, owner: Owner) -> Vec<Wait> {
        match self
            .peers
            .locks(owner.member, LocksRequest::Waits { owner: owner.id })
        {
            Ok(LocksReply::Waits { waits, .. }) => waits,
            _ => Vec::new(),
        }
    }

    fn blockers(&self, member: Member, wait: &Wait) -> Vec<Owner> {
        let request = LocksRequest::Blockers {
            fid: wait.fid,
            member,
            token: wait.token,
        };
        match self.peers.locks(wait.fid.owner(), request) {
            Ok(LocksReply::Blockers(owners)) => owners,
            _ => Vec::new(),
        }
    }
}

fn names(path: &[Step]) -> Vec<(Member, Token)> {
    path.iter().map(|(m, wait)| (*m, wait.token)).collect()
}
