//! The leases that this node's kernel holds, as granted by the owners: whether a lease is still valid when the mount answers, and
//! what to drop when it ends.
//!
//! A reply with a lease may cross the revocation of that lease. So the mount takes a [`LeaseTicket`] before it asks, and the kernel
//! is given the lease only if none of the same object was revoked since ([`KernelLeases::give`]). What the kernel was given is
//! remembered; a later revocation drops it.
//!
//! The owner does not notify a node of changes that this node asked for. So each such request of the delegate, from the mount or a
//! library, ends with `DelegateContext::forget_in_kernel` before it returns.
//!
//! When a program makes or removes a name, its kernel drops some attributes by itself when it gets the reply: those of the
//! directory, and link count and change time of what was removed. A notification is then needed only if another thread may still
//! hold an older reply. A thread takes its reply before its next request. So if all that the kernel holds of the inode was given in
//! replies to the thread that makes the change, the notification is left out ([`RequestOrigin`]).
//!
//! # Invariants
//! 1. Giving and revoking are ordered by one lock: a lease is given before the revocation, which then has the kernel drop it, or
//!    not at all.
//! 2. No file that is open on this node, or has unpublished writes here, has leased attributes: what its kernel shows of it changes
//!    without a request to the owner.
use crate::{Caller, Fid};
use forebay_proto::meta::LEASE_TERM;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A reply that was on its way for longer gives no lease.
const MAX_REPLY_AGE: Duration = LEASE_TERM.saturating_mul(2);
/// After this time the kernel holds nothing that it was given. It is longer than the term, for a thread of a program that takes its
/// reply late.
const KEPT_LIMIT: Duration = LEASE_TERM.saturating_mul(4);
/// How long grants and revocations are remembered, at least: longer than either matters.
const REMEMBERED: Duration = LEASE_TERM.saturating_mul(5);

/// A thread of a program of this node, as the kernel names it in requests to the mount. `None`: the kernel or a library asks, or the
/// thread cannot be seen from here.
pub type ProgramThread = Option<NonZeroU32>;

/// Who asks for a change.
#[derive(Debug, Clone, Copy)]
pub struct RequestOrigin {
    /// The user.
    pub caller: Caller,
    /// The thread that waits for the kernel's request.
    pub thread: ProgramThread,
}

impl From<Caller> for RequestOrigin {
    fn from(caller: Caller) -> RequestOrigin {
        let thread = None;
        RequestOrigin { caller, thread }
    }
}

/// When a request was made whose answer may be leased, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTicket {
    revocations: u64,
    asked: Instant,
    thread: ProgramThread,
}

/// What the kernel may keep of an answer, for [`LEASE_TERM`] at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelLease {
    /// The attributes.
    pub attributes: bool,
    /// The name that was looked up.
    pub entry: bool,
}

/// What of an inode is leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeasedPart {
    /// Its attributes.
    Attributes,
    /// Names of directories in it.
    Entries,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseRecord {
    given: Option<Instant>,
    /// Who was given all that the kernel may still have.
    thread: ProgramThread,
    /// The number of its last revocation.
    revoked: u64,
}

impl LeaseRecord {
    fn give(&mut self, thread: ProgramThread) {
        let now = Instant::now();
        let kept = |given: Instant| now.saturating_duration_since(given) < KEPT_LIMIT;
        if !self.given.is_some_and(kept) {
            self.thread = thread;
        } else if self.thread != thread {
            self.thread = None;
        }
        self.given = Some(now);
    }
}

#[derive(Default)]
struct LeaseRecords {
    revocations: u64,
    recent: HashMap<(Fid, LeasedPart), LeaseRecord>,
    older: HashMap<(Fid, LeasedPart), LeaseRecord>,
    began: Option<Instant>,
}

impl LeaseRecords {
    fn record(&mut self, what: (Fid, LeasedPart)) -> &mut LeaseRecord {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
            self.began = Some(now);
        }
        let older = self.older.get(&what).copied();
        self.recent
            .entry(what)
            .or_insert_with(|| older.unwrap_or_default())
    }
}

/// See the head of this file.
#[derive(Default)]
pub struct KernelLeases {
    on: AtomicBool,
    records: Mutex<LeaseRecords>,
}

impl KernelLeases {
    /// Turns leases on: this node has a mount now.
    pub(super) fn turn_on(&self) {
        self.on.store(true, Ordering::SeqCst);
    }

    /// Whether there is a kernel that keeps what is leased.
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// Before a request whose answer the kernel wants to keep; `None`: it keeps nothing.
    pub(super) fn ticket(&self, thread: ProgramThread) -> Option<LeaseTicket> {
        self.is_on().then(|| LeaseTicket {
            revocations: self.records.lock().revocations,
            asked: Instant::now(),
            thread,
        })
    }

