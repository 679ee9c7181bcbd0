//! A background thread of a part of this member: started once, joined when the part stops.
use crate::{Error, Result};
use parking_lot::Mutex;
use std::thread::JoinHandle;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct WorkerThread(Mutex<Option<JoinHandle<()>>>);

impl WorkerThread {
    /// Starts it. `run` ends when its part tells it to, before `join`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|e| {
            Error::Refused(format!(
                "cannot start a thread: {e}; raise the limit of processes"
            ))
        })?;
        *self.0.lock() = Some(thread);
        Ok(())
    }

    /// Waits until it has ended.
    pub fn join(&self) {
        if let Some(thread) = self.0.lock().take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
