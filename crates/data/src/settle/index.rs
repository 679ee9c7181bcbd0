//! Fills the index of chunks from the records of all containers, if no saved one could be used at the open.
use super::Settler;
use crate::cit::FingerprintLists;
use crate::container;
use forebay_proto::Result;

impl Settler {
    /// Fills the index, once. Ends early when the thread is to stop.
    ///
    /// # Errors
    /// As the store.
    pub(super) fn fill_index(&self) -> Result<()> {
        let mut is_filled = self.index_filled.lock();
        if *is_filled {
            return Ok(());
        }
        for container in container::all(&self.store) {
            if self.backlog.background.is_stopping() {
                return Ok(());
            }
            // One that cannot be read is told at the start, and its chunks are not found.
            let Ok(container) = container else { continue };
            if let Some(named) = self.fingerprints(container.id)? {
                self.index.insert_container(container.id, &named);
            }
        }
        *is_filled = true;
        Ok(())
    }
}
