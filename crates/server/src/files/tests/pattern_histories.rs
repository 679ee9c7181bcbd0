//! Random histories of files with patterns: strided, nested and overlapping writes, holes, truncates and removals by several
//! members, with lost messages, restarts and owners cut off at any step, byte by byte against a model.
use super::super::check::check;
use super::patterned::{Layer, Model};
use super::world::*;
use crate::*;
use forebay_index::SLICE;
use forebay_proto::files::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// Offsets lie around a slice's end, so that other members would own some of them.
const BASE: u64 = SLICE - 700;
const SPACE: u64 = 1600;

#[derive(Debug, Clone)]
struct Strided {
    start: u64,
    len: u64,
    stride: i64,
    count: u64,
    /// The whole again, so many times so far on.
    again: (i64, u64),
    log: u64,
}

#[derive(Debug, Clone)]
enum Op {
    /// Writes one after the other, and which logs are folded: a bit each.
    Write(Vec<Strided>, u64, Option<Range<u64>>),
    /// Many members' shares of one strided file.
    Ranks {
        start: u64,
        len: u64,
        ranks: u64,
        count: u64,
    },
    Hole(Range<u64>),
    Truncate(u64),
    Grow(u64),
    Restart(Member),
    /// The owner is cut off at this step of what comes.
    Cut(u64),
    Lose {
        nth: u64,
        reply: bool,
    },
    Read(Member),
    /// Nobody may write any more, until it is opened for writing again.
    Laminate,
    Check,
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 6 => 0..SPACE]
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (offset(), prop_oneof![1u64..30, 1u64..900]).prop_map(|(at, len)| at..(at + len).min(SPACE))
}

fn strided() -> impl Strategy<Value = Strided> {
    let stride = prop_oneof![-40i64..40, -200i64..200];
    let again = prop_oneof![Just((0, 1)), (-300i64..300, 2u64..4)];
    (offset(), 1u64..24, stride, 1u64..20, again, 0u64..3).prop_map(
        |(start, len, stride, count, again, log)| Strided {
            start,
            len,
            stride,
            count,
            again,
            log,
        },
    )
}

fn op() -> impl Strategy<Value = (Member, Op)> {
    let writes = (
        prop::collection::vec(strided(), 1..5),
        prop_oneof![2 => Just(7u64), 1 => 0u64..8],
    );
    let cut = prop::option::weighted(0.1, range());
    let ranks = (0u64..200, 1u64..12, 2u64..9, 2u64..14);
    let op = prop_oneof![
        8 => (writes, cut).prop_map(|((w, fold), cut)| Op::Write(w, fold, cut)),
        3 => ranks.prop_map(|(start, len, ranks, count)| Op::Ranks { start, len, ranks, count }),
        3 => range().prop_map(Op::Hole),
        2 => prop_oneof![2 => Just(0), 3 => 0..SPACE].prop_map(Op::Truncate),
        1 => (0..SPACE).prop_map(Op::Grow),
        1 => (0u16..4).prop_map(Op::Restart),
        2 => (0u64..4).prop_map(Op::Cut),
        1 => (0u64..4, any::<bool>()).prop_map(|(nth, reply)| Op::Lose { nth, reply }),
        2 => (0u16..4).prop_map(Op::Read),
        1 => Just(Op::Laminate),
        1 => Just(Op::Check),
    ];
    (0u16..4, op)
}

struct History {
    world: World,
    fid: Fid,
    model: Model,
    ends: BTreeMap<(Member, u64), u64>,
    /// Commits are not folded.
    off: bool,
}

impl History {
    fn members(&self) -> u16 {
        self.world.net.members
    }

