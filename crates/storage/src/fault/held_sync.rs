//! A disk on which one sync of a file waits until a test lets it fail: for what other threads do meanwhile.
use super::{Call, HookedIo};
use crate::Io;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Nothing takes as long on a machine that works.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldState {
    Off,
    Armed,
    Reached,
    Failing,
}

/// See the head of this file.
#[derive(Debug)]
pub struct HeldSync {
    state: Mutex<HeldState>,
    changed: Condvar,
}

impl HeldSync {
    /// `disk` with a sync that can be held, of a file that `is_held` chooses by its path.
    pub fn of(disk: impl Io + 'static, is_held: fn(&Path) -> bool) -> (HookedIo, Arc<HeldSync>) {
        let held = Arc::new(HeldSync {
            state: Mutex::new(HeldState::Off),
            changed: Condvar::new(),
        });
        let hook = held.clone();
        let io = HookedIo::new(disk, move |path, call| match call {
            Call::Sync if is_held(path) => hook.hold(),
            _ => Ok(()),
        });
        (io, held)
    }

    fn hold(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if *state != HeldState::Armed {
            return Ok(());
        }
        *state = HeldState::Reached;
        self.changed.notify_all();
        // If the test does not go on, it fails all the same.
        let _ = self.wait(&mut state, HeldState::Failing);
        *state = HeldState::Off;
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    /// Whether it came in time.
    fn wait(&self, state: &mut parking_lot::MutexGuard<'_, HeldState>, wanted: HeldState) -> bool {
        let is_not_there = |state: &mut HeldState| *state != wanted;
        let waited = self.changed.wait_while_for(state, is_not_there, LIMIT);
        !waited.timed_out()
    }

    /// The next such sync is held.
    pub fn arm(&self) {
        *self.state.lock() = HeldState::Armed;
    }

    /// Waits until it is.
    pub fn wait_reached(&self) {
        let is_held = self.wait(&mut self.state.lock(), HeldState::Reached);
        assert!(is_held, "no such sync came");
    }

    /// Lets it fail, with `EIO`.
    pub fn fail(&self) {
        *self.state.lock() = HeldState::Failing;
        self.changed.notify_all();
    }
}
