//! The position of the streaming calls of a file.
//!
//! Calls of several threads go one after the other. A forked child has a position of its own, which begins where its parent's was.
use crate::link::ProcessLocal;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// No offset of a file: after an append, the end of the file, wherever the owner put it.
const END: u64 = u64::MAX;

/// Where the next streaming call begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// At this offset.
    At(u64),
    /// At the end of the file.
    End,
}

/// See the head of this file.
pub(crate) struct StreamPosition(ProcessLocal<SharedPosition>);

/// The value can be read without the lock, as a child has to.
#[derive(Default)]
struct SharedPosition {
    turn: Mutex<()>,
    at: AtomicU64,
}

impl StreamPosition {
    pub fn new() -> StreamPosition {
        StreamPosition(ProcessLocal::new(SharedPosition::default()))
    }

    /// Makes one streaming call, which is given the position, and gives the next one with its result. It stays if the call fails.
    pub fn step<T, E>(
        &self,
        call: impl FnOnce(Position) -> Result<(T, Position), E>,
    ) -> Result<T, E> {
        let shared = self.0.get(|parent| SharedPosition {
            turn: Mutex::default(),
            at: AtomicU64::new(parent.at.load(Ordering::SeqCst)),
        });
        let _turn = shared.turn.lock();
        let position = match shared.at.load(Ordering::SeqCst) {
            END => Position::End,
            at => Position::At(at),
        };
        let (result, next) = call(position)?;
        let next = match next {
            Position::At(at) => at,
            Position::End => END,
        };
        shared.at.store(next, Ordering::SeqCst);
        Ok(result)
    }
}
