//! Runs of a mapped span: where its live bytes are since they were settled.
//!
//! A run is a part of a container, named by position in it and not by the chunks that lie there: so a run is cut anywhere
//! without a look at the container, and means the same wherever the container moves. Or it is zeros, which are stored nowhere.
//!
//! ```text
//! after the head of a span's value (`span`): n varint, then n runs in address order
//!   length * 2 + zeros   varint; zeros: 1 for a run of zeros, which ends here
//!   container            varint: folded difference to the container of the run before (0 before the first)
//!   position in it       varint
//! ```
//! Invariants: no run is empty; together they are as long as the span's live addresses.
use crate::container::{ContainerId, MAX_CONTAINER_BYTES};
use forebay_codec::varint;
use std::ops::Range;

/// Where the bytes of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSource {
    /// Nowhere: all of them are 0.
    Zeros,
    /// In a container, from a position on.
    Container {
        /// Its number.
        id: ContainerId,
        /// The position of the first byte.
        at: u32,
    },
}

/// Consecutive addresses whose bytes are consecutive too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Length, bytes.
    pub len: u32,
    /// Where they are.
    pub source: RunSource,
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpanRuns(Vec<Run>);

impl RunSource {
    /// The source of the byte this many bytes further on.
    pub fn advanced_by(self, bytes: u32) -> RunSource {
        match self {
            RunSource::Zeros => RunSource::Zeros,
            RunSource::Container { id, at } => RunSource::Container { id, at: at + bytes },
        }
    }
}

impl Run {
    /// The same without its first `skip` bytes, and no longer than `len`.
    fn part(self, skip: u32, len: u32) -> Run {
        Run {
            len: len.min(self.len - skip),
            source: self.source.advanced_by(skip),
        }
    }

    /// Positions in its container.
    pub fn in_container(&self) -> Option<(ContainerId, Range<u64>)> {
        match self.source {
            RunSource::Zeros => None,
            RunSource::Container { id, at } => {
                Some((id, u64::from(at)..u64::from(at) + u64::from(self.len)))
            }
        }
    }
}

impl SpanRuns {
    /// Appends a run; joins it to the last one if that continues with it.
    pub fn push(&mut self, run: Run) {
        if let Some(last) = self.0.last_mut()
            && let Some(len) = last.len.checked_add(run.len)
        {
            let goes_on = match (last.source, run.source) {
                (RunSource::Zeros, RunSource::Zeros) => true,
                (
                    RunSource::Container { id, at },
                    RunSource::Container {
                        id: next,
                        at: position,
                    },
                ) => id == next && at + last.len == position,
                _ => false,
            };
            if goes_on {
                last.len = len;
                return;
            }
        }
        self.0.push(run);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Run> {
        self.0.iter().copied()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Memory, bytes.
    pub fn memory(&self) -> usize {
        size_of::<Run>() * self.0.len()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|run| u64::from(run.len)).sum()
    }

    /// Bytes that are zeros.
    pub fn zeros(&self) -> u64 {
        let zeros = self.0.iter().filter(|run| run.source == RunSource::Zeros);
        zeros.map(|run| u64::from(run.len)).sum()
    }

    /// The runs of a range of their bytes, counted from the first byte.
    pub fn within(&self, wanted: Range<u64>) -> impl Iterator<Item = Run> {
        let mut at = 0;
        self.0.iter().filter_map(move |run| {
            let here = at..at + u64::from(run.len);
            at = here.end;
            let (start, end) = (here.start.max(wanted.start), here.end.min(wanted.end));
            (start < end).then(|| run.part((start - here.start) as u32, (end - start) as u32))
        })
    }

    /// Appends them to a record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.0.len() as u64);
        let mut before = 0;
        for run in &self.0 {
            let zeros = u64::from(run.source == RunSource::Zeros);
            varint::put(out, u64::from(run.len) * 2 + zeros);
            if let RunSource::Container { id, at } = run.source {
                varint::put(out, varint::fold(id.wrapping_sub(before)));
                varint::put(out, u64::from(at));
                before = id;
            }
        }
    }

