//! Named threads, and the thread that handles signals.
use crate::failure::{Context, Result};

/// Runs `work` on a thread called `name`; `what` the thread is, for the failure.
///
/// # Errors
/// If there is no thread to be had.
pub fn spawn(name: &str, what: &str, work: impl FnOnce() + Send + 'static) -> Result {
    let thread = std::thread::Builder::new().name(name.into());
    let started = thread.spawn(work).map(drop);
    started.or_fail(
        format!("cannot start {what}"),
        "raise the limit on processes",
    )
}

/// Catches `signals` from now on, and gives each to `handle` on a thread of its own.
///
/// # Errors
/// If they cannot be caught, or there is no thread to be had.
pub fn on_signals(signals: &[i32], mut handle: impl FnMut(i32) + Send + 'static) -> Result {
    let mut caught = signal_hook::iterator::Signals::new(signals)
        .or_fail("cannot catch signals", "raise the limit on open files")?;
    spawn("signals", "the thread for signals", move || {
        caught.forever().for_each(&mut handle);
    })
}
