//! Ends a server that does not get on with starting or stopping, after writing down where it hangs.
use crate::fail::{FAILED, Failure};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Runs until dropped or until its limit; then tells, cleans up and ends the process.
pub struct Watchdog {
    stage: Arc<Mutex<String>>,
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    /// `last_words` is told why, and must not wait for anything that may hang.
    pub fn start(
        limit: Duration,
        setting: &str,
        last_words: impl FnOnce(&Failure) + Send + 'static,
    ) -> Watchdog {
        let stage = Arc::new(Mutex::new(String::from("starting")));
        let (alive, ended) = mpsc::channel::<()>();
        let (seen, setting) = (stage.clone(), setting.to_string());
        let started = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if ended.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                let stage = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
                tracing::error!(
                    "no progress at '{stage}'; the threads:\n{}",
                    crate::processes::stacks(std::process::id())
                );
                last_words(&Failure::new(
                    format!(
                        "gave up after {} s at this step: {stage}",
                        limit.as_secs_f32()
                    ),
                    format!(
                        "the log says where it hangs; a slow disk may need a larger --{setting}"
                    ),
                ));
                std::process::exit(i32::from(FAILED));
            });
        if let Err(e) = started {
            tracing::warn!("no watchdog: {e}");
        }
        Watchdog {
            stage,
            _alive: alive,
        }
    }

    /// What is being done now.
    pub fn stage(&self, stage: &str) {
        tracing::info!("{stage}");
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage.to_string();
    }
}
