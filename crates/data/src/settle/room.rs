//! Writers that wait for settling: for room that it makes, and while it is behind.
use super::Settler;
use crate::space_signal::SpaceSignal;
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
            while self.settle_some().is_ok_and(|any| any) {
                if take() {
                    return true;
                }
            }
            return false;
        }
        self.backlog.hurry(true);
        let until = Instant::now() + ROOM_WAIT;
        let found = loop {
            let seen = freed.epoch();
            if take() {
                break true;
            }
            let now = Instant::now();
            if !self.may_make_room() || now >= until || !freed.wait(seen, now + NEWS_WAIT) {
                break false;
            }
        };
        self.backlog.hurry(false);
        found
    }

    /// More waits to be settled than may: a write waits for a moment, so that a burst without end is no faster than settling is.
    pub fn wait_while_behind(&self, freed: &SpaceSignal) {
        let is_behind = || self.backlog.bytes() > self.options.backlog_bytes;
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
