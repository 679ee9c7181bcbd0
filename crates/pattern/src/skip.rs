//! Passing over many extents at once: what is above a hole, and how far bytes follow each other without one.
//!
//! ```text
//! filled   cells as long as the innermost stride, and so on outwards: the block of cells around the offset has every byte
//! newer    only entries with a newer sequence are looked at: all others are passed as if they were not there
//! ```

use crate::global::{Axis, Global, MAX_DIMS};
use crate::map::{Entry, Found, Map, Part, STEPS};

impl Map {
    /// The offset behind some bytes from `offset` on that are all held; `None` if that at `offset` is not.
    pub fn filled(&self, offset: u64) -> Option<u64> {
        let mut end = None;
        self.around(0, self.entries.len(), offset, &mut |entry: &Entry| {
            if let Some(hit) = self.hit(entry, offset) {
                let block = match &entry.part {
                    Part::Global(global) => global.filled(offset).min(entry.hi),
                    Part::Leaf { .. } | Part::Term { .. } => 0,
                };
                end = end.max(Some(block.max(hit.end())));
            }
        });
        end
    }

    /// As [`Map::lookup`], if only sequences above `sequence` count.
    pub fn newer(&self, offset: u64, sequence: u64) -> Found {
        let mut at = offset;
        for _ in 0..STEPS {
            match self.look_above(at, sequence) {
                Found::Data(_) if at > offset => return Found::Hole(at),
                Found::Hole(end) => at = end,
                other => return other,
            }
        }
        Found::Hole(at)
    }
}

impl Global {
    /// The offset behind bytes that are all held, from the one at `offset` on, which is. 0 if that is not known at once.
    fn filled(&self, offset: u64) -> u64 {
        let mut at = [0; MAX_DIMS];
        let (Some((_, rest)), Some(mut extent)) =
            (self.locate(offset, &mut at), self.lattice.full(&self.arena))
        else {
            return 0;
        };
        let mut start = offset - rest;
        for (axis, k) in self.axes.iter().zip(at).rev() {
            let (Axis::Loop { stride, count } | Axis::Slots { stride, count, .. }) = axis else {
                break;
            };
            if *stride != extent {
                break;
            }
            start -= k * stride;
            extent = stride * count;
        }
        start + extent
    }
}
