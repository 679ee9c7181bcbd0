//! Tells whether a new extent may begin where a stored one ends, or end where one begins. The two then become one extent, and
//! the stored one must be read.
//!
//! Extents join only within one stream: one member, log and commit. Log addresses of a stream ascend as they come, because a
//! log is only appended to. So the least and the greatest stored address of a stream, and the extents that have them, are
//! enough. An extent whose address lies between them is not joined; that costs one extent more, and nothing else.
use crate::Extent;
use std::collections::VecDeque;

/// Streams that a file remembers.
const MAX_STREAMS: usize = 512;

/// One member's log in one commit.
#[derive(Debug, Clone, Copy)]
struct Stream {
    member: u16,
    log: u64,
    seq: u64,
    /// The least address, and [`Extent::delta`] of the extent that has it.
    first: (u64, u64),
    /// The address after the greatest, and the same of its extent.
    end: (u64, u64),
    /// More may be stored of it than this tells.
    more: bool,
}

/// The streams of a file's stored extents.
#[derive(Debug, Default)]
pub struct Streams {
    /// The newest last.
    known: VecDeque<Stream>,
    /// The greatest sequence of those that were forgotten.
    forgotten: Option<u64>,
    /// The greatest sequence of all.
    newest: Option<u64>,
    /// Where the one is that was added to last.
    last: usize,
}

impl Streams {
    /// Memory beyond itself, in bytes.
    pub fn heap(&self) -> usize {
        self.known.capacity() * size_of::<Stream>()
    }

    fn find(&self, extent: &Extent, hint: usize) -> Option<usize> {
        let of =
            |s: &Stream| s.log == extent.log && s.seq == extent.seq && s.member == extent.member;
        // Pieces of one stream come together.
        if self.known.get(hint).is_some_and(of) {
            return Some(hint);
        }
        self.known.iter().rposition(of)
    }

    /// Whether the first or last stored extent of its stream may continue `extent`, or be continued by it. `hint` is kept from one
    /// call to the next.
    pub fn may_join(&self, extent: &Extent, hint: &mut usize) -> bool {
        // The common case: a commit of its own.
        if self.newest.is_none_or(|newest| newest < extent.seq) {
            return false;
        }
        let Some(at) = self.find(extent, *hint) else {
            return self.forgotten.is_some_and(|seq| extent.seq <= seq);
        };
        *hint = at;
        let stream = &self.known[at];
        let (start, end) = (extent.addr, extent.addr.saturating_add(extent.len));
        if stream.more {
            return true;
        }
        let delta = extent.delta();
        stream.end == (start, delta) || stream.first == (end, delta)
    }

    /// `extent` is stored.
    pub fn add(&mut self, extent: &Extent) {
        let delta = extent.delta();
        let (start, end) = (extent.addr, extent.addr.saturating_add(extent.len));
        let new = self.newest.is_none_or(|newest| newest < extent.seq);
        let found = if new {
            None
        } else {
            self.find(extent, self.last)
        };
        self.newest = self.newest.max(Some(extent.seq));
        let Some(at) = found else {
            if self.known.len() == MAX_STREAMS {
                let gone = self.known.pop_front();
                self.forgotten = self.forgotten.max(gone.map(|s| s.seq));
            }
            self.last = self.known.len();
            self.known.push_back(Stream {
                member: extent.member,
                log: extent.log,
                seq: extent.seq,
                first: (start, delta),
                end: (end, delta),
                more: self.forgotten.is_some_and(|seq| extent.seq <= seq),
            });
            return;
        };
        self.last = at;
        let stream = &mut self.known[at];
        if start < stream.first.0 {
            stream.first = (start, delta);
        } else if start == stream.first.0 {
            stream.more |= delta != stream.first.1;
        }
        if end > stream.end.0 {
            stream.end = (end, delta);
        } else if end == stream.end.0 {
            stream.more |= delta != stream.end.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents() -> impl Strategy<Value = Extent> {
        let log = 0u64..3;
        (0u64..40, 1u64..8, log, 0u64..40, 0u64..400).prop_map(|(offset, len, log, addr, seq)| {
            Extent {
                offset: offset * 4,
                len: len * 4,
                member: (log % 2) as u16,
                log,
                addr: addr * 4,
                seq: seq / 100 * seq,
            }
        })
    }

    proptest! {
        #[test]
        fn what_joins_with_the_first_or_last_of_its_stream_is_not_missed(stored in proptest::collection::vec(extents(), 0..700), new in proptest::collection::vec(extents(), 20)) {
            let mut streams = Streams::default();
            stored.iter().for_each(|e| streams.add(e));
            for e in new {
                let same = |s: &&Extent| (s.member, s.log, s.seq) == (e.member, e.log, e.seq);
                let of_stream = || stored.iter().filter(same);
                let least = of_stream().map(|s| s.addr).min();
                let most = of_stream().map(|s| s.addr + s.len).max();
                let joins = of_stream().any(|s| {
                    s.continues_with(&e) && Some(e.addr) == most
                        || e.continues_with(s) && Some(e.addr + e.len) == least
                });
                prop_assert!(!joins || streams.may_join(&e, &mut 0), "{e:?}");
            }
        }
    }

    #[test]
    fn writers_in_turn_do_not_look_like_joins() {
        let mut streams = Streams::default();
        for turn in 0..100 {
            for writer in 0..16 {
                let e = Extent {
                    offset: (turn * 16 + writer) * 1024,
                    len: 1024,
                    member: 1,
                    log: writer,
                    addr: turn * 1024,
                    seq: 3,
                };
                assert!(!streams.may_join(&e, &mut 0), "{e:?}");
                streams.add(&e);
            }
        }
        let next = Extent {
            offset: 99 * 16 * 1024 + 1024,
            len: 10,
            member: 1,
            log: 0,
            addr: 100 * 1024,
            seq: 3,
        };
        assert!(streams.may_join(&next, &mut 0));
        assert!(!streams.may_join(&Extent { seq: 4, ..next }, &mut 0));
    }
}
