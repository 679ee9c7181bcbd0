//! Runs a function on a thread of its own, with a time limit.
use crate::failure::{Failure, Result};
use crate::threads;
use std::sync::mpsc;
use std::time::Duration;

/// Runs `work` on another thread and waits for it at most `limit`.
///
/// Work that does not return stays behind on its thread; it must not hold anything the caller needs.
///
/// # Errors
/// If the limit passes, or no thread can be started; `what` says what was being done.
pub fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    threads::spawn("limited", &format!("a thread for {what}"), move || {
        // The receiver is gone if the limit has passed; nobody wants the result then.
        let _ = sender.send(work());
    })?;
    receiver.recv_timeout(limit).map_err(|_| {
        Failure::new(
            format!("{what} took longer than {} s", limit.as_secs()),
            "look for a dead mount with `findmnt -t fuse.forebay` and detach it with `forebay umount --force`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_time_gives_its_value() {
        assert_eq!(within(Duration::from_secs(30), "adding", || 1 + 1), Ok(2));
    }

    #[test]
    fn work_over_the_limit_is_an_error_that_names_it() {
        let (hold, held) = mpsc::channel::<()>();
        let failure = within(Duration::from_millis(20), "waiting for ever", move || {
            held.recv().is_ok()
        })
        .unwrap_err();
        assert!(failure.text.contains("waiting for ever"), "{failure}");
        drop(hold);
    }
}
