//! The engines of a store: the rows, and one that may be attached.
use crate::engine::{Engine, EngineHost};
use crate::rows::RowEngine;
use crate::{Batch, Error, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// See the head of this file.
pub struct StoreEngines {
    /// Of the rows.
    pub rows: Arc<RowEngine>,
    attached: OnceLock<Arc<dyn Engine>>,
    /// What the log holds for the attached one, until it is.
    unclaimed: Mutex<Vec<(u64, Batch)>>,
}

impl StoreEngines {
    /// The rows, and batches that the log holds for another engine.
    pub fn new(rows: Arc<RowEngine>, unclaimed: Vec<(u64, Batch)>) -> StoreEngines {
        StoreEngines {
            rows,
            attached: OnceLock::new(),
            unclaimed: Mutex::new(unclaimed),
        }
    }

    /// The engine beside the rows.
    pub fn attached(&self) -> Option<&Arc<dyn Engine>> {
        self.attached.get()
    }

    /// All engines, the rows first.
    pub fn all(&self) -> impl Iterator<Item = &dyn Engine> {
        let rows: &dyn Engine = &*self.rows;
        std::iter::once(rows).chain(self.attached().map(|engine| &**engine))
    }

    /// See [`Store::attach`](super::Store::attach).
    pub fn attach(&self, engine: Arc<dyn Engine>, host: &EngineHost) -> Result<()> {
        let again = || Error::invalid(host.dir(), "a store has one engine beside its rows");
        if self.attached().is_some() {
            return Err(again());
        }
        for (number, mut batch) in std::mem::take(&mut *self.unclaimed.lock()) {
            engine.apply(number, &mut batch);
        }
        host.health.register(Arc::downgrade(&engine));
        self.attached.set(engine).map_err(|_| again())
    }

    /// Brings everything to files if there is room.
    pub fn flush_for_close(&self, dir: &Path) -> Result<()> {
        let attached = self.attached().map_or(Ok(()), |engine| engine.flush());
        match attached.and_then(|()| self.rows.flush()) {
            Err(e) if e.is_transient() => {
                tracing::warn!(store = %dir.display(), "closed with its newest batches in the log only: {e}");
                Ok(())
            }
            result => result,
        }
    }

    /// Ends the threads of the attached engine.
    pub fn stop_attached(&self) {
        if let Some(engine) = self.attached() {
            engine.stop();
        }
    }
}
