//! The lock of directory moves, kept by the root's owner.
//!
//! A move of a directory to another parent could close a loop together with another such move, though each alone is fine.
//! So such moves (and only they: a new name under the same parent changes no ancestry) go one at a time: the mover holds
//! it from before its loop check (`coordinator`) until the new parent is written everywhere. It is on disk, so that a
//! restart of member 0 does not release it early; a holder that crashed before it decided is found by asking it.
use super::attempt::AttemptError;
use super::local::LocalNamespace;
use super::records::{self, RecordTag};
use crate::Result;
use forebay_proto::intents::IntentId;
use forebay_storage::Batch;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The lock (used at member 0 only).
pub(crate) struct DirectoryMoveLock {
    local: Arc<LocalNamespace>,
    holder: Mutex<Option<IntentId>>,
    left: Condvar,
}

impl DirectoryMoveLock {
    pub fn open(local: Arc<LocalNamespace>) -> Result<DirectoryMoveLock> {
        let holder = records::get(&local.store, RecordTag::DirectoryMoveLock, records::SINGLE)?;
        Ok(DirectoryMoveLock {
            local,
            holder: Mutex::new(holder),
            left: Condvar::new(),
        })
    }

    pub fn holder(&self) -> Option<IntentId> {
        *self.holder.lock()
    }

    /// Takes the lock for an intent, or says who has it.
    pub fn take(&self, id: IntentId) -> Result<(), AttemptError> {
        let mut holder = self.holder.lock();
        if let Some(by) = *holder {
            return if by == id {
                Ok(())
            } else {
                Err(AttemptError::Busy {
                    at: self.local.member(),
                    by,
                })
            };
        }
        let mut batch = Batch::new();
        records::put(
            &mut batch,
            RecordTag::DirectoryMoveLock,
            records::SINGLE,
            &id,
        );
        self.local.apply(batch)?;
        *holder = Some(id);
        Ok(())
    }

    /// Releases the lock, if this intent has it.
    pub fn release(&self, id: IntentId) -> Result<()> {
        let mut holder = self.holder.lock();
        if *holder == Some(id) {
            let mut batch = Batch::new();
            records::delete(&mut batch, RecordTag::DirectoryMoveLock, records::SINGLE);
            self.local.apply(batch)?;
            *holder = None;
            self.left.notify_all();
        }
        Ok(())
    }

    /// Waits until the intent does not have the lock, `limit` at most.
    pub fn wait(&self, id: IntentId, limit: Duration) {
        let mut holder = self.holder.lock();
        let until = Instant::now() + limit;
        while *holder == Some(id) && !self.left.wait_until(&mut holder, until).timed_out() {}
    }
}
