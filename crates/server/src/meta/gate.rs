//! The lock of directory moves, kept by the root's owner, and the loop check that it makes safe.
//!
//! A move of a directory to another parent could close a loop together with another such move, though each alone is
//! fine. So such moves (and only they: a new name under the same parent changes no ancestry) go one at a time:
//! the mover has the gate from before its loop check until the new parent is written everywhere. The gate is on disk, so
//! that a restart of member 0 does not open it early; a holder that crashed before it decided is found by asking it.
use super::{
    Meta, Stop,
    proto::{IntentId, MetaReply, MetaRequest},
    records,
    records::Tag,
    unexpected,
};
use crate::{Fid, Result};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use rustix::io::Errno;

/// More levels than any path can name; a longer walk means that the tree is damaged.
const DEPTH: usize = 1 << 20;

/// The gate (used at member 0 only).
pub(crate) struct Gate(Mutex<Option<IntentId>>);

impl Gate {
    pub fn open(store: &Store) -> Result<Gate> {
        Ok(Gate(Mutex::new(records::get(
            store,
            Tag::Gate,
            records::SINGLE,
        )?)))
    }

    pub fn holder(&self) -> Option<IntentId> {
        *self.0.lock()
    }
}

impl Meta {
    /// Takes the gate for an intent, or says who has it.
    pub(crate) fn take_gate(&self, id: IntentId) -> Result<(), Stop> {
        let mut holder = self.gate.0.lock();
        if let Some(by) = *holder {
            return if by == id {
                Ok(())
            } else {
                Err(Stop::Busy {
                    at: self.member(),
                    by,
                })
            };
        }
        let mut batch = Batch::new();
        records::put(&mut batch, Tag::Gate, records::SINGLE, &id);
        self.apply(batch)?;
        *holder = Some(id);
        Ok(())
    }

    /// Gives the gate back, if this intent has it.
    pub(crate) fn leave_gate(&self, id: IntentId) -> Result<()> {
        let mut holder = self.gate.0.lock();
        if *holder == Some(id) {
            let mut batch = Batch::new();
            records::delete(&mut batch, Tag::Gate, records::SINGLE);
            self.apply(batch)?;
            *holder = None;
        }
        Ok(())
    }

    /// Refuses to move directory `fid` under `parent` if `parent` lies in it. The caller has the gate.
    ///
    /// # Errors
    /// `EINVAL` for a loop.
    pub(crate) fn check_loop(&self, fid: Fid, parent: Fid) -> Result<()> {
        let mut at = parent;
        for _ in 0..DEPTH {
            if at == fid {
                return Err(Errno::INVAL.into());
            }
            if at == Fid::ROOT {
                return Ok(());
            }
            at = match self.call(at.owner(), MetaRequest::Parent { fid: at })? {
                MetaReply::Parent(parent) => parent,
                other => return Err(unexpected(at.owner(), &other)),
            };
        }
        Err(crate::Error::Corrupt(format!(
            "directory {:#x} has no way to the root; run `forebay fsck`",
            parent.0
        )))
    }
}
