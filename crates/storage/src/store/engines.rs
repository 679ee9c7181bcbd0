//! The engines of a store: the rows, and one that may be attached.
use super::Store;
use crate::engine::Engine;
use crate::{Error, Result};
use std::sync::Arc;

impl Store {
    /// All engines, the rows first.
    pub(super) fn engines(&self) -> impl Iterator<Item = &dyn Engine> {
        let rows: &dyn Engine = &*self.rows;
        std::iter::once(rows).chain(self.attached.get().map(|engine| &**engine))
    }

    /// Makes this the engine for the [entries](crate::Batch::put_entry) of batches, and gives it those that only the log holds. Once, before the first
    /// batch.
    ///
    /// # Errors
    /// If there is one already.
    pub fn attach(&self, engine: Arc<dyn Engine>) -> Result<()> {
        let dir = self.host.dir();
        let again = || Error::invalid(dir, "a store has one engine beside its rows");
        if self.attached.get().is_some() {
            return Err(again());
        }
        for (number, mut batch) in std::mem::take(&mut *self.unclaimed.lock()) {
            engine.apply(number, &mut batch);
        }
        self.host.health.register(Arc::downgrade(&engine));
        self.attached.set(engine).map_err(|_| again())
    }

    /// Brings everything to files if there is room.
    pub(super) fn flush_for_close(&self) -> Result<()> {
        let attached = self.attached.get().map_or(Ok(()), |engine| engine.flush());
        match attached.and_then(|()| self.rows.flush()) {
            Err(e) if e.is_transient() => {
                tracing::warn!(store = %self.host.dir().display(), "closed with its newest batches in the log only: {e}");
                Ok(())
            }
            result => result,
        }
    }

    /// Ends the threads of the attached engine.
    pub(super) fn stop_attached(&self) {
        if let Some(engine) = self.attached.get() {
            engine.stop();
        }
    }
}
