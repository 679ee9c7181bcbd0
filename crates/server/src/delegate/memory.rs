//! Keeps the pending writes and windows of all files within the delegate's share of the memory.
//!
//! Memory is not measured at every write: layers report how many pieces they grew by, and when the sum reaches an eighth of the
//! limit, all files are measured. Windows and maps are a cache and are emptied first. Then pending writes are published early, the
//! largest file first.
use super::commit::LayerCommitter;
use super::context::DelegateContext;
use super::intervals::INTERVAL_MEMORY;
use super::open_file::FILE_MEMORY;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps the layers of all files small.
pub(super) struct LayerMemory {
    pub ctx: Arc<DelegateContext>,
    pub committer: Arc<LayerCommitter>,
    /// Pieces that layers grew by since they were last counted.
    pub grown: AtomicUsize,
    /// Pieces that the layers of all files may have.
    pub most_pieces: usize,
}

impl LayerMemory {
    /// Some layer grew by `pieces`. `publish`: the caller holds nothing that a commit needs, so one may happen here.
    pub fn layer_grew(&self, pieces: usize, publish: bool) {
        let before = self.grown.fetch_add(pieces, Ordering::Relaxed);
        if before + pieces < self.most_pieces / 8 {
            return;
        }
        self.grown.store(0, Ordering::Relaxed);
        let files = self.ctx.table.all_known();
        let (mut windows, mut pending) = (0, Vec::new());
        for file in &files {
            let state = file.state.lock();
            windows += state.cached();
            pending.push((state.unpublished_intervals(), file));
        }
        if windows > self.most_pieces / 2 {
            files.iter().for_each(|file| file.state.lock().empty());
        }
        let mut total: usize = pending.iter().map(|(n, _)| n).sum();
        if !publish || total <= self.most_pieces / 2 {
            return;
        }
        pending.sort_unstable_by_key(|(n, _)| *n);
        while let Some((n, file)) = pending.pop().filter(|_| total > self.most_pieces / 4) {
            self.committer.publish_early(file);
            total -= n;
        }
    }
    /// Memory of known files, their pending writes, windows and maps; bytes, about.
    pub fn held(&self) -> u64 {
        let known = self.ctx.table.all_known();
        let intervals = known.iter().map(|file| {
            let state = file.state.lock();
            (state.cached() + state.unpublished_intervals()) as u64
        });
        intervals.sum::<u64>() * INTERVAL_MEMORY + known.len() as u64 * FILE_MEMORY
    }
}
