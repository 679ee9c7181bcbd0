//! The requests of this node that wait for locks somewhere, and the tokens its requests are named by.
//!
//! Invariants: a token names one request; a slot is used by one request at a time, and the slot used last is used again first.
//! So a request whose answer was lost is soon followed by a greater number in its slot, and does nothing if it arrives late.
use crate::Fid;
use forebay_proto::locks::{LockToken, OwnerWait};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One waiting request.
#[derive(Debug)]
pub struct WaitingRequest {
    /// Its name.
    pub token: LockToken,
    /// The file.
    pub fid: Fid,
    /// The owner it is for.
    pub owner: u64,
    /// It counts when cycles are looked for.
    pub detect: bool,
    state: Mutex<WaitState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitState {
    granted: bool,
    looking: bool,
    ended: bool,
}

/// Why a wait was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// The lock is there.
    Granted,
    /// The node stops.
    Ended,
    /// Time is up.
    Time,
}

impl WaitingRequest {
    /// Waits for a change, at most for `time`.
    pub fn wait(&self, time: Duration) -> WaitEnd {
        let mut state = self.state.lock();
        if !state.granted && !state.ended {
            self.changed.wait_for(&mut state, time);
        }
        match (state.granted, state.ended) {
            (true, _) => WaitEnd::Granted,
            (false, true) => WaitEnd::Ended,
            (false, false) => WaitEnd::Time,
        }
    }

    /// Says whether a cycle is being looked for.
    pub fn set_searching(&self, looking: bool) {
        self.state.lock().looking = looking;
    }
}

#[derive(Debug, Default)]
struct TokenSlots {
    /// Free slots with the number used last.
    free: Vec<LockToken>,
    made: u32,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LockWaits {
    waiting: Mutex<HashMap<LockToken, Arc<WaitingRequest>>>,
    slots: Mutex<TokenSlots>,
}

impl LockWaits {
    /// A new token.
    pub fn take(&self) -> LockToken {
        let mut slots = self.slots.lock();
        match slots.free.pop() {
            Some(LockToken { slot, number }) => LockToken {
                slot,
                number: number + 1,
            },
            None => {
                slots.made += 1;
                let slot = slots.made;
                LockToken { slot, number: 1 }
            }
        }
    }

    /// The request of this token is over.
    pub fn give(&self, token: LockToken) {
        self.waiting.lock().remove(&token);
        self.slots.lock().free.push(token);
    }

    /// A request that may wait, before it is sent. Until [`LockWaits::give`].
    pub fn expect(
        &self,
        token: LockToken,
        fid: Fid,
        owner: u64,
        detect: bool,
    ) -> Arc<WaitingRequest> {
        let waiting = Arc::new(WaitingRequest {
            token,
            fid,
            owner,
            detect,
            state: Mutex::new(WaitState {
                looking: detect,
                ..WaitState::default()
            }),
            changed: Condvar::new(),
        });
        self.waiting.lock().insert(token, waiting.clone());
        waiting
    }

    /// A request has been granted. One that is not known is over already.
    pub fn granted(&self, token: LockToken) {
        if let Some(waiting) = self.waiting.lock().get(&token) {
            waiting.state.lock().granted = true;
            waiting.changed.notify_all();
        }
    }

    /// Every wait ends.
    pub fn end(&self) {
        for waiting in self.waiting.lock().values() {
            waiting.state.lock().ended = true;
            waiting.changed.notify_all();
        }
    }

    /// How many requests wait.
    pub fn count(&self) -> usize {
        self.waiting.lock().len()
    }

    /// What an owner waits for, as far as deadlocks are concerned.
    pub fn of(&self, owner: u64) -> Vec<OwnerWait> {
        let all = self.waiting.lock();
        let of_owner = all.values().filter(|w| w.owner == owner && w.detect);
        let wait = |w: &Arc<WaitingRequest>| OwnerWait {
            fid: w.fid,
            token: w.token,
            looking: w.state.lock().looking,
        };
        of_owner.map(wait).collect()
    }
}