    /// Decodes runs of so many bytes together.
    pub(crate) fn decode(live: u64, mut bytes: &[u8]) -> Result<SpanRuns, &'static str> {
        const SHORT: &str = "cut short";
        let bytes = &mut bytes;
        let count = varint::take(bytes).ok_or(SHORT)?;
        // Each takes a byte at least.
        if count > bytes.len() as u64 {
            return Err(SHORT);
        }
        let mut runs = Vec::with_capacity(count as usize);
        let (mut before, mut sum) = (0u64, 0u64);
        for _ in 0..count {
            let head = varint::take(bytes).ok_or(SHORT)?;
            let len = u32::try_from(head >> 1).map_err(|_| "a run is too long")?;
            let source = match head & 1 {
                1 => RunSource::Zeros,
                _ => {
                    let id = varint::unfold(varint::take(bytes).ok_or(SHORT)?);
                    before = before.wrapping_add(id);
                    let at = varint::take(bytes).ok_or(SHORT)?;
                    if at.saturating_add(len.into()) > MAX_CONTAINER_BYTES {
                        return Err("a run is outside its container");
                    }
                    let (id, at) = (before, at as u32);
                    RunSource::Container { id, at }
                }
            };
            if len == 0 {
                return Err("a run is empty");
            }
            sum += u64::from(len);
            runs.push(Run { len, source });
        }
        match (sum == live, bytes.is_empty()) {
            (true, true) => Ok(SpanRuns(runs)),
            (false, _) => Err("runs of a wrong length"),
            (_, false) => Err("bytes after the runs"),
        }
    }
}

impl FromIterator<Run> for SpanRuns {
    fn from_iter<T: IntoIterator<Item = Run>>(runs: T) -> SpanRuns {
        let mut all = SpanRuns::default();
        runs.into_iter().for_each(|run| all.push(run));
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs of any kind.
    pub fn runs() -> impl Strategy<Value = SpanRuns> {
        let run = (1u32..9000, 0u64..5, 0u32..40_000).prop_map(|(len, id, at)| Run {
            len,
            source: match id {
                0 => RunSource::Zeros,
                id => RunSource::Container {
                    id: id * 1_000_003,
                    at,
                },
            },
        });
        prop::collection::vec(run, 1..20).prop_map(|runs| runs.into_iter().collect())
    }

    /// Where each byte is.
    fn places(runs: impl Iterator<Item = Run>) -> Vec<Option<(ContainerId, u64)>> {
        let of = |run: Run| {
            let len = u64::from(run.len);
            (0..len).map(move |i| {
                let (id, at) = run.in_container()?;
                Some((id, at.start + i))
            })
        };
        runs.flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn runs_come_back_and_a_part_of_them_names_the_same_bytes(
            runs in runs(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
        ) {
            let mut out = Vec::new();
            runs.encode(&mut out);
            prop_assert_eq!(SpanRuns::decode(runs.bytes(), &out), Ok(runs.clone()));
            prop_assert!(SpanRuns::decode(runs.bytes() + 1, &out).is_err());
            prop_assert!(SpanRuns::decode(runs.bytes(), &out[..out.len() - 1]).is_err());
            let all = places(runs.iter());
            prop_assert_eq!(all.len() as u64, runs.bytes());
            let (a, b) = (a.index(all.len()), b.index(all.len()));
            let (start, end) = (a.min(b), a.max(b) + 1);
            prop_assert_eq!(&places(runs.within(start as u64..end as u64)), &all[start..end]);
            let zeros = all.iter().filter(|at| at.is_none()).count();
            prop_assert_eq!(runs.zeros(), zeros as u64);
        }

        #[test]
        fn any_bytes_are_refused_or_runs_of_the_length_told(bytes in prop::collection::vec(any::<u8>(), 0..40), live in 1u64..5000) {
            if let Ok(runs) = SpanRuns::decode(live, &bytes) {
                prop_assert_eq!(runs.bytes(), live);
            }
        }
    }
}
