//! Finding data and holes.
use super::context::ViewRetry;
use super::open_file::{FetchedExtents, OpenFile};
use super::read::LayerReader;
use crate::{Error, Result};
use rustix::io::Errno;
use std::ops::Range;

/// What a seek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTarget {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not; the end of the file counts.
    Hole,
}

impl LayerReader {
    /// The next data or hole at or after `offset`; the end of the file counts as a hole. `ENXIO` at or past the end, or if there is
    /// no more data.
    pub fn seek(&self, file: &OpenFile, offset: u64, target: SeekTarget) -> Result<u64> {
        let (mut at, mut retry) = (offset, ViewRetry::default());
        // What this call was told of the view it is at, from `at` on.
        let (mut asked, mut view) = (FetchedExtents::default(), 0);
        loop {
            let (hole, until, size, generation) = {
                let state = file.state.lock();
                let generation = state.attr.generation;
                if generation != view {
                    asked = FetchedExtents::default();
                    view = generation;
                }
                let (hole, until) = state.hole_at(at, &asked);
                (hole, until, state.size(), generation)
            };
            if at >= size {
                return if target == SeekTarget::Hole && offset < size {
                    Ok(size)
                } else {
                    Err(Errno::NXIO.into())
                };
            }
            match (hole, target) {
                (Some(false), SeekTarget::Data) | (Some(true), SeekTarget::Hole) => return Ok(at),
                (Some(_), _) => at = until,
                (None, _) => {
                    // What was told before lies behind.
                    asked.pieces.clear();
                    match self.ask_at(file, at..size, target, generation, &mut asked) {
                        Ok(()) => {}
                        Err(Error::Replan) => {
                            at = offset;
                            self.ctx.retry_view(file, generation, &mut retry)?;
                        }
                        Err(e) => return Err(e),
                    }
                }
            }
        }
    }

    /// Learns of the first byte of `range`: looking for data, from the next extent anywhere; looking for a hole, from its
    /// slice.
    fn ask_at(
        &self,
        file: &OpenFile,
        range: Range<u64>,
        target: SeekTarget,
        generation: u64,
        asked: &mut FetchedExtents,
    ) -> Result<()> {
        if target == SeekTarget::Data {
            let had_map = asked.map.is_some();
            self.extents
                .ask_ahead(file, range.start, range.end, generation, asked)?;
            if !asked.pieces.is_empty() || asked.map.is_some() != had_map {
                return Ok(());
            }
        }
        self.extents
            .ask_extents(file, &[range], generation, 1, asked)
    }
}
