//! The health of a store: healthy, salvaged, closed, or poisoned by a failed write, of which the engines are then notified.
//!
//! Invariant: a poisoned store stays poisoned until it is opened again.
use super::Engine;
use crate::{Error, Poison, Result};
use parking_lot::RwLock;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// See the head of this file.
pub struct StoreHealth {
    salvaged: bool,
    closed: AtomicBool,
    poison: Poison,
    /// The rows first. The store owns them, and they own this.
    engines: RwLock<Vec<Weak<dyn Engine>>>,
}

impl StoreHealth {
    pub(super) fn new(dir: &Path, salvaged: bool) -> StoreHealth {
        StoreHealth {
            salvaged,
            closed: AtomicBool::new(false),
            poison: Poison::new(dir),
            engines: RwLock::default(),
        }
    }

    pub(super) fn dir(&self) -> &Path {
        self.poison.dir()
    }

    pub(super) fn is_salvaged(&self) -> bool {
        self.salvaged
    }

    /// Makes the engine one that is told when the log is long, and when the store was poisoned.
    pub(crate) fn register(&self, engine: Weak<dyn Engine>) {
        self.engines.write().push(engine);
    }

    pub(crate) fn for_each_engine(&self, call: impl Fn(&dyn Engine)) {
        for engine in self.engines.read().iter().filter_map(Weak::upgrade) {
            call(&*engine);
        }
    }

    /// The engine of the rows, unless the store is being dropped.
    pub(super) fn rows(&self) -> Option<Arc<dyn Engine>> {
        self.engines.read().first().and_then(Weak::upgrade)
    }

    /// Refuses everything that changes the store from now on. Hands the error back.
    pub fn poison(&self, error: Error) -> Error {
        if self.poison.set(&error) {
            tracing::error!(store = %self.dir().display(), "store closed after a failed write: {error}");
        }
        self.for_each_engine(|engine| engine.poisoned());
        error
    }

    /// Poisons, unless the error is a full disk or a want of descriptors, which change nothing.
    pub fn poison_unless_full(&self, error: Error) -> Error {
        if error.is_transient() {
            error
        } else {
            self.poison(error)
        }
    }

    /// Whether batches are taken.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failed write or `close`; [`Error::Io`] if the store is salvaged.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.salvaged {
            let refused = std::io::ErrorKind::ReadOnlyFilesystem.into();
            let what = "change a store that is salvaged:";
            return Err(Error::state_unknown(what, self.dir(), refused));
        }
        self.check_writable()?;
        if self.is_closed() {
            let reason = "it was closed".to_string();
            return Err(Error::Poisoned {
                path: self.dir().to_path_buf(),
                reason,
            });
        }
        Ok(())
    }

    /// Whether no earlier failure has closed the store. One that is being closed may finish its work.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn check_writable(&self) -> Result<()> {
        self.poison.check()
    }

    /// The error of a poisoned store.
    pub(crate) fn poison_error(&self) -> Error {
        self.poison.error()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes no batch any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// Poisons the store when the thread panics under it: what was half done is not known, and others may wait for it.
pub(crate) struct PoisonOnPanic<'a> {
    health: &'a StoreHealth,
    /// The thread was panicking already, for another reason.
    before: bool,
}

impl PoisonOnPanic<'_> {
    pub fn new(health: &StoreHealth) -> PoisonOnPanic<'_> {
        let before = std::thread::panicking();
        PoisonOnPanic { health, before }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.before {
            let path = self.health.dir();
            let panicked = Error::invalid(path, "a thread panicked");
            self.health.poison(panicked);
        }
    }
}