    /// The kernel is about to be given a lease. Whether it may be.
    pub(super) fn give(&self, ticket: LeaseTicket, fid: Fid, part: LeasedPart) -> bool {
        if ticket.asked.elapsed() > MAX_REPLY_AGE {
            return false;
        }
        let mut records = self.records.lock();
        let record = records.record((fid, part));
        if record.revoked > ticket.revocations {
            return false;
        }
        record.give(ticket.thread);
        true
    }

    /// The kernel is about to rename within this directory: it keeps the time-out that the name had.
    pub(super) fn moves_into(&self, dir: Fid) {
        if self.is_on() {
            self.records
                .lock()
                .record((dir, LeasedPart::Entries))
                .give(None);
        }
    }

    /// A lease on this is over: the kernel is given none any more that was asked for before. Answers when it was given one last,
    /// if it may still have it. `by`: the thread by whose request it ends, if the kernel drops it after that of its own accord: then
    /// what that thread alone was given is not told.
    pub(super) fn revoke(&self, fid: Fid, part: LeasedPart, by: ProgramThread) -> Option<Instant> {
        let mut records = self.records.lock();
        records.revocations += 1;
        let revocations = records.revocations;
        let record = records.record((fid, part));
        record.revoked = revocations;
        match by.is_some() && record.thread == by {
            true => None,
            false => record.given.filter(|given| given.elapsed() < KEPT_LIMIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid(7);

    fn on() -> KernelLeases {
        let leases = KernelLeases::default();
        leases.turn_on();
        leases
    }

    #[test]
    fn without_a_kernel_nothing_is_asked_for() {
        assert!(KernelLeases::default().ticket(None).is_none());
    }

    #[test]
    fn a_lease_that_ended_while_its_answer_was_on_the_way_is_not_given() {
        let leases = on();
        let ticket = leases.ticket(None).unwrap();
        assert_eq!(leases.revoke(FILE, LeasedPart::Attributes, None), None);
        assert!(!leases.give(ticket, FILE, LeasedPart::Attributes));
        // What was asked for afterwards is, and so is another object.
        assert!(leases.give(ticket, Fid(8), LeasedPart::Attributes));
        assert!(leases.give(ticket, FILE, LeasedPart::Entries));
        let later = leases.ticket(None).unwrap();
        assert!(leases.give(later, FILE, LeasedPart::Attributes));
    }

    #[test]
    fn a_lease_that_was_given_is_known_when_it_ends() {
        let leases = on();
        let ticket = leases.ticket(None).unwrap();
        assert!(leases.give(ticket, FILE, LeasedPart::Attributes));
        assert!(leases.revoke(FILE, LeasedPart::Attributes, None).is_some());
        // Two that end it at once both have the kernel drop it, so that neither goes on too early.
        assert!(leases.revoke(FILE, LeasedPart::Attributes, None).is_some());
        assert_eq!(leases.revoke(FILE, LeasedPart::Entries, None), None);
    }

    #[test]
    fn a_thread_that_was_given_all_leases_has_its_kernel_told_of_no_end_by_its_own_request() {
        let leases = on();
        let threads = [1, 2].map(NonZeroU32::new);
        let give = |thread| {
            let ticket = leases.ticket(thread).unwrap();
            assert!(leases.give(ticket, FILE, LeasedPart::Attributes));
        };
        let told = |by| leases.revoke(FILE, LeasedPart::Attributes, by).is_some();
        give(threads[0]);
        assert!(!told(threads[0]));
        // The kernel has it until that request is answered, and others end it meanwhile.
        assert!(told(threads[1]) && told(None));
        // A request that was under way meanwhile is given none, all the same.
        let ticket = leases.ticket(threads[1]).unwrap();
        assert!(!told(threads[0]));
        assert!(!leases.give(ticket, FILE, LeasedPart::Attributes));
        // Another thread may have its answer, and not have taken it yet.
        give(threads[1]);
        assert!(told(threads[0]) && told(threads[1]));
        give(threads[0]);
        assert!(told(threads[0]));
    }

    #[test]
    fn who_cannot_be_told_from_others_has_its_kernel_told() {
        let leases = on();
        let ticket = leases.ticket(None).unwrap();
        assert!(leases.give(ticket, FILE, LeasedPart::Attributes));
        for by in [None, NonZeroU32::new(1)] {
            assert!(leases.revoke(FILE, LeasedPart::Attributes, by).is_some());
        }
    }
}
