//! Finds what new containers may be encoded against: the bytes of an earlier version of their file, at the same places (`series`).
use super::Settler;
use crate::container::ContainerId;
use crate::series::BasePart;
use crate::span::{self, Run, RunSource, SpanRuns};
use crate::verified_read::CoalescedReadBuffer;
use forebay_proto::{LogId, Result};
use std::ops::Range;

/// Most runs of a base: each is a read of its own.
const MAX_BASE_RUNS: usize = 64;
/// Bytes of a container for which there must be some of the base: one in so many.
const MIN_COVERED_DIVISOR: u64 = 2;

/// What a container may be encoded against.
pub struct FoundBase {
    /// Where the bytes are.
    pub runs: SpanRuns,
    /// The bytes, as many as the container's.
    pub bytes: Vec<u8>,
}

impl Settler {
    /// The base for a new container of the bytes of these addresses of a log, one after the other. `None`: there is none, it cannot be read, or it is not
    /// worth a try.
    ///
    /// # Errors
    /// If the log store is poisoned.
    pub(super) fn find_base(
        &self,
        container: ContainerId,
        log: LogId,
        addresses: &[Range<u64>],
    ) -> Result<Option<FoundBase>> {
        let found = self.try_find_base(container, log, addresses);
        found.or_else(|error| {
            self.poison.check()?;
            tracing::debug!(%error, "bytes are encoded without a base");
            Ok(None)
        })
    }

    fn try_find_base(
        &self,
        container: ContainerId,
        log: LogId,
        addresses: &[Range<u64>],
    ) -> Result<Option<FoundBase>> {
        let mut found = BaseRuns::default();
        for addresses in addresses {
            match self.series.base_parts(log, addresses.clone()) {
                None => found.push_missing(addresses.end - addresses.start),
                Some(parts) => {
                    for part in parts {
                        self.add_runs(&part, &mut found)?;
                    }
                }
            }
            if found.runs.count() > MAX_BASE_RUNS {
                return Ok(None);
            }
        }
        let BaseRuns {
            runs,
            covered,
            freed,
        } = found;
        if let Some(freed) = freed.filter(|_| covered == 0) {
            let mut left = span::overlapping(&self.store, freed, 0..u64::MAX);
            if left.next().is_none() {
                // The file was removed.
                self.series.replace_base_version(log);
            }
        }
        if covered == 0 || covered < runs.bytes() / MIN_COVERED_DIVISOR {
            return Ok(None);
        }
        let all = 0..runs.bytes();
        let buffer = CoalescedReadBuffer::of(&self.buffers);
        let bytes = self.containers.read_base(container, &runs, all, &buffer)?;
        Ok(Some(FoundBase { runs, bytes }))
    }

    /// Adds the runs of a part of the base version: zeros where it is not settled, or is itself encoded against others.
    fn add_runs(&self, part: &BasePart, found: &mut BaseRuns) -> Result<()> {
        let (mut left, mut place) = (part.len, part.place);
        while left > 0 {
            let Some((log, addr)) = place else {
                found.push_missing(left);
                return Ok(());
            };
            let Some(span) = self.spans.find(log, addr)? else {
                found.freed = Some(log);
                found.push_missing(left);
                return Ok(());
            };
            let len = left.min(span.live.end - addr);
            let skip = addr - span.live.start;
            match span.runs() {
                None => found.push_missing(len),
                Some(runs) => {
                    for run in runs.within(skip..skip + len) {
                        match self.may_be_base(&run)? {
                            true => found.push(run),
                            false => found.push_missing(run.len.into()),
                        }
                    }
                }
            }
            left -= len;
            place = Some((log, addr + len));
        }
        Ok(())
    }

    /// Whether a hold may name this run: its chunks are counted and not known to be damaged, in a container without a base.
    fn may_be_base(&self, run: &Run) -> Result<bool> {
        let Some((id, positions)) = run.in_container() else {
            return Ok(true);
        };
        let (container, counts) = match self.containers.find_counted(id) {
            Err(error) if error.is_damage() => return Ok(false),
            found => match found? {
                Some(found) => found,
                None => return Ok(false),
            },
        };
        let is_whole = |chunk| counts.0[chunk] > 0 && !self.containers.damaged.contains(id, chunk);
        let chunks = container.chunks_over(&positions);
        Ok(container.base().is_none() && chunks.is_some_and(|mut chunks| chunks.all(is_whole)))
    }
}

/// The runs of a base as they are found.
#[derive(Default)]
struct BaseRuns {
    runs: SpanRuns,
    /// Bytes that are there.
    covered: u64,
    /// A log of which bytes were freed.
    freed: Option<LogId>,
}

impl BaseRuns {
    fn push(&mut self, run: Run) {
        self.covered += u64::from(run.len);
        self.runs.push(run);
    }

    /// Bytes that the base version does not have: zeros in their place.
    fn push_missing(&mut self, len: u64) {
        let source = RunSource::Zeros;
        // Of a container, which is shorter than 4 GiB.
        let len = len as u32;
        self.runs.push(Run { len, source });
    }
}
