//! The file `SPARE`: disk blocks that are freed on a full disk, so that flushes and compactions have room (`reclaim`).
use crate::engine::EngineHost;
use crate::wal::reserve;
use crate::{Result, names};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the head of this file.
pub struct CompactionReserve {
    host: Arc<EngineHost>,
    /// It is in use, or could not be made: puts are refused.
    used: AtomicBool,
    /// Held while space is reclaimed.
    giving_back: Mutex<()>,
}

impl CompactionReserve {
    /// A reserve whose file does not exist yet.
    pub fn new(host: Arc<EngineHost>) -> CompactionReserve {
        CompactionReserve {
            host,
            used: AtomicBool::new(false),
            giving_back: Mutex::default(),
        }
    }

    /// Creates the file if the disk has room for it.
    ///
    /// # Errors
    /// As the disk, except that it is full.
    pub fn make(&self) -> Result<bool> {
        let host = &self.host;
        let bytes = host.options.table_reserve_bytes;
        let made = reserve::ensure(&*host.io, host.dir(), names::SPARE, bytes)?;
        self.used.store(!made, Ordering::Release);
        Ok(made)
    }

    /// As `make` in an open store: a failure poisons it.
    pub fn renew(&self) -> Result<bool> {
        self.make()
            .map_err(|e| self.host.health.poison_unless_full(e))
    }

    /// Whether puts are accepted: the file exists, or could be created again now.
    pub fn is_there(&self) -> Result<bool> {
        if !self.used.load(Ordering::Acquire) {
            return Ok(true);
        }
        // While space is being reclaimed, it is in use and not to be taken.
        match self.giving_back.try_lock() {
            Some(_one) => self.renew(),
            None => Ok(false),
        }
    }

    /// The lock under which the file is created and space is reclaimed.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.giving_back.lock()
    }

    /// Removes the file. The caller holds the lock.
    pub fn release(&self) -> Result<()> {
        self.used.store(true, Ordering::Release);
        let released = reserve::release_spare(&*self.host.io, self.host.dir());
        released.map_err(|e| self.host.health.poison_unless_full(e))?;
        Ok(())
    }
}