    fn commit(&mut self, writer: Member, layer: &Layer, attr: &CommitAttr, fold: u64) {
        let off = self.off;
        let fold = move |log: u64| !off && fold >> (log % 8) & 1 == 1;
        let mut before = None;
        let mut tries = 0;
        let result = loop {
            tries += 1;
            assert!(tries < 20, "{before:?}");
            let planned = self.world.plan_layer(writer, self.fid, layer, attr, fold);
            let planned = match (planned, before.take()) {
                (_, Some(planned)) => planned,
                (Ok(planned), None) => planned,
                (Err(_), None) => {
                    self.recover();
                    continue;
                }
            };
            match self.world.finish(&planned) {
                Err(Error::Replan) => {}
                // It may have happened: ask again under the same token. A restarted owner no longer knows its own node's.
                Err(Error::Fabric(_) | Error::Peer { .. } | Error::Refused(_)) => {
                    self.recover();
                    before = (writer != self.fid.owner()).then_some(planned);
                    if before.is_none() {
                        break None;
                    }
                }
                other => break Some(other),
            }
        };
        match result {
            Some(Ok((seq, shown))) => {
                self.model.apply(layer, attr);
                assert_eq!((shown.size, shown.generation), (self.model.size, seq));
                // Other members may not have published yet.
                if shown.layout != ExtentLayout::BySlice {
                    assert_eq!(shown.bytes, self.model.bytes.len() as u64);
                }
            }
            Some(Err(error)) => panic!("{error}"),
            None => {
                // The owner's own node went with it: what it wrote is there, or nothing of it.
                let mut after = self.model.clone();
                after.apply(layer, attr);
                let (_, extents) = self.world.read(writer, self.fid).unwrap();
                let first = layer.bytes.iter().next();
                let seen = match first {
                    // Logs of different members have the same numbers here.
                    Some((at, (member, log, addr))) => extents.iter().any(|e| {
                        e.offset <= *at
                            && *at < e.end()
                            && (e.member, e.log, e.addr + (at - e.offset)) == (*member, *log, *addr)
                    }),
                    None => {
                        let shown = self.world.view(writer, self.fid).unwrap();
                        shown.bytes == after.bytes.len() as u64 && shown.size == after.size
                    }
                };
                if seen {
                    self.model = after;
                } else {
                    // Its log bytes were never named.
                    self.model.size = self.world.view(writer, self.fid).unwrap().size;
                }
            }
        }
    }

    /// Nothing is lost any more, and the owner lives again.
    fn recover(&self) {
        self.world.clear_rule();
        self.world.restart(self.fid.owner());
    }

    fn end_of(&mut self, member: Member, log: u64) -> u64 {
        self.ends.get(&(member, log)).copied().unwrap_or(0)
    }

