//! Signals to `run`: they go to the command while it runs. Before, they end the start; during staging they cancel it.
use forebay_node::failure::Result;
use forebay_node::threads::on_signals;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals to this process are for the command; those of the terminal reach it by themselves.
pub struct Signals(Arc<Mutex<SignalState>>);

struct SignalState {
    receiver: SignalReceiver,
    /// The last that came after the service was ready.
    last: Option<i32>,
}

/// Who gets a signal.
enum SignalReceiver {
    /// The service is starting: it ends with this process.
    Starting,
    /// The staging: it is cancelled. The second one ends this process, and so the service.
    Staging(Arc<AtomicBool>),
    /// The command.
    Guard(Pid),
    /// The service is stopping, which has its own limit.
    Nobody,
}

impl Signals {
    /// Catches them from now on, for the start of the service.
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
                pass_on(signal, *guard);
            }
            SignalReceiver::Nobody => {}
        }
    }

    /// From now on they cancel what looks at this.
    pub fn cancels(&self) -> Arc<AtomicBool> {
        let asked = Arc::new(AtomicBool::new(false));
        self.0.lock().receiver = SignalReceiver::Staging(asked.clone());
        asked
    }

    /// From now on they are for the command: `guard` is the process of its guard.
    pub fn pass_to(&self, guard: Pid) {
        self.0.lock().receiver = SignalReceiver::Guard(guard);
    }

    /// From now on they do nothing.
    pub fn pass_to_nobody(&self) {
        self.0.lock().receiver = SignalReceiver::Nobody;
    }

    /// The exit code that a signal means, if one came.
    pub fn code(&self) -> Option<u8> {
        self.0.lock().last.map(|signal| (128 + signal) as u8)
    }
}

/// Sends a signal to the command or its guard, but for those of the terminal, which reach it by themselves.
pub(super) fn pass_on(signal: i32, process: Pid) {
    let sent = match signal {
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    // Fails only if it has ended.
    let _ = rustix::process::kill_process(process, sent);
}
