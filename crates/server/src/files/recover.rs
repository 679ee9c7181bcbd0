//! After a restart, once all members answer.
//!
//! - A part staged here: its owner says whether it was decided. If so it is published; if not, the owner promises that
//!   it never will be, and it is dropped.
//! - A decision left here: published again where it was not, then dropped.
//! - Files without a name: nobody holds them open any more, so they are removed, in the background.
//!
//! A member that cannot be reached leaves its part for later: the background thread tries again.
use super::Shared;
use crate::{Fid, Result, keys};
use std::ops::Bound;

impl Shared {
    pub(super) fn recover(&self) -> Result<()> {
        let orphans = self.orphans()?;
        for id in self.staged.all() {
            if let Err(error) = self.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is not known yet");
                self.chores.retry_later();
            }
        }
        for fid in self.decisions.files() {
            if !orphans.contains(&fid) {
                let _busy = self.busy(fid)?;
                match self.settle(fid, true) {
                    Err(error) if error.is_damage() => {
                        tracing::error!(fid = fid.0, %error, "a decided commit is not published everywhere; the next start tries again");
                    }
                    settled => drop(settled?),
                }
            }
        }
        for fid in orphans {
            self.chores.remove(fid);
        }
        self.outbox.wake();
        Ok(())
    }

    /// Files of this member without a name.
    pub(super) fn orphans(&self) -> Result<Vec<Fid>> {
        let mut orphans = Vec::new();
        for entry in self
            .store
            .scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded)
        {
            if let Ok(fid) = <[u8; 8]>::try_from(&entry?.0[..]) {
                orphans.push(Fid(u64::from_be_bytes(fid)));
            }
        }
        Ok(orphans)
    }
}
