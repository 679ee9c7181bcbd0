//! Ends a server whose start or stop takes longer than its limit, after writing down at which step it hangs.
use crate::failure::{FAILED, Failure};
use crate::threads;
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Why servers that run may not reach each other.
pub const UNREACHABLE_HINT: &str = "an interface that is up on a host and reaches no other one, as docker0, makes MPI hang: name the network to \
    use, as in `export OMPI_MCA_btl_tcp_if_include=10.0.0.0/8`";

/// What is being done.
#[derive(Clone)]
struct WatchedStep {
    text: String,
    /// Servers on other hosts are waited for.
    for_others: bool,
}

/// Runs until dropped or until its limit; then tells, cleans up and ends the process.
pub struct Watchdog {
    step: Arc<Mutex<WatchedStep>>,
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    /// `last_words` is told why, and whether other servers were waited for; it must not wait for anything that may hang.
    pub fn start(
        limit: Duration,
        setting: &str,
        last_words: impl FnOnce(&Failure, bool) + Send + 'static,
    ) -> Watchdog {
        let step = Arc::new(Mutex::new(WatchedStep {
            text: String::from("starting"),
            for_others: false,
        }));
        let (alive, ended) = mpsc::channel::<()>();
        let (seen, setting) = (step.clone(), setting.to_string());
        let started = threads::spawn("watchdog", "the watchdog", move || {
            if ended.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            let WatchedStep {
                text: step,
                for_others,
            } = seen.lock().clone();
            tracing::error!(
                "no progress at '{step}'; the threads:\n{}",
                crate::processes::stacks(std::process::id())
            );
            let next = match for_others {
                true => format!(
                    "the other servers did not answer: look at what they and the launcher say; {UNREACHABLE_HINT}; many hosts, or slow \
                         disks, may need a larger --{setting}"
                ),
                false => format!(
                    "the log says where it hangs; a slow disk may need a larger --{setting}"
                ),
            };
            let what = format!(
                "gave up after {} s at this step: {step}",
                limit.as_secs_f32()
            );
            last_words(&Failure::new(what, next), for_others);
            std::process::exit(i32::from(FAILED));
        });
        if let Err(e) = started {
            tracing::warn!("{e}");
        }
        Watchdog {
            step,
            _alive: alive,
        }
    }

    /// What is being done now.
    pub fn step(&self, step: &str) {
        self.set(step, false);
    }

    /// The same, of a step that waits for servers in other processes.
    pub fn step_with_others(&self, step: &str) {
        self.set(step, true);
    }

    fn set(&self, step: &str, for_others: bool) {
        tracing::info!("{step}");
        *self.step.lock() = WatchedStep {
            text: step.to_string(),
            for_others,
        };
    }
}
