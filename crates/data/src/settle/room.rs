//! Writers that wait for settling: for room that it makes, and while it is behind.
use super::{SettleRound, Settler};
use crate::space_signal::SpaceSignal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A writer waits so long for room without any news of it.
const NEWS_WAIT: Duration = Duration::from_secs(5);
/// And so long in all.
const ROOM_WAIT: Duration = Duration::from_secs(30);
/// Where more waits than may, a write waits so long at most.
const BEHIND_WAIT: Duration = Duration::from_secs(1);

impl Settler {
    /// A writer finds no room: settles, or has the thread settle, until `take` finds some. `false`: there is none to come, or it
    /// took too long.
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
        self.backlog.hurry(true);
        let until = Instant::now() + ROOM_WAIT;
        // One that was under way may end without progress; another one says that there is none to come.
        let failures = self.rounds_without_progress.load(Relaxed);
        let is_stuck = || self.rounds_without_progress.load(Relaxed) >= failures + 2;
        let found = loop {
            let seen = freed.epoch();
            if take() {
                break true;
            }
            let now = Instant::now();
            let may_come = self.may_make_room() && !is_stuck() && now < until;
            if !may_come || !freed.wait(seen, now + NEWS_WAIT) {
                break false;
            }
        };
        self.backlog.hurry(false);
        found
    }

    /// More was written and waits to be settled than may: a write waits for the next round, so that a burst without end is no faster
    /// than settling is. It does not wait while settling makes no progress, nor for what was there when the store was opened.
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
