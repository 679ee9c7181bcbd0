//! The caller's side of an operation: its thread collects and combines what its children send.

use super::super::group::TreePosition;
use super::super::reduction::{Reduction, ReductionError, ReductionStep};
use super::super::wire::{CollectiveFailure, OperationId};
use super::operation::Operation;
use super::pending::{ChildArrival, PendingOperations};
use crate::{Rank, Replier};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct GatherState {
    reduction: Reduction<Bytes>,
    /// The children's rights to an answer.
    repliers: HashMap<Rank, Replier>,
    changed: Arc<Condvar>,
    root: Rank,
    begun: Instant,
    /// How long the children are waited for.
    limit: Duration,
}

type Combine<'a> = &'a dyn Fn(Bytes, Bytes) -> Bytes;

impl GatherState {
    pub fn new(operation: &Operation, place: &TreePosition, changed: Arc<Condvar>) -> GatherState {
        GatherState {
            reduction: Reduction::new(place.parent, place.children.iter().copied()),
            repliers: HashMap::new(),
            changed,
            root: operation.root,
            begun: Instant::now(),
            limit: operation.limits.gather(place.height),
        }
    }

    /// The own value and all children's, combined.
    pub fn combine_all(
        &mut self,
        pending: &Mutex<PendingOperations>,
        id: &OperationId,
        own: Bytes,
        combine: Combine,
    ) -> Result<Bytes, CollectiveFailure> {
        // Cannot be refused: it is the first.
        let first = self.reduction.own(own, combine);
        if let Ok(ReductionStep::Up(_, value) | ReductionStep::Execute(value)) = first {
            return Ok(value);
        }
        loop {
            let arrivals = self.wait(pending, id)?;
            if let Some(value) = self.take(arrivals, combine)? {
                return Ok(value);
            }
        }
    }

    /// Waits until something came; fails if a child will not come.
    fn wait(
        &self,
        pending: &Mutex<PendingOperations>,
        id: &OperationId,
    ) -> Result<Vec<ChildArrival>, CollectiveFailure> {
        let mut pending = pending.lock();
        loop {
            let arrivals = pending.take(id);
            if !arrivals.is_empty() {
                return Ok(arrivals);
            }
            if let Some(failure) = pending.cannot_complete(id, self.reduction.absent()) {
                return Err(failure);
            }
            // A time too far for the clock is no limit.
            let left = self.limit.saturating_sub(self.begun.elapsed());
            if self.changed.wait_for(&mut pending, left).timed_out() {
                let arrivals = pending.take(id);
                return match self.reduction.absent().next() {
                    Some(rank) if arrivals.is_empty() => Err(CollectiveFailure::Missing(rank)),
                    _ => Ok(arrivals),
                };
            }
        }
    }

    fn take(
        &mut self,
        mut arrivals: Vec<ChildArrival>,
        combine: Combine,
    ) -> Result<Option<Bytes>, CollectiveFailure> {
        // All first: whatever happens on the way, everyone is answered.
        for arrival in &mut arrivals {
            let replier = arrival.replier.take();
            self.repliers.extend(replier.map(|r| (arrival.from, r)));
        }
        let mut whole = None;
        for arrival in arrivals {
            if arrival.root != self.root {
                return Err(CollectiveFailure::Mismatch(arrival.from));
            }
            let value = arrival.content?;
            match self.reduction.child(arrival.from, value, combine) {
                Ok(ReductionStep::Wait) | Err(ReductionError::Twice | ReductionError::Over) => {}
                Ok(ReductionStep::Up(_, value) | ReductionStep::Execute(value)) => {
                    whole = Some(value)
                }
                Err(ReductionError::NotAChild) => {
                    return Err(CollectiveFailure::Mismatch(arrival.from));
                }
            }
        }
        Ok(whole)
    }

    /// Who waits for the outcome: the children in their order, then others.
    pub fn into_repliers(mut self) -> Vec<Replier> {
        let mut repliers: Vec<Replier> = self
            .reduction
            .end()
            .filter_map(|child| self.repliers.remove(&child))
            .collect();
        repliers.extend(self.repliers.into_values());
        repliers
    }
}