    fn step(&mut self, member: Member, op: Op) {
        let member = member % self.members();
        match op {
            Op::Write(writes, fold, cut) => {
                let mut layer = Layer::default();
                layer.cuts.extend(cut.map(|r| BASE + r.start..BASE + r.end));
                for w in writes {
                    let log = w.log + 8;
                    let mut end = self.end_of(member, log);
                    for k in 0..w.again.1 as i64 {
                        for i in 0..w.count as i64 {
                            let at = w.start as i64 + k * w.again.0 + i * w.stride;
                            if (0..SPACE as i64).contains(&at) {
                                layer.write(BASE + at as u64, w.len, (member, log), &mut end);
                            }
                        }
                    }
                    self.ends.insert((member, log), end);
                }
                let attr = layer.attr();
                self.commit(member, &layer, &attr, fold);
            }
            Op::Ranks {
                start,
                len,
                ranks,
                count,
            } => {
                for rank in 0..ranks {
                    let (writer, log) =
                        ((rank % u64::from(self.members())) as Member, 16 + 8 * rank);
                    let mut layer = Layer::default();
                    let mut end = self.end_of(writer, log);
                    for i in 0..count {
                        let at = start + (i * ranks + rank) * len;
                        layer.write(BASE + at, len, (writer, log), &mut end);
                    }
                    self.ends.insert((writer, log), end);
                    let attr = layer.attr();
                    self.commit(writer, &layer, &attr, 255);
                }
            }
            Op::Hole(range) => {
                let layer = Layer {
                    cuts: std::iter::once(BASE + range.start..BASE + range.end).collect(),
                    ..Layer::default()
                };
                self.commit(member, &layer, &CommitAttr::default(), 0);
            }
            Op::Truncate(at) => {
                let size = if at == 0 { 0 } else { BASE + at };
                self.truncate(member, size);
            }
            Op::Grow(at) => self.truncate(member, self.model.size.max(BASE + at)),
            Op::Restart(k) => self.world.restart(k % self.members()),
            Op::Cut(after) => {
                let owner = self.world.files(self.fid.owner());
                owner.components.context.faults.cut_after(after);
            }
            Op::Lose { nth, reply } => {
                let mut count = 0;
                self.world.set_rule(move |_, _, _| {
                    count += 1;
                    match (count == nth + 1, reply) {
                        (false, _) => Fate::Arrives,
                        (true, true) => Fate::ReplyLost,
                        (true, false) => Fate::RequestLost,
                    }
                });
            }
            Op::Read(reader) => {
                self.recover();
                let reader = reader % self.members();
                self.model.compare(&self.world, reader, self.fid);
                if self.world.view(reader, self.fid).unwrap().layout == ExtentLayout::Patterned {
                    assert_eq!(self.world.by_patterns(reader, self.fid), self.model.bytes);
                }
            }
            Op::Laminate => {
                self.recover();
                let set = |mode: u32| {
                    let inodes = self.world.inodes(self.fid.owner());
                    let set = |inode: &mut crate::inodes::Inode, _: &mut _| {
                        inode.mode = mode;
                        Ok(())
                    };
                    inodes.update(self.fid, set).unwrap();
                };
                self.world.open(member, self.fid, true).unwrap();
                set(0o444);
                self.world.close(member, self.fid, true);
                assert_eq!(self.world.inode(self.fid).lamination, Lamination::ByMode);
                self.model.compare(&self.world, member, self.fid);
                self.tidy(member);
                self.recover();
                self.tidy(member);
                set(0o644);
                self.world.open(member, self.fid, true).unwrap();
                self.world.close(member, self.fid, true);
            }
            Op::Check => self.check(),
        }
    }

    /// A laminated file has no holes and no hidden bytes, and readers see it.
    fn tidy(&self, member: Member) {
        if self.world.inode(self.fid).layout != ExtentLayout::Patterned {
            return;
        }
        assert_eq!(self.world.by_patterns(member, self.fid), self.model.bytes);
        let ask = GetPatterns { fid: self.fid };
        let reply = self.world.ask(member, self.fid.owner(), ask).unwrap();
        assert!(reply.holes.is_empty(), "{:?}", reply.holes);
    }

    fn truncate(&mut self, member: Member, size: u64) {
        let layer = Layer {
            cuts: std::iter::once(size..u64::MAX).collect(),
            ..Layer::default()
        };
        let attr = CommitAttr {
            size: Some(size),
            ..Default::default()
        };
        self.commit(member, &layer, &attr, 0);
    }

    fn check(&mut self) {
        // What was staged and given up is decided: its owner is asked, and must not be cut off then.
        self.recover();
        (0..self.members()).for_each(|k| self.world.restart(k));
        self.world.drain();
        let problems = check(&self.world.stores()).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn end(&mut self, member: Member, remove: bool) {
        self.check();
        let member = member % self.members();
        self.model.compare(&self.world, member, self.fid);
        self.model.freed(&self.world);
        if remove {
            self.world.unlink(self.fid);
            self.world.drain();
            self.model.bytes.clear();
            self.model.freed(&self.world);
            for k in 0..self.members() {
                assert_eq!(self.world.count(k, keys::PATTERNS), 0);
                assert_eq!(self.world.extents(k), 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(30, 20_000)))]

    #[test]
    fn every_byte_is_that_of_the_newest_commit(
        members in 1u16..5,
        owner in 0u16..4,
        off in prop::bool::weighted(0.1),
        ops in prop::collection::vec(op(), 1..25),
        remove: bool,
    ) {
        let world = World::new(members);
        let fid = world.create(owner % members);
        let mut history = History { world, fid, model: Model::default(), ends: BTreeMap::new(), off };
        for (member, op) in ops {
            history.step(member, op);
        }
        history.end(owner, remove);
    }
}
