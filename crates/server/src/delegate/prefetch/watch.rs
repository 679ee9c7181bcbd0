//! The part of an open handle: how long its reads wait, and what reads come next if they wait long.
//!
//! Invariant: a watched handle gives up what was fetched for it when it goes, or when it is watched no longer.
use super::Prefetch;
use super::reader::Reader;
use super::waits::Waits;
use crate::Fid;
use crate::prefetch_config::Policy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The part of an open handle.
#[derive(Default)]
pub struct Watch(pub(super) Mutex<Account>);

#[derive(Default)]
pub(super) struct Account {
    pub(super) waits: Waits,
    pub(super) watched: Option<Box<Watched>>,
}

/// A handle that is watched.
pub(super) struct Watched {
    pub(super) reader: Reader,
    fid: Fid,
    prefetch: Arc<Prefetch>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let left = self.reader.leave();
        self.prefetch.give_up(self.fid, &left);
        self.prefetch.watched.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watch {
    pub(super) fn note(&self, waited: Duration, len: usize, arrived: Option<bool>) {
        let mut account = self.0.lock();
        account.waits.note(waited, len);
        if let (Some(late), Some(watched)) = (arrived, &mut account.watched) {
            watched.reader.arrived(late);
        }
    }
}

impl Prefetch {
    pub(super) fn watch(self: &Arc<Prefetch>, fid: Fid) -> Option<Box<Watched>> {
        let memory = || self.remembered(fid);
        let most = self.config.depth as usize;
        let reader = match self.config.policy {
            Policy::None => return None,
            Policy::Readahead => Reader::readahead(),
            Policy::Markov => Reader::markov(memory().chain, most),
            Policy::Pattern => Reader::pattern(memory().steps, most),
            Policy::Perfect => Reader::perfect(self.config.future.clone()?, most),
        };
        self.watched.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(Watched {
            reader,
            fid,
            prefetch: self.clone(),
        }))
    }
}
