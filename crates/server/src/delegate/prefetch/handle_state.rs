//! The prefetcher's state of an open handle: how long its reads wait and, if they wait long, a reader that predicts the next ones.
//!
//! Invariant: when a watched handle is closed, or no longer watched, its prefetched bytes may be evicted.
use super::cache::PieceCache;
use super::reader::HandleReader;
use super::wait_average::ReadWaits;
use crate::Fid;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The part of an open handle.
#[derive(Default)]
pub struct ReadWatch(pub(super) Mutex<WatchState>);

#[derive(Default)]
pub(super) struct WatchState {
    pub(super) waits: ReadWaits,
    pub(super) watched: Option<Box<WatchedHandle>>,
}

/// A handle that is watched.
pub(super) struct WatchedHandle {
    pub(super) reader: HandleReader,
    pub(super) fid: Fid,
    pub(super) cache: Arc<PieceCache>,
}

impl Drop for WatchedHandle {
    fn drop(&mut self) {
        let left = self.reader.drop_plan();
        self.cache.give_up(self.fid, &left);
        self.cache.watched.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadWatch {
    pub(super) fn note(&self, waited: Duration, len: usize, arrived: Option<bool>) {
        let mut account = self.0.lock();
        account.waits.note(waited, len);
        if let (Some(late), Some(watched)) = (arrived, &mut account.watched) {
            watched.reader.arrived(late);
        }
    }
}
