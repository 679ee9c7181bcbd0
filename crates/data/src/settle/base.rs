//! Finds what new containers may be encoded against: the bytes of an earlier version of their file, at the same places (`series`).
use super::Settler;
use crate::container::ContainerId;
use crate::series::KeyPart;
use crate::span::{Run, RunSource, SpanRuns};
use crate::verified_read::{CoalescedReadBuffer, WantedPart};
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
    /// The base for bytes of these addresses of a log, one after the other. `None`: there is none, or it is not worth a try.
    ///
    /// # Errors
    /// As disk and store, but for damage: then there is none.
    pub(super) fn find_base(
        &self,
        log: LogId,
        addresses: &[Range<u64>],
    ) -> Result<Option<FoundBase>> {
        match self.try_find_base(log, addresses) {
            Err(error) if error.is_damage() => {
                tracing::debug!(%error, "bytes are encoded without a base");
                Ok(None)
            }
            found => found,
        }
    }

    fn try_find_base(&self, log: LogId, addresses: &[Range<u64>]) -> Result<Option<FoundBase>> {
        let (mut runs, mut covered, mut gone) = (SpanRuns::default(), 0, 0);
        for addresses in addresses {
            let Some(parts) = self.series.key_parts(log, addresses.clone()) else {
                let len = (addresses.end - addresses.start) as u32;
                let source = RunSource::Zeros;
                runs.push(Run { len, source });
                continue;
            };
            for part in parts {
                let (there, freed) = self.add_runs(&part, &mut runs)?;
                (covered, gone) = (covered + there, gone + freed);
            }
        }
        if covered == 0 && gone > 0 {
            // The file was removed.
            self.series.replace_key(log);
        }
        if covered < runs.bytes() / MIN_COVERED_DIVISOR
            || covered == 0
            || runs.count() > MAX_BASE_RUNS
        {
            return Ok(None);
        }
        let Some(bytes) = self.read_base(&runs)? else {
            return Ok(None);
        };
        Ok(Some(FoundBase { runs, bytes }))
    }

    /// Adds the runs of a part of the key: zeros where it is not settled, or is itself encoded against others. Returns how many bytes there
    /// are, and how many were freed.
    fn add_runs(&self, part: &KeyPart, runs: &mut SpanRuns) -> Result<(u64, u64)> {
        let (mut left, mut covered, mut place) = (part.len, 0, part.place);
        while left > 0 {
            let span = match place {
                Some((key_log, addr)) => self.spans.find(key_log, addr)?.map(|span| (span, addr)),
                None => None,
            };
            let Some((span, addr)) = span else {
                let (len, source) = (left as u32, RunSource::Zeros);
                runs.push(Run { len, source });
                return Ok((covered, place.map_or(0, |_| left)));
            };
            let len = left.min(span.live.end - addr);
            let skip = addr - span.live.start;
            match span.runs() {
                None => runs.push(Run {
                    len: len as u32,
                    source: RunSource::Zeros,
                }),
                Some(found) => {
                    for run in found.within(skip..skip + len) {
                        let is_there = self.may_be_base(&run)?;
                        covered += if is_there { u64::from(run.len) } else { 0 };
                        runs.push(match is_there {
                            true => run,
                            false => Run {
                                source: RunSource::Zeros,
                                ..run
                            },
                        });
                    }
                }
            }
            left -= len;
            place = place.map(|(key_log, addr)| (key_log, addr + len));
        }
        Ok((covered, 0))
    }

    fn may_be_base(&self, run: &Run) -> Result<bool> {
        let Some((id, positions)) = run.in_container() else {
            return Ok(true);
        };
        let container = self.containers.find(id)?;
        let is_whole = |id: ContainerId| {
            let chunks = container.as_ref().and_then(|c| c.chunks_over(&positions));
            chunks.is_some_and(|mut chunks| {
                chunks.all(|chunk| !self.containers.damaged.contains(id, chunk))
            })
        };
        Ok(container.as_ref().is_some_and(|c| c.base().is_none()) && is_whole(id))
    }

    /// The bytes of a base; `None`: one of its containers changes just now.
    fn read_base(&self, base: &SpanRuns) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; base.bytes() as usize];
        let (mut rest, mut buffer) = (&mut bytes[..], CoalescedReadBuffer::of(&self.buffers));
        for run in base.iter() {
            let (into, behind) = rest.split_at_mut(run.len as usize);
            rest = behind;
            let RunSource::Container { id, at } = run.source else {
                continue;
            };
            let Some(container) = self.containers.find(id)? else {
                return Ok(None);
            };
            let mut wanted = [WantedPart {
                at: at.into(),
                into,
            }];
            let read = self
                .containers
                .read_parts(&container, &mut buffer, &mut wanted);
            if read?.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }
}
