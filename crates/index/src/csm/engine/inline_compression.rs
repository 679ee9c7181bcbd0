//! Compresses sealed MemTables in the middle of a flush or a merge, so that writers do not stall. A flush or merge takes seconds. A
//! MemTable is full after milliseconds, and writers wait while too many are sealed.
use super::super::block::BlockSplitter;
use super::EngineState;
use forebay_storage::Result;

/// Compresses sealed MemTables between two blocks of something longer; if that merges tables, it also brings a full buffer to disk.
pub struct InlineCompression<'a> {
    state: &'a EngineState,
    splitter: Option<BlockSplitter>,
    flushes: bool,
}

impl<'a> InlineCompression<'a> {
    /// While trees are merged or flushed.
    pub fn new(state: &'a EngineState) -> InlineCompression<'a> {
        InlineCompression {
            state,
            splitter: None,
            flushes: false,
        }
    }

    /// While tables are merged.
    pub fn with_flushes(state: &'a EngineState) -> InlineCompression<'a> {
        InlineCompression {
            flushes: true,
            ..InlineCompression::new(state)
        }
    }

    /// Does what writers wait for, as far as there is room in the compression buffer; whether there was any.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn compress_next(&mut self) -> Result<bool> {
        let state = self.state;
        if state.view.read().sealed.is_empty() {
            return Ok(false);
        }
        let block_bytes = state.settings.block_bytes;
        let splitter = self
            .splitter
            .get_or_insert_with(|| BlockSplitter::new(block_bytes));
        if self.flushes && state.view.read().is_buffer_full(&state.settings) {
            match state.flush_buffer(splitter) {
                // The merge of tables goes on: it may make room.
                Err(e) if e.is_transient() => self.flushes = false,
                done => done?,
            }
        }
        let room = state.view.read().has_room(&state.settings);
        let compressed = room && state.compress_oldest(splitter)?;
        if compressed {
            let _signals = state.signals.lock();
            state.signals.progress.notify_all();
        }
        Ok(compressed)
    }
}
