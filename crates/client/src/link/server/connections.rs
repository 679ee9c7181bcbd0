//! How many connections there may be.
use parking_lot::Mutex;
use std::sync::Arc;

/// Counts those that are open.
pub(super) struct ConnectionCount {
    open: Mutex<usize>,
    most: usize,
}

/// One connection, counted while it lives.
pub(super) struct ConnectionPermit(Arc<ConnectionCount>);

impl ConnectionCount {
    pub fn new(most: usize) -> Arc<ConnectionCount> {
        let open = Mutex::new(0);
        Arc::new(ConnectionCount { open, most })
    }

    pub fn most(&self) -> usize {
        self.most
    }

    /// `None`: there are as many as may be.
    pub fn permit(self: &Arc<ConnectionCount>) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        if *open >= self.most {
            return None;
        }
        *open += 1;
        Some(ConnectionPermit(self.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        *self.0.open.lock() -= 1;
    }
}
