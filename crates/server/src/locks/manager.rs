//! All locks and waiting requests of the files one member owns: a state machine without clock, threads or messages.
//!
//! # Invariants
//! 1. A request in the queue conflicts with a lock that is held: every removal of a lock looks through the queue again.
//! 2. Waiting requests are looked at in the order they came, but a new request is checked against held locks only: it may be granted
//!    before requests that wait (as in the kernel: `F_SETLK` fails only because of locks that are held).
//! 3. A token is (slot, number): a node numbers the requests of a slot upwards, and has one at a time in it. A token is executed
//!    once; a request with a smaller number than the latest of its slot does nothing, and is answered `Late`.
//! 4. A session holds nothing after it has ended.
use super::table::LockTable;
use crate::{Fid, Member};
use forebay_proto::locks::{HeldLock, LockMode, LockOwner, LockRange, LockSpace, LockToken};
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    owner: LockOwner,
    token: LockToken,
    range: LockRange,
    mode: LockMode,
    pid: u32,
}

#[derive(Debug, Default)]
struct FileLocks {
    records: LockTable,
    flocks: LockTable,
    queue: VecDeque<Waiter>,
}

impl FileLocks {
    fn table(&mut self, space: LockSpace) -> &mut LockTable {
        match space {
            LockSpace::Record => &mut self.records,
            LockSpace::Flock => &mut self.flocks,
        }
    }

    fn conflicts(&self, owner: LockOwner, range: &LockRange, mode: LockMode) -> Vec<HeldLock> {
        let table = match range.space {
            LockSpace::Record => &self.records,
            LockSpace::Flock => &self.flocks,
        };
        table
            .conflicts(owner, &(range.start..range.end), mode)
            .collect()
    }
}

/// What became of the request that used a slot last.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SlotOutcome {
    Granted,
    Denied(HeldLock),
    Waiting(Fid),
    Done,
}

#[derive(Debug)]
struct LockSession {
    number: u64,
    /// Its node was found dead.
    ended: bool,
    slots: HashMap<u32, (u64, SlotOutcome)>,
}

/// The answer to a request to lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockResult {
    /// Locked.
    Granted,
    /// This is in the way.
    Denied(HeldLock),
    /// It waits for these.
    Waiting(Vec<LockOwner>),
    /// Done (or cancelled).
    Done,
    /// The slot is in use by a later request.
    Late,
    /// The session has ended.
    Ended,
}

/// Waiting requests that have been granted, to be told to their nodes.
pub type Grants = Vec<(Member, LockToken)>;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LockManager {
    files: HashMap<Fid, FileLocks>,
    sessions: HashMap<Member, LockSession>,
}

impl LockManager {
    /// Locks, or denies, or queues the request.
    pub fn lock(
        &mut self,
        (from, session, token): (Member, u64, LockToken),
        (range, mode, pid): (LockRange, LockMode, u32),
        wait: bool,
    ) -> (LockResult, Grants) {
        let mut grants = Grants::new();
        if let Some(answer) = self.known(from, session, token, &mut grants) {
            return (answer, grants);
        }
        let owner = range.owner_at(from);
        let fid = range.fid;
        // `flock` gives the old lock up before it asks for one of another mode, and lets in who waits for it.
        let file = self.files.entry(fid).or_default();
        let old = file.table(range.space).mode(owner, range.start);
        if range.space == LockSpace::Flock && old.is_some_and(|old| old != mode) {
            file.flocks.clear(owner, range.start..range.end);
            self.sweep(fid, &mut grants);
        }
        let file = self.files.entry(fid).or_default();
        let in_the_way = file.conflicts(owner, &range, mode);
        let answer = match in_the_way.first() {
            None => {
                file.table(range.space)
                    .set(owner, range.start..range.end, mode, pid);
                LockResult::Granted
            }
            Some(_) if wait => {
                file.queue.push_back(Waiter {
                    owner,
                    token,
                    range,
                    mode,
                    pid,
                });
                LockResult::Waiting(in_the_way.iter().map(|held| held.owner).collect())
            }
            Some(held) => LockResult::Denied(held.clone()),
        };
        let outcome = match &answer {
            LockResult::Denied(held) => SlotOutcome::Denied(held.clone()),
            LockResult::Waiting(_) => SlotOutcome::Waiting(fid),
            _ => SlotOutcome::Granted,
        };
        self.note(from, token, outcome);
        if answer == LockResult::Granted && mode == LockMode::Shared {
            // It may have been exclusive before.
            self.sweep(fid, &mut grants);
        }
        self.remove_if_empty(fid);
        (answer, grants)
    }

