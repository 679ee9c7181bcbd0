//! Random histories of writes, holes and truncates over three members, with commits planned early and finished late,
//! lost messages and restarts, against a plain model: the later commit wins, byte by byte.
use super::super::check::check;
use super::world::*;
use crate::*;
use forebay_index::{Change, Extent, SLICE};
use forebay_proto::files::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

const MEMBERS: u16 = 3;
const FILES: usize = 2;
const SLICES: u64 = 4;

/// Offsets that matter: around slice ends. Contents change only at these.
fn points() -> Vec<u64> {
    let around = |s: u64| {
        [
            s * SLICE,
            s * SLICE + 1,
            s * SLICE + 4096,
            (s + 1) * SLICE - 4096,
            (s + 1) * SLICE - 1,
        ]
    };
    (0..SLICES)
        .flat_map(around)
        .chain([SLICES * SLICE])
        .collect()
}

#[derive(Debug, Clone)]
enum What {
    Write(usize, usize),
    /// Two writes that overlap, the second one wins.
    Twice(usize, usize),
    Hole(usize, usize),
    Truncate(usize),
}

#[derive(Debug, Clone)]
enum Op {
    Plan {
        writer: Member,
        file: usize,
        what: What,
    },
    /// One of the planned commits is sent to the owner.
    Finish(usize),
    /// Already finished or not: sent (again) and must answer the same.
    Restart(Member),
    Lose {
        nth: u64,
        reply: bool,
    },
    Read {
        reader: Member,
        file: usize,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let last = SLICES as usize * 5;
    let range = (0..last, 1..8usize).prop_map(move |(a, n)| (a, (a + n).min(last)));
    let what = prop_oneof![
        4 => range.clone().prop_map(|(a, b)| What::Write(a, b)),
        1 => range.clone().prop_map(|(a, b)| What::Twice(a, b)),
        1 => range.prop_map(|(a, b)| What::Hole(a, b)),
        2 => (0..=last).prop_map(What::Truncate),
    ];
    let op = prop_oneof![
        6 => (0..MEMBERS, 0..FILES, what).prop_map(|(writer, file, what)| Op::Plan { writer, file, what }),
        6 => (0..4usize).prop_map(Op::Finish),
        1 => (0..MEMBERS).prop_map(Op::Restart),
        3 => (0..6u64, any::<bool>()).prop_map(|(nth, reply)| Op::Lose { nth, reply }),
        2 => (0..MEMBERS, 0..FILES).prop_map(|(reader, file)| Op::Read { reader, file }),
    ];
    prop::collection::vec(op, 1..60)
}

/// What a file should hold: for each stretch between two points the log and the address of its first byte.
#[derive(Debug, Clone, Default)]
struct Model {
    size: u64,
    stretches: Vec<Option<(u64, u64)>>,
}

/// A commit on its way.
#[derive(Clone)]
struct Pending {
    planned: Planned,
    file: usize,
    changes: Vec<Change>,
    attr: CommitAttr,
}

struct History {
    world: World,
    points: Vec<u64>,
    fids: Vec<Fid>,
    models: Vec<Model>,
    pending: Vec<Pending>,
    /// Logs whose commit happened: member and length.
    logs: BTreeMap<u64, (Member, u64)>,
    next_log: u64,
}

impl History {
    fn new() -> History {
        let world = World::new(MEMBERS);
        let points = points();
        let fids: Vec<Fid> = (0..FILES).map(|f| world.create(f as Member)).collect();
        let model = Model {
            size: 0,
            stretches: vec![None; points.len() - 1],
        };
        History {
            world,
            fids,
            models: vec![model; FILES],
            points,
            pending: Vec::new(),
            logs: BTreeMap::new(),
            next_log: 1,
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Plan { writer, file, what } => {
                let (changes, attr) = self.changes(writer, &what);
                let planned = self
                    .world
                    .plan(writer, self.fids[file], &changes, attr.clone())
                    .unwrap();
                self.pending.push(Pending {
                    planned,
                    file,
                    changes,
                    attr,
                });
            }
            Op::Finish(which) => {
                if !self.pending.is_empty() {
                    let pending = self.pending.remove(which % self.pending.len());
                    self.finish(pending);
                }
            }
            Op::Restart(k) => self.world.restart(k),
            Op::Lose { nth, reply } => {
                let (mut count, fate) = (
                    0,
                    if reply {
                        Fate::ReplyLost
                    } else {
                        Fate::RequestLost
                    },
                );
                self.world.set_rule(move |_, _, _| {
                    count += 1;
                    if count == nth + 1 {
                        fate
                    } else {
                        Fate::Arrives
                    }
                });
            }
            Op::Read { reader, file } => {
                self.world.clear_rule();
                self.compare(reader, file);
            }
        }
    }

