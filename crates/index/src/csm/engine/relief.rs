//! What writers wait for is done in the middle of long work: a flush or a merge takes seconds, a MemTable is full after milliseconds.
use super::super::block::Cutter;
use super::Core;
use forebay_storage::Result;

/// Compresses sealed MemTables between two blocks of something longer; if that merges tables, it also brings a full buffer to disk.
pub struct Relief<'a> {
    core: &'a Core,
    cutter: Option<Cutter>,
    flushes: bool,
}

impl<'a> Relief<'a> {
    /// While trees are merged or flushed.
    pub fn new(core: &'a Core) -> Relief<'a> {
        Relief {
            core,
            cutter: None,
            flushes: false,
        }
    }

    /// While tables are merged.
    pub fn with_flushes(core: &'a Core) -> Relief<'a> {
        Relief {
            flushes: true,
            ..Relief::new(core)
        }
    }

    /// Does what writers wait for, as far as there is room in the compression buffer; whether there was any.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn give(&mut self) -> Result<bool> {
        let core = self.core;
        if core.view.read().sealed.is_empty() {
            return Ok(false);
        }
        let block_bytes = core.settings.block_bytes;
        let cutter = self.cutter.get_or_insert_with(|| Cutter::new(block_bytes));
        if self.flushes && core.buffer_is_full() {
            match core.flush_buffer(cutter) {
                // The merge of tables goes on: it may make room.
                Err(e) if e.is_transient() => self.flushes = false,
                done => done?,
            }
        }
        let compressed = core.has_room() && core.compress_oldest(cutter)?;
        if compressed {
            let _signals = core.signals.lock();
            core.progress.notify_all();
        }
        Ok(compressed)
    }
}
