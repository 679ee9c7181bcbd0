//! An open that the file's owner counts: one for several handles, where several opens were combined.
//!
//! Invariant: the owner hears of the close when all handles that the open was counted for are gone, and not before.
use crate::Fid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One open at the owner. Each of its handles is released once.
#[derive(Debug)]
pub struct CountedOpen {
    token: u64,
    /// Handles that are not released, those that are still to come included.
    left: AtomicU32,
    /// The owner knows of its close.
    closed_by_owner: AtomicBool,
}

impl CountedOpen {
    /// The open of this token, for `handles` handles.
    pub fn new(token: u64, handles: u32) -> Arc<CountedOpen> {
        Arc::new(CountedOpen {
            token,
            left: AtomicU32::new(handles),
            closed_by_owner: AtomicBool::new(false),
        })
    }

    /// Names it at the owner.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// One handle is gone. The token if the owner is to hear of the close now.
    #[must_use]
    pub fn release(&self) -> Option<u64> {
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        (last && !self.closed_by_owner.load(Ordering::Acquire)).then_some(self.token)
    }

    /// The owner knows: it closed the open of its own accord.
    pub fn closed_by_owner(&self) {
        self.closed_by_owner.store(true, Ordering::Release);
    }
}

/// Opens that a team made, until all its clients at this node have taken their handles.
#[derive(Default)]
pub struct TeamOpenClaims(Mutex<HashMap<u64, TeamOpenClaim>>);

struct TeamOpenClaim {
    counted: Arc<CountedOpen>,
    left: u32,
}

impl TeamOpenClaims {
    /// The open of this token, which `handles` clients of this node claim once each.
    pub fn claim(&self, token: u64, handles: u32) -> Arc<CountedOpen> {
        let mut claims = self.0.lock();
        let claim = claims.entry(token).or_insert_with(|| TeamOpenClaim {
            counted: CountedOpen::new(token, handles),
            left: handles,
        });
        claim.left -= 1;
        let counted = claim.counted.clone();
        if claim.left == 0 {
            claims.remove(&token);
        }
        counted
    }
}

/// An open, or a team's, that may be counted at its owner without anyone here having it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnansweredOpen {
    /// Of this file.
    KnownFile(Fid, u64),
    /// A team's, or one that came with the making of a file: its file is not known here.
    UnknownFile(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_handle_closes_and_no_other() {
        let claims = TeamOpenClaims::default();
        let handles: Vec<_> = (0..3).map(|_| claims.claim(7, 3)).collect();
        let told: Vec<_> = handles.iter().map(|c| c.release()).collect();
        assert_eq!(told, [None, None, Some(7)]);
        // The same token again is another open.
        assert_eq!(claims.claim(7, 1).release(), Some(7));
    }

    #[test]
    fn what_the_owner_knows_is_not_told_again() {
        let counted = CountedOpen::new(7, 2);
        assert_eq!(counted.release(), None);
        counted.closed_by_owner();
        assert_eq!(counted.release(), None);
    }
}