    /// Unlocks.
    pub fn unlock(
        &mut self,
        (from, session, token): (Member, u64, LockToken),
        range: &LockRange,
    ) -> (LockResult, Grants) {
        let mut grants = Grants::new();
        if let Some(answer) = self.known(from, session, token, &mut grants) {
            return (answer, grants);
        }
        let owner = range.owner_at(from);
        if let Some(file) = self.files.get_mut(&range.fid)
            && file.table(range.space).clear(owner, range.start..range.end)
        {
            self.sweep(range.fid, &mut grants);
        }
        self.note(from, token, SlotOutcome::Done);
        self.remove_if_empty(range.fid);
        (LockResult::Done, grants)
    }

    /// Ends a waiting request, unless it has been granted. A request that has not arrived yet never will do anything.
    pub fn cancel(
        &mut self,
        (from, session, token): (Member, u64, LockToken),
        fid: Fid,
    ) -> (LockResult, Grants) {
        let mut grants = Grants::new();
        let answer = match self.known(from, session, token, &mut grants) {
            Some(LockResult::Waiting(_)) => {
                self.leave_queue(fid, from, token);
                LockResult::Done
            }
            Some(LockResult::Denied(_)) | None => LockResult::Done,
            Some(other) => return (other, grants),
        };
        self.note(from, token, SlotOutcome::Done);
        (answer, grants)
    }

    /// A lock that keeps `from` from locking the place.
    pub fn test(&self, from: Member, range: &LockRange, mode: LockMode) -> Option<HeldLock> {
        let owner = range.owner_at(from);
        let file = self.files.get(&range.fid)?;
        let mut all = file.conflicts(owner, range, mode);
        all.sort_by_key(|held| held.range.start);
        all.into_iter().next()
    }

    /// Who keeps a request waiting; none if it does not wait.
    pub fn blockers(&self, fid: Fid, member: Member, token: LockToken) -> Vec<LockOwner> {
        let Some(file) = self.files.get(&fid) else {
            return Vec::new();
        };
        let mut waiting = file.queue.iter();
        let waiter = waiting.find(|w| (w.owner.member, w.token) == (member, token));
        waiter.map_or_else(Vec::new, |w| {
            let all = file.conflicts(w.owner, &w.range, w.mode);
            all.iter().map(|held| held.owner).collect()
        })
    }

    /// The node begins a session: those before it have ended. False if this one has ended too.
    pub fn begin(&mut self, from: Member, session: u64) -> (bool, Grants) {
        let mut grants = Grants::new();
        (self.enter(from, session, &mut grants), grants)
    }

    /// The node is alive in this incarnation: true if the session of an earlier one ended with this.
    pub fn renew(&mut self, member: Member, incarnation: u64) -> (bool, Grants) {
        let mut grants = Grants::new();
        let earlier = self
            .sessions
            .get(&member)
            .is_some_and(|s| s.number < incarnation);
        if earlier {
            self.enter(member, incarnation, &mut grants);
        }
        (earlier, grants)
    }

    /// The node is dead: its session has ended. True if it was alive before.
    pub fn end_dead(&mut self, member: Member) -> (bool, Grants) {
        let mut grants = Grants::new();
        let Some(session) = self.sessions.get_mut(&member) else {
            return (false, grants);
        };
        let ends_now = !session.ended;
        session.ended = true;
        session.slots.clear();
        self.drop_member(member, &mut grants);
        (ends_now, grants)
    }

