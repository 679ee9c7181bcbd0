//! Collectives over any fabric: each member of a group calls [`Collectives::reduce`] with its value, the root runs the operation
//! once on all of them, and everyone gets its answer.
//!
//! # How
//! A rank keeps what its children send (a value, and the right to answer it) until its own caller comes; the caller's thread
//! combines, asks the parent with one request, and hands the reply down. So there is no thread of its own, a message up and one
//! down for each link of the tree, and a handler here never blocks.
//!
//! # Invariants
//! - **The operation runs once at most**, and only on the values of all members: a rank that misses one sends nothing up but the
//!   failure.
//! - **Every wait is bounded.** A rank waits for its children as long as
//!   [`CollectiveTimeouts::gather`](super::CollectiveTimeouts::gather) says, and for the whole operation as long as
//!   [`CollectiveTimeouts::whole`](super::CollectiveTimeouts::whole). The rank that fails first tells its parent and, by its
//!   answers, its children; so all hear who is missing about when the first one notices.
//! - If a rank hears a failure for which [`CollectiveFailure::may_have_happened`] is false, the operation never ran and never will,
//!   as long as its id is remembered somewhere on the way (below).
//! - **Late and doubled messages are harmless.** An operation is named by group (number and list), key and round, a triple that is
//!   never used again; rounds of one group and key only go up at each rank. Operations that ended are remembered with their
//!   failure, which answers late messages. A message for an operation without a caller here is dropped once its sender has stopped
//!   waiting.
//! - **Ranks that disagree fail at once,** not by waiting: two groups that use one number at the same time both fail; a rank at an
//!   earlier round than a neighbour in the tree fails.
//! - **Memory is bounded** by [`MemoryBounds`]: operations kept, operations remembered; one message a rank for each.
//! - No lock is held while the caller's functions, or the fabric, run.

mod gather;
mod operation;
mod pending;

pub use operation::{MemoryBounds, Operation};

use super::wire::{self, ChildMessage, CollectiveFailure, OperationId};
use crate::{Fabric, Handler, Message, Rank, Replier};
use bytes::Bytes;
use gather::GatherState;
use parking_lot::Mutex;
use pending::{ChildArrival, PendingOperations};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

/// What one rank received and sent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectiveCounts {
    /// Values that came from children.
    pub values: u64,
    /// Answers sent to children.
    pub answers: u64,
    /// Failures that came from children.
    pub failures: u64,
    /// Messages refused: late, doubled, malformed, or too many.
    pub refused: u64,
}

/// One rank's part in all its collectives. Its messages are known by [`is_ring`](Collectives::is_ring): a server hands them to
/// [`Handler`] here, whatever else its own handler does. The fabric given may wrap heads in the server's own format.
pub struct Collectives {
    fabric: Arc<dyn Fabric>,
    pending: Mutex<PendingOperations>,
}

impl Collectives {
    /// For the rank of `fabric`. The caller makes its handler pass messages on, before any member begins.
    pub fn new(fabric: Arc<dyn Fabric>, bounds: MemoryBounds) -> Collectives {
        Collectives {
            fabric,
            pending: Mutex::new(PendingOperations::new(bounds)),
        }
    }

    /// Whether `message` is for [`Collectives`].
    pub fn is_ring(message: &Message) -> bool {
        wire::is_ring(message)
    }

