//! The background threads of an engine, and how they and writers wake each other.
//!
//! No wake-up is lost if conditions are checked, and made true, under the lock of the signal; stopping is such a condition.
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// See the head of this file. `S`: what threads and writers tell each other.
#[derive(Default)]
pub struct BackgroundWork<S> {
    told: Mutex<S>,
    /// Wakes the threads.
    pub work: Condvar,
    /// Wakes those who wait for the threads.
    pub progress: Condvar,
    stop: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S> BackgroundWork<S> {
    /// To look at what is told, or to change it.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.told.lock()
    }

    /// Wakes the threads.
    pub fn wake(&self) {
        let _told = self.lock();
        self.work.notify_all();
    }

    /// Whether threads shall end, and nobody shall wait for them.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Does this in a thread of this name.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into());
        self.threads.lock().push(thread.spawn(work)?);
        Ok(())
    }

    /// Ends the threads, and waits for those that are not the caller's own. `dir`: the store's, for the log. Twice is fine.
    pub fn stop(&self, dir: &Path) {
        {
            let _told = self.lock();
            self.stop.store(true, Ordering::Release);
            self.work.notify_all();
            self.progress.notify_all();
        }
        let own = std::thread::current().id();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads.into_iter().filter(|t| t.thread().id() != own) {
            let name = thread.thread().name().unwrap_or_default().to_string();
            if thread.join().is_err() {
                tracing::error!(store = %dir.display(), "the background thread `{name}` panicked");
            }
        }
    }
}
