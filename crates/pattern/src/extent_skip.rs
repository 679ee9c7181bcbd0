//! Skips many extents at once: finds where bytes without a hole end.
//!
//! A cell that is as long as the innermost stride fills its row; a row as long as the next stride fills that axis; and so
//! on outwards. Every byte is held up to the end of the largest block of cells that is filled so.

use crate::global::{Axis, GlobalPattern, MAX_AXES};
use crate::map::{EntryPart, MapEntry, PatternMap};

impl PatternMap {
    /// The offset after some bytes from `offset` on that are all held; `None` if that at `offset` is not.
    pub fn filled(&self, offset: u64) -> Option<u64> {
        let mut end = None;
        self.around(0, self.entries.len(), offset, &mut |entry: &MapEntry| {
            if let Some(hit) = self.hit(entry, offset) {
                let block = match &entry.part {
                    EntryPart::GlobalPattern(global) => global.filled(offset).min(entry.hi),
                    EntryPart::Term { .. } => 0,
                };
                end = end.max(Some(block.max(hit.end())));
            }
        });
        end
    }
}

impl GlobalPattern {
    /// The offset after bytes that are all held, from the one at `offset` on, which is. 0 if that is not known at once.
    fn filled(&self, offset: u64) -> u64 {
        let mut at = [0; MAX_AXES];
        let (Some((_, rest)), Some(mut extent)) =
            (self.locate(offset, &mut at), self.lattice.full(&self.arena))
        else {
            return 0;
        };
        let mut start = offset - rest;
        for (axis, k) in self.axes.iter().zip(at).rev() {
            let Axis::Steps { stride, count, .. } = axis else {
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
