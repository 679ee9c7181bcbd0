//! Keeping pending writes and windows of all files inside the delegate's share of the memory.
//!
//! Counting is done now and then, not on every write: layers report how many pieces they grew by, and when that sums up
//! to an eighth of the limit, all files are looked at. Windows and maps are a cache, and are emptied. Pending writes are published
//! early, fullest file first.
use super::Delegate;
use super::commit::LayerCommitter;
use super::handles::OpenFileTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of one piece of a layer, about: a map entry with its share of the tree.
pub const PIECE: u64 = 80;
/// Memory of one file this node knows, about, beside the pieces of its layers.
pub const FILE: u64 = 1024;

/// Keeps the layers of all files small.
pub(super) struct LayerMemory {
    table: Arc<OpenFileTable>,
    committer: Arc<LayerCommitter>,
    always_sync: bool,
    /// Pieces that layers grew by since they were last counted.
    grown: AtomicUsize,
    /// Pieces that the layers of all files may have.
    pub most_pieces: usize,
}

impl LayerMemory {
    /// Of at most `bytes`, about.
    pub fn new(
        table: Arc<OpenFileTable>,
        committer: Arc<LayerCommitter>,
        always_sync: bool,
        bytes: u64,
    ) -> LayerMemory {
        LayerMemory {
            table,
            committer,
            always_sync,
            grown: AtomicUsize::new(0),
            most_pieces: (bytes / PIECE) as usize,
        }
    }

    /// Some layer grew by `pieces`. `publish`: the caller holds nothing that a commit needs, so one may happen here.
    pub fn grew(&self, pieces: usize, publish: bool) {
        let before = self.grown.fetch_add(pieces, Ordering::Relaxed);
        if before + pieces < self.most_pieces / 8 {
            return;
        }
        self.grown.store(0, Ordering::Relaxed);
        let files = self.table.all_known();
        let (mut windows, mut pending) = (0, Vec::new());
        for file in &files {
            let state = file.state.lock();
            windows += state.cached();
            let committing = state
                .committing
                .as_ref()
                .map_or(0, |a| a.layer.intervals.len());
            pending.push((state.pending.intervals.len() + committing, file));
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
            if let Err(e) = self.committer.publish(file, self.always_sync) {
                tracing::warn!(fid = file.fid.0, error = %e, "an early commit failed; the writes stay pending");
            }
            total -= n;
        }
    }
}

impl Delegate {
    /// Memory of known files, their pending writes, windows and maps, and kept buffers, and what was fetched ahead; bytes, about.
    pub fn memory(&self) -> u64 {
        let pieces = |file: &Arc<super::open_file::OpenFile>| {
            let state = file.state.lock();
            let committing = state
                .committing
                .as_ref()
                .map_or(0, |a| a.layer.intervals.len());
            (state.cached() + state.pending.intervals.len() + committing) as u64
        };
        let known = self.table.all_known();
        let layers = known.iter().map(pieces).sum::<u64>() * PIECE;
        let ahead = self.prefetch.as_ref().map_or(0, |p| p.memory());
        layers + known.len() as u64 * FILE + self.reader.buffers.held() + ahead
    }
}
