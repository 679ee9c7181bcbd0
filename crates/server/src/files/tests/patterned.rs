//! Files with patterns at their owner: a small writer that folds as a delegate does, and a model of every byte.
use super::world::*;
use crate::*;
use forebay_index::{Change, Extent};
use forebay_pattern::{Folder, LogSource, Segment};
use forebay_proto::files::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A byte of a log: member, log, address.
pub(super) type Byte = (Member, u64, u64);

/// What a writer has done since its last commit: for each byte what is to be seen there.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    pub bytes: BTreeMap<u64, Byte>,
    /// One after the other; they come before the bytes.
    pub cuts: Vec<Range<u64>>,
}

impl Layer {
    /// Writes `len` bytes at `offset` from a log, whose end it moves.
    pub(super) fn write(
        &mut self,
        offset: u64,
        len: u64,
        (member, log): (Member, u64),
        end: &mut u64,
    ) {
        for at in 0..len {
            self.bytes.insert(offset + at, (member, log, *end + at));
        }
        *end += len;
    }

    /// Its pieces: offset, length, first byte.
    fn pieces(&self) -> Vec<(u64, u64, Byte)> {
        let mut pieces: Vec<(u64, u64, Byte)> = Vec::new();
        for (&offset, &(member, log, addr)) in &self.bytes {
            match pieces.last_mut() {
                Some((start, len, (m, l, a)))
                    if *start + *len == offset && (*m, *l, *a + *len) == (member, log, addr) =>
                {
                    *len += 1;
                }
                _ => pieces.push((offset, 1, (member, log, addr))),
            }
        }
        pieces
    }

    /// All of it as changes.
    pub(super) fn changes(&self) -> Vec<Change> {
        let puts = self
            .pieces()
            .into_iter()
            .map(|(offset, len, (member, log, addr))| {
                Change::Put(Extent {
                    offset,
                    len,
                    member,
                    log,
                    addr,
                    seq: 0,
                })
            });
        self.cut_changes().into_iter().chain(puts).collect()
    }

    fn cut_changes(&self) -> Vec<Change> {
        let cut = |r: &Range<u64>| Change::Cut {
            start: r.start,
            end: r.end,
        };
        self.cuts.iter().map(cut).collect()
    }

    /// Patterns of the logs for which `fold` says so, the rest as changes.
    pub(super) fn folded(&self, fold: impl Fn(u64) -> bool) -> (Vec<Change>, Vec<u8>) {
        let mut logs: BTreeMap<LogSource, Vec<(u64, u64, u64)>> = BTreeMap::new();
        for (offset, len, (member, log, addr)) in self.pieces() {
            logs.entry(LogSource { member, log })
                .or_default()
                .push((addr, offset, len));
        }
        let (mut changes, mut bytes) = (self.cut_changes(), Vec::new());
        for (source, mut pieces) in logs {
            pieces.sort_unstable();
            let mut folder = Folder::joining();
            for (addr, offset, len) in pieces {
                if fold(source.log) {
                    folder.push_at(offset, len, addr).unwrap();
                } else {
                    let LogSource { member, log } = source;
                    changes.push(Change::Put(Extent {
                        offset,
                        len,
                        member,
                        log,
                        addr,
                        seq: 0,
                    }));
                }
            }
            for pattern in folder.finish() {
                Segment::new(source, 0, pattern).encode(&mut bytes);
            }
        }
        (changes, bytes)
    }

    pub(super) fn attr(&self) -> CommitAttr {
        let end = self.bytes.keys().next_back().map(|last| last + 1);
        CommitAttr {
            end,
            ..Default::default()
        }
    }
}

/// What a file should hold, and every log byte that was ever committed.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub size: u64,
    pub bytes: BTreeMap<u64, Byte>,
    pub written: BTreeSet<Byte>,
}

impl Model {
    pub(super) fn apply(&mut self, layer: &Layer, attr: &CommitAttr) {
        for cut in &layer.cuts {
            self.bytes.retain(|at, _| !cut.contains(at));
        }
        self.bytes.extend(&layer.bytes);
        self.written.extend(layer.bytes.values());
        self.size = attr.size.unwrap_or(self.size.max(attr.end.unwrap_or(0)));
    }

