//! Finding data and holes, and copying between files.
use super::open_file::{Asked, OpenFile};
use super::views::ViewRetry;
use super::{Delegate, Handle, Whence};
use crate::{Caller, Error, Result};
use rustix::io::Errno;
use std::ops::Range;

/// Bytes copied at a time.
const COPY_STEP: u64 = 1 << 20;
/// Bytes copied in one call; the caller asks again for the rest.
const COPY_MOST: u64 = 64 << 20;

impl Delegate {
    /// The next data or hole at or after `offset`; the end of the file counts as a hole.
    ///
    /// # Errors
    /// `ENXIO` at or past the end, or if there is no more data.
    pub fn seek(&self, handle: Handle, offset: u64, whence: Whence) -> Result<u64> {
        let _at = self.counters.other();
        let open = self.table.get(handle)?;
        open.used();
        let file = &open.file;
        if self.posix {
            self.views.refresh(file)?;
        }
        let (mut at, mut retry) = (offset, ViewRetry::default());
        // What this call was told of the view it is at, from `at` on.
        let (mut asked, mut view) = (Asked::default(), 0);
        loop {
            let (hole, until, size, generation) = {
                let state = file.state.lock();
                let generation = state.attr.generation;
                if generation != view {
                    asked = Asked::default();
                    view = generation;
                }
                let (hole, until) = state.stretch(at, &asked);
                (hole, until, state.size(), generation)
            };
            if at >= size {
                return if whence == Whence::Hole && offset < size {
                    Ok(size)
                } else {
                    Err(Errno::NXIO.into())
                };
            }
            match (hole, whence) {
                (Some(false), Whence::Data) | (Some(true), Whence::Hole) => return Ok(at),
                (Some(_), _) => at = until,
                (None, _) => {
                    // What was told before lies behind.
                    asked.pieces.clear();
                    match self.ask_at(file, at..size, whence, generation, &mut asked) {
                        Ok(()) => {}
                        Err(Error::Stale) => {
                            at = offset;
                            self.views.retry_view(file, generation, &mut retry)?;
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
        whence: Whence,
        generation: u64,
        asked: &mut Asked,
    ) -> Result<()> {
        if whence == Whence::Data {
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

    /// Copies up to `len` bytes; less at the end of the source, and at most 64 MiB a call. Extents are not shared.
    ///
    /// # Errors
    /// `EBADF` for handles that cannot read or write so, `EINVAL` for overlapping ranges of one file, and as read and write.
    pub fn copy_range(
        &self,
        from: Handle,
        offset: u64,
        to: Handle,
        to_offset: u64,
        len: u64,
        caller: Caller,
    ) -> Result<u64> {
        let (source, target) = (self.table.get(from)?, self.table.get(to)?);
        if !source.flags.read || !target.flags.write || target.flags.append {
            return Err(Errno::BADF.into());
        }
        let len = len.min(COPY_MOST);
        let apart =
            offset.saturating_add(len) <= to_offset || to_offset.saturating_add(len) <= offset;
        if source.file.fid == target.file.fid && !apart {
            return Err(Errno::INVAL.into());
        }
        let mut done = 0;
        while done < len {
            let step = (len - done).min(COPY_STEP) as u32;
            let copied = self
                .read(from, offset.saturating_add(done), step)
                .and_then(|bytes| {
                    self.write(to, to_offset.saturating_add(done), &bytes, caller)?;
                    Ok(bytes.len() as u64)
                });
            match copied {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}
