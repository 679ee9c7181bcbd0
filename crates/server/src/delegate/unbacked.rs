//! Doors for benchmarks of the index alone: writes whose bytes are nowhere, and reads that end when it is known where their bytes are.
//!
//! Everything else is as for any other write and read: the pending layer, commits, the owner's answers, what this node keeps of
//! them. A file that was written so cannot be read.
use super::intervals::Source;
use super::open_file::Asked;
use super::pending::appended;
use super::write::end_of;
use super::{Delegate, Handle, MOST_PENDING};
use crate::{Error, Result, Time};
use rustix::io::Errno;
use std::ops::Range;

/// Pieces that a step of a read works on.
const STEP: usize = 16 << 10;

/// Where the bytes of a range are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Located {
    /// Bytes that are in some log.
    pub bytes: u64,
    /// Pieces that they are in.
    pub pieces: u64,
}

impl Delegate {
    /// As a write of `len` bytes, which would be at `addr` of the handle's log.
    ///
    /// # Errors
    /// As a write.
    #[doc(hidden)]
    pub fn write_unbacked(&self, handle: Handle, offset: u64, len: u64, addr: u64) -> Result<()> {
        let open = self.table.get(handle)?;
        if !open.flags.write {
            return Err(Errno::BADF.into());
        }
        let end = end_of(offset, len as usize)?;
        let log = self.log_of(&open)?;
        let crowded = {
            let mut state = open.file.state.lock();
            let pending = &mut state.pending;
            pending.put(offset..end, appended(self.node.peers.member(), log, addr));
            pending.dropped.clear();
            pending.reach(end);
            pending.touch(Time::now());
            pending.intervals.len() > MOST_PENDING
        };
        match crowded {
            true => self.committer.publish(&open.file, self.always_sync),
            false => Ok(()),
        }
    }

    /// As a read of `range`, without the bytes.
    ///
    /// # Errors
    /// As a read; `Stale` if the file is written meanwhile.
    #[doc(hidden)]
    pub fn locate(&self, handle: Handle, range: Range<u64>) -> Result<Located> {
        let open = self.table.get(handle)?;
        let file = &open.file;
        let generation = file.state.lock().attr.generation;
        let (mut asked, mut at, mut located) = (Asked::default(), range.start, Located::default());
        while at < range.end {
            let (plan, map) = {
                let state = file.state.lock();
                if state.attr.generation != generation {
                    return Err(Error::Stale);
                }
                let plan = state.plan(at..range.end, &asked, STEP);
                let map = (!plan.missing.is_empty()).then(|| state.lowest(&asked));
                (plan, map.flatten())
            };
            let plan = match map {
                Some(map) => map.fill(plan, STEP),
                None => plan,
            };
            let known = plan.missing.first().map_or(plan.until, |m| m.start);
            if !plan.missing.is_empty() && (known == at || asked.pieces.len() < STEP) {
                self.extents
                    .ask_extents(file, &plan.missing, generation, STEP, &mut asked)?;
                continue;
            }
            for (piece, source) in plan.found.iter().take_while(|p| p.0.start < known) {
                if matches!(source, Source::Log { .. }) {
                    located.bytes += piece.end.min(known) - piece.start;
                    located.pieces += 1;
                }
            }
            at = known;
            asked.pieces.clear();
        }
        Ok(located)
    }
}
