//! Compressing sealed MemTables in the middle of a flush or a merge, so that writers do not stall. Those take seconds, a
//! MemTable is full after milliseconds, and writers wait while too many are sealed.
use super::super::block::Cutter;
use super::Core;
use forebay_storage::Result;

/// Compresses sealed MemTables between two blocks of something longer; if that merges tables, it also brings a full buffer to disk.
pub struct UrgentWork<'a> {
    core: &'a Core,
    cutter: Option<Cutter>,
    flushes: bool,
}

impl<'a> UrgentWork<'a> {
    /// While trees are merged or flushed.
    pub fn new(core: &'a Core) -> UrgentWork<'a> {
        UrgentWork {
            core,
            cutter: None,
            flushes: false,
        }
    }

    /// While tables are merged.
    pub fn with_flushes(core: &'a Core) -> UrgentWork<'a> {
        UrgentWork {
            flushes: true,
            ..UrgentWork::new(core)
        }
    }

    /// Does what writers wait for, as far as there is room in the compression buffer; whether there was any.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn do_some(&mut self) -> Result<bool> {
        let core = self.core;
        if core.view.read().sealed.is_empty() {
            return Ok(false);
        }
        let block_bytes = core.settings.block_bytes;
        let cutter = self.cutter.get_or_insert_with(|| Cutter::new(block_bytes));
        if self.flushes && core.view.read().is_buffer_full(&core.settings) {
            match core.flush_buffer(cutter) {
                // The merge of tables goes on: it may make room.
                Err(e) if e.is_transient() => self.flushes = false,
                done => done?,
            }
        }
        let room = core.view.read().has_room(&core.settings);
        let compressed = room && core.compress_oldest(cutter)?;
        if compressed {
            let _signals = core.signals.lock();
            core.progress.notify_all();
        }
        Ok(compressed)
    }
}