    fn changes(&mut self, writer: Member, what: &What) -> (Vec<Change>, CommitAttr) {
        let mut write = |range: Range<u64>| {
            self.next_log += 1;
            put(writer, &range, self.next_log)
        };
        let p = &self.points;
        match *what {
            What::Write(a, b) => (
                vec![write(p[a]..p[b])],
                CommitAttr {
                    end: Some(p[b]),
                    ..Default::default()
                },
            ),
            What::Twice(a, b) => {
                let middle = (a + b).div_ceil(2);
                (
                    vec![write(p[a]..p[b]), write(p[a]..p[middle])],
                    CommitAttr {
                        end: Some(p[b]),
                        ..Default::default()
                    },
                )
            }
            What::Hole(a, b) => (
                vec![Change::Cut {
                    start: p[a],
                    end: p[b],
                }],
                CommitAttr::default(),
            ),
            What::Truncate(a) => (
                vec![Change::Cut {
                    start: p[a],
                    end: u64::MAX,
                }],
                CommitAttr {
                    size: Some(p[a]),
                    ..Default::default()
                },
            ),
        }
    }

    fn finish(&mut self, pending: Pending) {
        let Pending {
            planned,
            file,
            changes,
            attr,
        } = pending;
        let first = self.world.finish(&planned);
        if let Ok((seq, _)) = first {
            // Sent again it answers the same.
            assert_eq!(self.world.finish(&planned).unwrap().0, seq);
        }
        let result = match first {
            // The plan was too old, or a restarted member dropped its part.
            Err(Error::Replan) => {
                let writer = planned.writer;
                self.world
                    .commit(writer, planned.fid, &changes, attr.clone())
            }
            other => other,
        };
        match result {
            Ok((seq, shown)) => {
                self.apply(file, &changes, &attr);
                let model = &self.models[file];
                assert_eq!((shown.size, shown.generation), (model.size, seq));
            }
            // An earlier commit did not get through to one of the members, and neither did the retry.
            Err(Error::Peer { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn apply(&mut self, file: usize, changes: &[Change], attr: &CommitAttr) {
        let model = &mut self.models[file];
        for change in changes {
            let (range, extent) = match change {
                Change::Put(e) => (e.offset..e.end(), Some(e)),
                Change::Cut { start, end } => (*start..*end, None),
            };
            if let Some(e) = extent {
                self.logs.insert(e.log, (e.member, e.len));
            }
            for (i, stretch) in model.stretches.iter_mut().enumerate() {
                if range.start <= self.points[i] && self.points[i] < range.end {
                    *stretch = extent.map(|e| (e.log, self.points[i] - e.offset));
                }
            }
        }
        model.size = attr.size.unwrap_or(model.size.max(attr.end.unwrap_or(0)));
    }

    fn compare(&self, reader: Member, file: usize) -> Vec<Extent> {
        let (attr, extents) = self.world.read(reader, self.fids[file]).unwrap();
        let model = &self.models[file];
        assert_eq!(attr.size, model.size);
        for pair in extents.windows(2) {
            assert!(pair[0].end() <= pair[1].offset, "overlap");
        }
        for (i, wanted) in model.stretches.iter().enumerate() {
            let stretch = self.points[i]..self.points[i + 1];
            let mut at = stretch.start;
            for e in extents.iter().filter_map(|e| e.clip(&stretch)) {
                let (log, addr) = wanted.unwrap_or_else(|| panic!("{e:?} where a hole should be"));
                assert_eq!(
                    (e.offset, e.log, e.addr),
                    (at, log, addr + (at - stretch.start))
                );
                at = e.end();
            }
            assert!(
                wanted.is_none() || at == stretch.end,
                "bytes are missing in {stretch:?}"
            );
        }
        extents
    }

    /// Everything is finished: contents, sums, and each log byte either used or freed.
    fn end(mut self) {
        self.world.clear_rule();
        for pending in std::mem::take(&mut self.pending) {
            self.finish(pending);
        }
        // Parts left behind by plans that never got an answer.
        (0..MEMBERS).for_each(|k| self.world.restart(k));
        self.world.drain();
        let live: Vec<Extent> = (0..FILES).flat_map(|file| self.compare(0, file)).collect();
        for (log, (member, len)) in &self.logs {
            let freed = self
                .world
                .net
                .freed
                .lock()
                .get(&(*member, *log))
                .cloned()
                .unwrap_or_default();
            let used = live
                .iter()
                .filter(|e| e.log == *log)
                .map(|e| e.addr..e.addr + e.len);
            let mut ranges: Vec<(Range<u64>, bool)> = used
                .map(|r| (r, true))
                .chain(freed.into_iter().map(|r| (r, false)))
                .collect();
            ranges.sort_by_key(|(r, _)| r.start);
            let mut covered = 0;
            let mut last_used = false;
            for (range, used) in ranges {
                assert!(
                    range.start <= covered,
                    "bytes of log {log} neither used nor given back"
                );
                assert!(
                    range.start == covered || !(used || last_used),
                    "bytes of log {log} in use were given back"
                );
                covered = covered.max(range.end);
                last_used = used;
            }
            assert_eq!(covered, *len, "log {log}");
        }
        assert_eq!(check(&self.world.stores()).unwrap(), vec![]);
    }
}

fn cases() -> u32 {
    forebay_testkit::seeds::count(25, 5000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]
    #[test]
    fn histories_agree_with_the_model(ops in ops()) {
        let mut history = History::new();
        for op in ops {
            history.step(op);
        }
        history.end();
    }
}

#[test]
fn a_commit_is_counted_once_though_a_start_counted_its_file_before_its_owner_knew_that_it_is_published()
 {
    let mut history = History::new();
    let plan = |what| Op::Plan {
        writer: 0,
        file: 0,
        what,
    };
    let lose = |nth| Op::Lose { nth, reply: false };
    for op in [
        plan(What::Write(11, 16)),
        Op::Finish(0),
        plan(What::Hole(12, 16)),
        Op::Restart(2),
        // Member 2 is not told that the hole is decided.
        lose(5),
        Op::Finish(0),
        // Nor at the start of the owner, which then counts the file: for that it asks member 2, and member 2 asks back.
        lose(0),
        Op::Restart(0),
    ] {
        history.step(op);
    }
    history.end();
}

#[test]
fn the_later_commit_wins_whatever_was_staged_first() {
    let mut history = History::new();
    for writer in 0..MEMBERS {
        history.step(Op::Plan {
            writer,
            file: 0,
            what: What::Write(2, 12),
        });
    }
    for which in [2, 0, 0] {
        history.step(Op::Finish(which));
        history.step(Op::Read { reader: 1, file: 0 });
    }
    // Planned third, first, second; the last to reach the owner was the one planned second (log 3).
    assert_eq!(history.models[0].stretches[5].map(|(log, _)| log), Some(3));
    history.end();
}
