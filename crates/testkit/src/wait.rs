//! Waiting for what another thread or process does, where there is no wake-up. No result of a test depends on speed: a wait
//! fails only after a time that is long on the busiest machine.
use std::time::{Duration, Instant};

/// Longest that [`until`] waits.
pub const LIMIT: Duration = Duration::from_secs(90);
/// Longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until `is`.
///
/// # Panics
/// If it has not come within [`LIMIT`].
#[track_caller]
pub fn until(what: &str, is: impl FnMut() -> bool) {
    until_within(LIMIT, what, is);
}

/// Waits until `is`, for at most `limit`.
///
/// # Panics
/// If it has not come.
#[track_caller]
pub fn until_within(limit: Duration, what: &str, is: impl FnMut() -> bool) {
    until_or(limit, || what.to_string(), is);
}

/// Waits until `is`, for at most `limit`; `say` tells what there is instead.
///
/// # Panics
/// If it has not come.
#[track_caller]
pub fn until_or(limit: Duration, say: impl FnOnce() -> String, mut is: impl FnMut() -> bool) {
    until_some(limit, say, || is().then_some(()));
}

/// Waits until there is something, for at most `limit`, and gives it; `say` tells what there is instead.
///
/// # Panics
/// If it has not come.
#[track_caller]
pub fn until_some<T>(
    limit: Duration,
    say: impl FnOnce() -> String,
    mut find: impl FnMut() -> Option<T>,
) -> T {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {}", say());
        std::thread::sleep(pause);
        pause = PAUSE.min(pause * 2);
    }
}
