//! Whether a new extent may go on where a stored one ends, or end where one begins: then the two become one, and what is stored
//! must be read.
//!
//! Only extents of one stream do: the same member, log and commit. In a stream, log addresses mostly ascend as they come; so it is enough
//! to know the least and the greatest address stored, and which extents have them.
use crate::Extent;

/// Streams that a file remembers.
const MOST: usize = 32;

/// One member's log in one commit.
#[derive(Debug, Clone, Copy)]
struct Stream {
    member: u16,
    log: u64,
    seq: u64,
    /// The least address, and [`Extent::delta`] of the extent that has it.
    first: (u64, u64),
    /// The address behind the greatest, and the same of its extent.
    end: (u64, u64),
    /// More may be stored of it than this tells.
    more: bool,
}

/// The streams of a file's stored extents.
#[derive(Debug, Default)]
pub struct Streams {
    /// Used last is last.
    known: Vec<Stream>,
    /// The greatest sequence of those that were forgotten.
    forgotten: Option<u64>,
    /// The greatest sequence of all.
    newest: Option<u64>,
}

impl Streams {
    /// Memory beyond itself, in bytes.
    pub fn heap(&self) -> usize {
        self.known.capacity() * size_of::<Stream>()
    }

    fn find(&self, extent: &Extent) -> Option<usize> {
        self.known
            .iter()
            .rposition(|s| s.log == extent.log && s.seq == extent.seq && s.member == extent.member)
    }

    /// Whether some stored extent may continue `extent` or be continued by it.
    pub fn may_join(&self, extent: &Extent) -> bool {
        // The common case: a commit of its own.
        if self.newest.is_none_or(|newest| newest < extent.seq) {
            return false;
        }
        let Some(at) = self.find(extent) else {
            return self.forgotten.is_some_and(|seq| extent.seq <= seq);
        };
        let stream = &self.known[at];
        let (start, end) = (extent.addr, extent.addr.saturating_add(extent.len));
        if stream.more {
            return true;
        }
        if start >= stream.end.0 {
            return stream.end == (start, extent.delta());
        }
        if end <= stream.first.0 {
            return stream.first == (end, extent.delta());
        }
        true
    }

    /// `extent` is stored.
    pub fn add(&mut self, extent: &Extent) {
        self.newest = self.newest.max(Some(extent.seq));
        let delta = extent.delta();
        let (start, end) = (extent.addr, extent.addr.saturating_add(extent.len));
        let Some(at) = self.find(extent) else {
            if self.known.len() == MOST {
                let gone = self.known.remove(0);
                self.forgotten = self.forgotten.max(Some(gone.seq));
            }
            self.known.push(Stream {
                member: extent.member,
                log: extent.log,
                seq: extent.seq,
                first: (start, delta),
                end: (end, delta),
                more: self.forgotten.is_some_and(|seq| extent.seq <= seq),
            });
            return;
        };
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
        (0u64..40, 1u64..8, log, 0u64..40, 0u64..60).prop_map(|(offset, len, log, addr, seq)| {
            Extent {
                offset: offset * 4,
                len: len * 4,
                member: (log % 2) as u16,
                log,
                addr: addr * 4,
                seq: seq / 20 * seq,
            }
        })
    }

    proptest! {
        #[test]
        fn what_may_join_is_never_missed(stored in proptest::collection::vec(extents(), 0..80), new in proptest::collection::vec(extents(), 20)) {
            let mut streams = Streams::default();
            stored.iter().for_each(|e| streams.add(e));
            for e in new {
                let joins = stored.iter().any(|s| s.continues_with(&e) || e.continues_with(s));
                prop_assert!(!joins || streams.may_join(&e), "{e:?}");
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
                assert!(!streams.may_join(&e), "{e:?}");
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
        assert!(streams.may_join(&next));
        assert!(!streams.may_join(&Extent { seq: 4, ..next }));
    }
}