    /// The file as `reader` sees it is the model's.
    pub(super) fn compare(&self, world: &World, reader: Member, fid: Fid) {
        let (attr, extents) = world.read(reader, fid).unwrap();
        assert_eq!(
            (attr.size, attr.bytes),
            (self.size, self.bytes.len() as u64)
        );
        let mut end = 0;
        let mut found = BTreeMap::new();
        for e in &extents {
            assert!(e.offset >= end && e.len > 0, "{extents:?}");
            end = e.end();
            found.extend((0..e.len).map(|i| (e.offset + i, (e.member, e.log, e.addr + i))));
        }
        if found != self.bytes {
            let all: BTreeSet<u64> = found.keys().chain(self.bytes.keys()).copied().collect();
            let at = all
                .into_iter()
                .find(|at| found.get(at) != self.bytes.get(at))
                .unwrap();
            assert_eq!(found.get(&at), self.bytes.get(&at), "at {at}, of {fid:?}");
        }
    }

    /// What was freed is all that no byte of the file is in any more. Everything is drained.
    pub(super) fn freed(&self, world: &World) {
        let mut freed = BTreeSet::new();
        for ((member, log), ranges) in &*world.net.freed.lock() {
            for addr in ranges.iter().flat_map(Range::clone) {
                freed.insert((*member, *log, addr));
            }
        }
        let live: BTreeSet<Byte> = self.bytes.values().copied().collect();
        assert_eq!(
            freed.intersection(&live).next(),
            None,
            "given back, but in use"
        );
        let left = self
            .written
            .iter()
            .find(|b| !live.contains(b) && !freed.contains(b));
        assert_eq!(left, None, "not in use, and not given back");
    }
}

#[test]
fn patterns_that_no_writer_makes_are_refused_and_change_nothing() {
    let world = World::new(1);
    let fid = world.create(0);
    let segment = |offset: u64, addr: u64| {
        let mut folder = Folder::joining();
        folder.push_at(offset, 10, addr).unwrap();
        let source = LogSource { member: 0, log: 1 };
        let pattern = folder.finish().pop().unwrap();
        Segment::new(source, 7, pattern)
    };
    let good = segment(100, 0).encoded();
    let mut damaged = good.clone();
    damaged[3] ^= 1;
    let mut cut = segment(100, 0);
    cut.truncate(105);
    // The same log bytes at two places.
    let twice = [segment(100, 0).encoded(), segment(200, 5).encoded()].concat();
    let nothing = Segment::default().encoded();
    let mut many: Vec<Segment> = (0..8).map(|i| segment(100 * i, 10 * i)).collect();
    many.iter_mut()
        .zip(0..)
        .for_each(|(s, log)| s.source.log = log);
    let global = forebay_pattern::Patterns::merged(many).encoded();
    let half = good[..good.len() - 1].to_vec();
    for patterns in [damaged, cut.encoded(), twice, nothing, global, half] {
        let planned = Planned {
            writer: 0,
            fid,
            token: world.token(),
            own: Vec::new(),
            patterns,
            staged: Vec::new(),
            attr: CommitAttr::default(),
        };
        assert_eq!(errno(world.finish(&planned)), rustix::io::Errno::INVAL);
    }
    let attr = world.view(0, fid).unwrap();
    assert_eq!((attr.generation, attr.layout), (0, ExtentLayout::OwnerOnly));
    assert_eq!(world.count(0, keys::PATTERNS), 0);
}

/// One segment of each log: these elements, written one after the other from address `addr` on.
fn row(log: u64, addr: u64, elements: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
    let (mut folder, mut addr) = (Folder::joining(), addr);
    for (offset, len) in elements {
        folder.push_at(offset, len, addr).unwrap();
        addr += len;
    }
    let source = LogSource { member: 0, log };
    let patterns = folder.finish().into_iter();
    patterns
        .flat_map(|p| Segment::new(source, 0, p).encoded())
        .collect()
}

