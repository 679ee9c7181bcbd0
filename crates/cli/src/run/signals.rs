//! Signals that `run` receives, by its phase. While the service starts, a signal ends `run` and so the service. While files are
//! staged, the first cancels staging and the second ends `run`. While the command runs, they are passed on to the command; those
//! from the terminal reach it without `run`. While the service stops, they are ignored.
use forebay_node::failure::Result;
use forebay_node::threads::on_signals;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the head of this file.
pub struct Signals(Arc<Mutex<SignalState>>);

struct SignalState {
    receiver: SignalReceiver,
    /// The last signal after the service was ready.
    last: Option<i32>,
}

/// Where a signal goes.
enum SignalReceiver {
    /// To the start: this process ends, and the service with it.
    Starting,
    /// To the staging: the first signal cancels it, the second ends this process and so the service.
    Staging(Arc<AtomicBool>),
    /// To the guard of the command.
    Guard(Pid),
    /// Nowhere: the service is stopping, which has its own limit.
    Nobody,
}

impl Signals {
    /// Begins to catch signals, in the phase of the start.
    ///
    /// # Errors
    /// If they cannot be caught.
    pub fn catch() -> Result<Signals> {
        let state = Arc::new(Mutex::new(SignalState {
            receiver: SignalReceiver::Starting,
            last: None,
        }));
        let now = Signals(state.clone());
        on_signals(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT], move |signal| {
            now.take(signal);
        })?;
        Ok(Signals(state))
    }

    fn take(&self, signal: i32) {
        let mut state = self.0.lock();
        state.last = Some(signal);
        match &state.receiver {
            SignalReceiver::Starting => std::process::exit(128 + signal),
            SignalReceiver::Staging(asked) => {
                if asked.swap(true, Ordering::SeqCst) {
                    std::process::exit(128 + signal);
                }
            }
            SignalReceiver::Guard(guard) => {
                forward_signal(signal, *guard);
            }
            SignalReceiver::Nobody => {}
        }
    }

    /// From now on a signal cancels the staging, by setting the returned flag.
    pub fn cancels(&self) -> Arc<AtomicBool> {
        let asked = Arc::new(AtomicBool::new(false));
        self.0.lock().receiver = SignalReceiver::Staging(asked.clone());
        asked
    }

    /// From now on signals are passed on to `guard`, the process of the command's guard.
    pub fn pass_to(&self, guard: Pid) {
        self.0.lock().receiver = SignalReceiver::Guard(guard);
    }

    /// From now on signals do nothing.
    pub fn pass_to_nobody(&self) {
        self.0.lock().receiver = SignalReceiver::Nobody;
    }

    /// The exit code for the last signal, if one came.
    pub fn code(&self) -> Option<u8> {
        self.0.lock().last.map(|signal| (128 + signal) as u8)
    }
}

/// Passes a signal on to the command or its guard. Those from the terminal are left out: they reach it without `run`.
pub(super) fn forward_signal(signal: i32, process: Pid) {
    let sent = match signal {
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    // Fails only if it has ended.
    let _ = rustix::process::kill_process(process, sent);
}
