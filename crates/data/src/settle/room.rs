//! Writers that wait for settling: on a full disk until it frees space, and while its backlog is over the bound.
use super::{SettleRound, Settler};
use crate::space_signal::SpaceSignal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a writer waits for room if no space is freed.
const SPACE_SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a writer waits for room in all.
const ROOM_WAIT: Duration = Duration::from_secs(30);
/// How long a write waits while the backlog is over its bound.
const BEHIND_WAIT: Duration = Duration::from_secs(1);

impl Settler {
    /// Called by a writer that finds no room: settles, or waits for the thread to settle, until `take` succeeds. `false`: settling frees
    /// no more, or it took too long.
    pub fn make_room(&self, freed: &SpaceSignal, take: impl Fn() -> bool) -> bool {
        if self.pacer.is_none() {
            // No thread does it.
            while matches!(self.settle_some(), Ok(SettleRound::Progress)) {
                if take() {
                    return true;
                }
            }
            return false;
        }
        self.backlog.set_writer_waiting(true);
        let until = Instant::now() + ROOM_WAIT;
        // One failed round may have begun before. The second began after, so settling frees nothing.
        let failures = self.rounds_without_progress.load(Relaxed);
        let is_stuck = || self.rounds_without_progress.load(Relaxed) >= failures + 2;
        let found = loop {
            let seen = freed.epoch();
            if take() {
                break true;
            }
            let now = Instant::now();
            let may_come = self.may_make_room() && !is_stuck() && now < until;
            if !may_come || !freed.wait(seen, now + SPACE_SIGNAL_TIMEOUT) {
                break false;
            }
        };
        self.backlog.set_writer_waiting(false);
        found
    }

    /// Back-pressure: while the backlog is over its bound, a write waits for the next round. It does not wait while settling makes no
    /// progress, nor for a backlog from before the store was opened.
    pub fn wait_while_behind(&self, freed: &SpaceSignal) {
        let bound = self.options.backlog_bytes;
        let is_behind = || {
            self.backlog.bytes() > bound
                && !self.is_stuck.load(Relaxed)
                && self.backlog.written_bytes() > bound
        };
        if self.pacer.is_none() || !is_behind() {
            return;
        }
        let until = Instant::now() + BEHIND_WAIT;
        loop {
            let seen = freed.epoch();
            if !is_behind() || !freed.wait(seen, until) {
                return;
            }
        }
    }
}