#[test]
fn a_commit_that_counts_a_byte_twice_is_refused_and_changes_nothing() {
    let world = World::new(2);
    let fid = world.create(0);
    let strided = |log: u64, start: u64| row(log, 0, (0..50).map(move |i| (start + 20 * i, 10)));
    let put = |offset: u64, len: u64, log: u64, addr: u64| {
        Change::Put(Extent {
            offset,
            len,
            member: 0,
            log,
            addr,
            seq: 0,
        })
    };
    let mut stranger = Folder::joining();
    stranger.push(0, 10).unwrap();
    let nobody = LogSource { member: 7, log: 1 };
    let stranger = Segment::new(nobody, 0, stranger.finish().remove(0)).encoded();
    let both = |a: Vec<u8>, b: Vec<u8>| [a, b].concat();
    let huge = |log: u64| row(log, 0, [(0, 1 << 59)]);
    let refused: Vec<(Vec<Change>, Vec<u8>)> = vec![
        // Two segments, or one and itself, over the same bytes of the file.
        (vec![], both(strided(1, 100), strided(2, 105))),
        (vec![], both(strided(1, 100), row(2, 0, [(0, 5000)]))),
        (vec![], row(1, 0, (0..50).map(|i| (1000 + 5 * i, 10)))),
        (vec![], row(1, 0, (0..50).map(|_| (1000, 10)))),
        // More bytes than a number holds.
        (vec![], (0..64).flat_map(huge).collect()),
        // A put among elements, or of their log bytes.
        (vec![put(305, 1, 9, 0)], strided(1, 100)),
        (vec![put(5000, 10, 1, 495)], strided(1, 100)),
        // Puts that have no such bytes, more than there can be, or those of nobody.
        (vec![put(5000, 10, 9, u64::MAX - 5)], strided(1, 100)),
        (vec![put(5000, 10, 9, u64::MAX - 5)], vec![]),
        (vec![put(5000, 1 << 62, 9, 0)], strided(1, 100)),
        (vec![put(0, 10, 9, 0), put(50, 10, 9, 5)], vec![]),
        (
            vec![super::world::put(7, &(5000..5001), 9)],
            strided(1, 100),
        ),
        (vec![], stranger),
        // A cut that ends before it starts.
        (vec![Change::Cut { start: 9, end: 3 }], strided(1, 100)),
    ];
    for fresh in [true, false] {
        for (i, (own, patterns)) in refused.iter().enumerate() {
            let planned = Planned {
                writer: 0,
                fid,
                token: world.token(),
                own: own.clone(),
                patterns: patterns.clone(),
                staged: Vec::new(),
                attr: CommitAttr::default(),
            };
            let found = world.finish(&planned).map(|_| ()).unwrap_err();
            let invalid = matches!(found, Error::Posix(rustix::io::Errno::INVAL));
            assert!(invalid, "{i}, {fresh}: {found:?}");
        }
        let attr = world.view(0, fid).unwrap();
        let bytes = if fresh { 0 } else { 500 };
        assert_eq!(attr.bytes, bytes);
        assert_eq!(world.count(0, keys::PATTERNS), usize::from(!fresh));
        // The same with something there already.
        let good = Planned {
            writer: 0,
            fid,
            token: world.token(),
            own: Vec::new(),
            patterns: strided(1, 100),
            staged: Vec::new(),
            attr: CommitAttr {
                end: Some(1090),
                ..Default::default()
            },
        };
        if fresh {
            world.finish(&good).unwrap();
        }
    }
    let problems = super::super::check::check(&world.stores()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    world.drain();
    assert!(world.net.freed.lock().is_empty());
}

impl World {
    pub(super) fn plan_layer(
        &self,
        writer: Member,
        fid: Fid,
        layer: &Layer,
        attr: &CommitAttr,
        fold: impl Fn(u64) -> bool,
    ) -> Result<Planned> {
        let layout = self.view(writer, fid)?.layout;
        let (own, patterns) = layer.folded(fold);
        if layout == ExtentLayout::BySlice
            || (layout == ExtentLayout::OwnerOnly && patterns.is_empty())
        {
            return self.plan(writer, fid, &layer.changes(), attr.clone());
        }
        Ok(Planned {
            writer,
            fid,
            token: self.token(),
            own,
            patterns,
            staged: Vec::new(),
            attr: attr.clone(),
        })
    }

    /// What patterns, holes and the index say of a file by the answer that readers get: the same as what they see by extents.
    pub(super) fn by_patterns(&self, reader: Member, fid: Fid) -> BTreeMap<u64, Byte> {
        let PatternsReply {
            bytes,
            holes,
            residual,
            ..
        } = self.ask(reader, fid.owner(), GetPatterns { fid }).unwrap();
        let (patterns, lost) = forebay_pattern::decode_all(&bytes);
        assert!(lost.is_empty());
        let mut pieces = Vec::new();
        patterns.map().resolve(0..u64::MAX, &mut pieces);
        let mut found = BTreeMap::new();
        for p in pieces {
            for at in p.offset..p.end() {
                let cut = |h: &PatternHole| h.start <= at && at < h.end && h.seq >= p.sequence;
                if !holes.iter().any(cut) {
                    found.insert(
                        at,
                        (p.source.member, p.source.log, p.addr + (at - p.offset)),
                    );
                }
            }
        }
        for e in self.read(reader, fid).unwrap().1 {
            for at in e.offset..e.end() {
                if residual.iter().any(|r| r.0 <= at && at < r.1) {
                    found.insert(at, (e.member, e.log, e.addr + (at - e.offset)));
                }
            }
        }
        found
    }
}