    /// Locks held and requests waiting.
    pub fn counts(&self) -> (usize, usize) {
        let count = |f: &FileLocks| f.records.all().count() + f.flocks.all().count();
        let held = self.files.values().map(count).sum();
        (held, self.files.values().map(|f| f.queue.len()).sum())
    }

    /// Sees to the session of a request; true if it is the current one.
    fn enter(&mut self, from: Member, number: u64, grants: &mut Grants) -> bool {
        let fresh = || LockSession {
            number,
            ended: false,
            slots: HashMap::new(),
        };
        let session = self.sessions.entry(from).or_insert_with(fresh);
        if number > session.number {
            *session = fresh();
            self.drop_member(from, grants);
            return true;
        }
        number == session.number && !session.ended
    }

    /// The answer, if the request needs none of its own: it came before, or too late.
    fn known(
        &mut self,
        from: Member,
        session: u64,
        token: LockToken,
        grants: &mut Grants,
    ) -> Option<LockResult> {
        if !self.enter(from, session, grants) {
            return Some(LockResult::Ended);
        }
        let (last, outcome) = self.sessions.get(&from)?.slots.get(&token.slot)?;
        match (token.number.cmp(last), outcome) {
            (Ordering::Greater, SlotOutcome::Waiting(fid)) => {
                // Its node gave it up without an answer.
                let (fid, number) = (*fid, *last);
                self.leave_queue(fid, from, LockToken { number, ..token });
                None
            }
            (Ordering::Greater, _) => None,
            (Ordering::Less, _) => Some(LockResult::Late),
            (Ordering::Equal, SlotOutcome::Granted) => Some(LockResult::Granted),
            (Ordering::Equal, SlotOutcome::Denied(held)) => Some(LockResult::Denied(held.clone())),
            (Ordering::Equal, SlotOutcome::Waiting(fid)) => {
                Some(LockResult::Waiting(self.blockers(*fid, from, token)))
            }
            (Ordering::Equal, SlotOutcome::Done) => Some(LockResult::Done),
        }
    }

    fn leave_queue(&mut self, fid: Fid, from: Member, token: LockToken) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.queue
                .retain(|w| (w.owner.member, w.token) != (from, token));
        }
        self.remove_if_empty(fid);
    }

    fn note(&mut self, from: Member, token: LockToken, outcome: SlotOutcome) {
        if let Some(session) = self.sessions.get_mut(&from) {
            session.slots.insert(token.slot, (token.number, outcome));
        }
    }

    /// Grants what nothing is in the way of any more.
    fn sweep(&mut self, fid: Fid, grants: &mut Grants) {
        let before = grants.len();
        if let Some(file) = self.files.get_mut(&fid) {
            let mut at = 0;
            while let Some(w) = file.queue.get(at) {
                if !file.conflicts(w.owner, &w.range, w.mode).is_empty() {
                    at += 1;
                    continue;
                }
                let Some(w) = file.queue.remove(at) else {
                    break;
                };
                let range = w.range.start..w.range.end;
                file.table(w.range.space).set(w.owner, range, w.mode, w.pid);
                grants.push((w.owner.member, w.token));
                if w.mode == LockMode::Shared {
                    // It may have been exclusive before: those in front may be free now.
                    at = 0;
                }
            }
        }
        for (member, token) in grants[before..].iter().copied() {
            self.note(member, token, SlotOutcome::Granted);
        }
    }

    fn drop_member(&mut self, member: Member, grants: &mut Grants) {
        let fids: Vec<Fid> = self.files.keys().copied().collect();
        for fid in fids {
            if let Some(file) = self.files.get_mut(&fid) {
                file.queue.retain(|w| w.owner.member != member);
                let records = file.records.drop_member(member);
                if file.flocks.drop_member(member) || records {
                    self.sweep(fid, grants);
                }
            }
            self.remove_if_empty(fid);
        }
    }

    fn remove_if_empty(&mut self, fid: Fid) {
        let empty =
            |f: &FileLocks| f.records.is_empty() && f.flocks.is_empty() && f.queue.is_empty();
        if self.files.get(&fid).is_some_and(empty) {
            self.files.remove(&fid);
        }
    }
}