    /// Takes part in an operation: the other members call this too, with values of their own. `combine` makes one value of
    /// two, in whatever order they come. At the root `execute` runs once, on all members' values combined; its answer is
    /// everyone's.
    ///
    /// # Errors
    /// See [`CollectiveFailure`]; within [`CollectiveTimeouts::whole`](super::CollectiveTimeouts::whole) of the call, not counting the time that `combine` and `execute` take here.
    ///
    /// # Panics
    /// When `combine` or `execute` does, here; the others get `Panicked`.
    pub fn reduce(
        &self,
        operation: &Operation,
        value: Bytes,
        combine: impl Fn(Bytes, Bytes) -> Bytes,
        execute: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Bytes, CollectiveFailure> {
        let (me, group) = (self.fabric.rank(), &operation.group);
        let outsider = if group.has(me) { operation.root } else { me };
        let place = group
            .tree_position(me, operation.root)
            .ok_or(CollectiveFailure::NotAMember(outsider))?;
        let id = operation.id();
        let begun = Instant::now();
        let (call, refused) = self.pending.lock().begin_call(&id, me);
        self.refuse_all(refused);
        let changed = call.inspect_err(|failure| {
            // Its children gave up before this rank came; the parent need not wait either.
            if !matches!(failure, CollectiveFailure::Busy(_)) {
                self.send_failure(place.parent, operation, *failure);
            }
        })?;
        let mut gathering = GatherState::new(operation, &place, changed);
        let parent = place.parent;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let value = gathering.combine_all(&self.pending, &id, value, &combine)?;
            // From here on the others may carry it out.
            Ok(match parent {
                None => Ok(execute(value)),
                Some(parent) => self.ask(parent, operation, value, place.levels, begun),
            })
        }));
        let outcome = match ran {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => {
                self.send_failure(parent, operation, failure);
                Err(failure)
            }
            Err(panic) => {
                let failure = CollectiveFailure::Panicked(me);
                self.send_failure(parent, operation, failure);
                self.end(&id, gathering, Err(failure));
                resume_unwind(panic);
            }
        };
        self.end(&id, gathering, outcome.clone());
        outcome
    }

    /// Takes no part in an operation that the others may begin: they hear so, and need not wait for this rank. Nothing if it
    /// is over, or a caller takes part.
    pub fn decline(&self, operation: &Operation) {
        let me = self.fabric.rank();
        let Some(place) = operation.group.tree_position(me, operation.root) else {
            return;
        };
        let id = operation.id();
        let failure = CollectiveFailure::Missing(me);
        let waiting = {
            let mut pending = self.pending.lock();
            if !pending.is_untouched(&id) {
                return;
            }
            pending.end(&id, failure)
        };
        self.send_failure(place.parent, operation, failure);
        self.refuse_all(waiting.into_iter().map(|arrival| (arrival, failure)));
    }

    /// `rank` is dead: operations that wait for it fail now.
    pub fn rank_died(&self, rank: Rank) {
        self.pending.lock().note_death(rank);
    }

    /// What this rank received and sent so far.
    pub fn counts(&self) -> CollectiveCounts {
        self.pending.lock().counts
    }

    fn ask(
        &self,
        parent: Rank,
        operation: &Operation,
        value: Bytes,
        levels: u32,
        begun: Instant,
    ) -> Result<Bytes, CollectiveFailure> {
        let whole = operation.limits.whole(levels);
        let left = whole.saturating_sub(begun.elapsed());
        let reply = self
            .fabric
            .call(parent, operation.message(Ok(value), left), left);
        // Whatever the reason, the parent may have the value.
        let reply = reply.map_err(|_| CollectiveFailure::Lost(parent))?;
        wire::decode_down(reply).unwrap_or(Err(CollectiveFailure::Lost(parent)))
    }

    /// Says upwards that nothing will come. If it is lost, the parent finds out by itself, later.
    fn send_failure(
        &self,
        parent: Option<Rank>,
        operation: &Operation,
        failure: CollectiveFailure,
    ) {
        if let Some(parent) = parent {
            let message = operation.message(Err(failure), operation.limits.base);
            let _ = self.fabric.send(parent, message);
        }
    }

    /// Ends it here, and answers the children.
    fn end(
        &self,
        id: &OperationId,
        gathering: GatherState,
        outcome: Result<Bytes, CollectiveFailure>,
    ) {
        let why = outcome.clone().err();
        let why = why.unwrap_or(CollectiveFailure::Over(self.fabric.rank()));
        let repliers = gathering.into_repliers();
        let late = {
            let mut pending = self.pending.lock();
            if outcome.is_ok() {
                pending.counts.answers += repliers.len() as u64;
            }
            pending.end(id, why)
        };
        for replier in repliers {
            replier.reply(wire::encode_down(outcome.clone()));
        }
        self.refuse_all(late.into_iter().map(|arrival| (arrival, why)));
    }

    fn arrive(&self, from: Rank, message: Message, replier: Option<Replier>) {
        let Some(up) = ChildMessage::decode(message) else {
            self.pending.lock().counts.refused += 1;
            return refuse(replier, CollectiveFailure::Malformed(from));
        };
        let me = self.fabric.rank();
        let arrival = ChildArrival {
            from,
            root: up.root,
            content: up.content,
            replier,
        };
        let (refused, expired) = {
            let mut pending = self.pending.lock();
            match arrival.content {
                Ok(_) => pending.counts.values += 1,
                Err(_) => pending.counts.failures += 1,
            }
            pending.keep(up.id, arrival, up.keep_for, me)
        };
        self.refuse_all(refused.into_iter().chain(expired));
    }

    fn refuse_all(&self, refused: impl IntoIterator<Item = (ChildArrival, CollectiveFailure)>) {
        for (arrival, failure) in refused {
            self.pending.lock().counts.refused += 1;
            refuse(arrival.replier, failure);
        }
    }
}

fn refuse(replier: Option<Replier>, failure: CollectiveFailure) {
    if let Some(replier) = replier {
        replier.reply(wire::encode_down(Err(failure)));
    }
}

impl Handler for Collectives {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        self.arrive(from, message, Some(replier));
    }

    fn message(&self, from: Rank, message: Message) {
        self.arrive(from, message, None);
    }
}

#[cfg(test)]
mod tests;
