//! Random histories of one log store against a plain model.
use crate::common::{Fixture, is_gone, options, pattern, read_parts};
use forebay_data::ranges::merge;
use forebay_data::{AppendOptions, LogId, LogStoreOptions, span};
use forebay_proto::Fid;
use proptest::prelude::*;
use std::ops::Range;
use std::path::PathBuf;

#[derive(Debug, Clone)]
enum Op {
    Create,
    Append {
        log: usize,
        len: usize,
        aligned: bool,
    },
    Flush {
        log: usize,
        sync: bool,
    },
    Seal {
        log: usize,
    },
    Free {
        log: usize,
        start: u64,
        len: u64,
    },
    Read {
        log: usize,
        start: u64,
        len: usize,
    },
    Clean,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let log = 0usize..6;
    let pages = prop_oneof![Just(45_056usize), Just(53_248), 60usize..75];
    let len = prop_oneof![4 => 1usize..300, 3 => 300usize..20_000, 1 => 250_000usize..300_000, 3 => pages];
    let at = prop_oneof![1 => 0u64..500, 3 => 0u64..60_000];
    prop_oneof![
        2 => Just(Op::Create),
        8 => (log.clone(), len, any::<bool>()).prop_map(|(log, len, aligned)| Op::Append { log, len, aligned }),
        3 => (log.clone(), any::<bool>()).prop_map(|(log, sync)| Op::Flush { log, sync }),
        1 => log.clone().prop_map(|log| Op::Seal { log }),
        5 => (log.clone(), at.clone(), 1u64..30_000).prop_map(|(log, start, len)| Op::Free { log, start, len }),
        6 => (log, at, 1usize..30_000).prop_map(|(log, start, len)| Op::Read { log, start, len }),
        1 => Just(Op::Clean),
        1 => Just(Op::Crash),
    ]
}

/// What a log should hold.
struct Model {
    id: LogId,
    live: Vec<bool>,
    flushed: usize,
    open: bool,
}

impl Model {
    fn ranges(&self) -> Vec<Range<u64>> {
        merge(
            (0..self.live.len())
                .filter(|a| self.live[*a])
                .map(|a| a as u64..a as u64 + 1)
                .collect(),
        )
    }
}

fn check(fixture: &Fixture, m: &Model, start: u64, len: usize) {
    let wanted = start as usize..start as usize + len;
    let readable = m.live.get(wanted).is_some_and(|l| l.iter().all(|b| *b));
    let got = fixture.read(m.id, start, len);
    match readable {
        true => assert!(
            got.unwrap() == pattern(m.id, start, len),
            "wrong bytes of log {} at {start}+{len}",
            m.id
        ),
        false => assert!(
            is_gone(&got),
            "log {} {start}+{len}: {:?}",
            m.id,
            got.map(|b| b.len())
        ),
    }
}

/// Reads all that is live by one call, in parts that end at every third page, or in the middle of a page.
fn check_parts(fixture: &Fixture, logs: &[Model]) {
    let mut parts = Vec::new();
    for m in logs {
        for range in m.ranges() {
            let mut at = range.start;
            while at < range.end {
                let page = at / 4096 * 4096;
                let end = page + [4096, 12_288, 5000][parts.len() % 3];
                let end = end.min(range.end);
                parts.push((m.id, at..end));
                at = end;
            }
        }
    }
    read_parts(&fixture.logs, &parts).unwrap();
}

fn run(ops: Vec<Op>, quiet_buffer: u64) {
    let mut fixture = Fixture::new(LogStoreOptions {
        buffer_bytes: quiet_buffer,
        ..options()
    });
    let mut logs: Vec<Model> = Vec::new();
    for op in ops {
        let n = logs.len().max(1);
        match op {
            Op::Create => {
                let id = fixture.logs.create_log(Fid(9), Default::default()).unwrap();
                assert!(logs.iter().all(|m| m.id < id), "a log number came twice");
                logs.push(Model {
                    id,
                    live: Vec::new(),
                    flushed: 0,
                    open: true,
                });
            }
            Op::Append { log, len, aligned } => {
                let Some(m) = logs.get_mut(log % n) else {
                    continue;
                };
                let (end, piece) = (m.live.len(), m.live.len().next_multiple_of(4096));
                let at = match aligned && (piece - end) * 12 <= len {
                    true => piece,
                    false => end,
                };
                let options = AppendOptions {
                    aligned,
                    ..AppendOptions::default()
                };
                let bytes = pattern(m.id, at as u64, len);
                let appended = fixture.logs.append_with(m.id, &bytes, options);
                if m.open {
                    assert_eq!(appended.unwrap(), at as u64);
                    m.live.resize(at, false);
                    m.live.resize(at + len, true);
                } else {
                    assert_eq!(appended.unwrap_err().errno(), rustix::io::Errno::BADF);
                }
            }
            Op::Flush { log, sync } => {
                let Some(m) = logs.get_mut(log % n).filter(|m| m.open) else {
                    continue;
                };
                fixture.logs.flush(m.id, sync).unwrap();
                m.flushed = m.live.len();
            }
            Op::Seal { log } => {
                let Some(m) = logs.get_mut(log % n).filter(|m| m.open) else {
                    continue;
                };
                fixture.logs.flush(m.id, false).unwrap();
                fixture.logs.seal(m.id).unwrap();
                (m.flushed, m.open) = (m.live.len(), false);
            }
            Op::Free { log, start, len } => {
                let Some(m) = logs.get_mut(log % n) else {
                    continue;
                };
                fixture
                    .logs
                    .free(&[
                        (m.id, start..start + len),
                        (m.id, start + len / 2..start + len),
                    ])
                    .unwrap();
                let all = m.live.len();
                m.live[all.min(start as usize)..all.min((start + len) as usize)].fill(false);
            }
            Op::Read { log, start, len } => {
                if let Some(m) = logs.get(log % n) {
                    check(&fixture, m, start, len);
                }
            }
            Op::Clean => fixture.logs.clean(true).unwrap(),
            Op::Crash => {
                fixture.crash();
                for m in logs.iter_mut() {
                    m.live.truncate(m.flushed);
                    m.open = false;
                }
                for (log, fid) in fixture.logs.unsealed().unwrap() {
                    assert_eq!(fid, Fid(9));
                    let m = logs.iter().find(|m| m.id == log).unwrap();
                    fixture.logs.retain(log, &m.ranges()).unwrap();
                }
                assert_eq!(fixture.logs.unsealed().unwrap(), []);
                check_parts(&fixture, &logs);
            }
        }
        let live: usize = logs
            .iter()
            .map(|m| m.live.iter().filter(|l| **l).count())
            .sum();
        assert_eq!(fixture.logs.space().unwrap().0, live as u64, "live bytes");
        assert!(fixture.logs.stats().buffers <= quiet_buffer);
    }
    check_parts(&fixture, &logs);
    for m in &logs {
        for r in m.ranges() {
            check(&fixture, m, r.start, (r.end - r.start) as usize);
            check(&fixture, m, r.start, (r.end - r.start) as usize + 1);
        }
    }
    // Everything freed: nothing is left on disk but the segments still being filled.
    fixture
        .logs
        .free(&logs.iter().map(|m| (m.id, 0..u64::MAX)).collect::<Vec<_>>())
        .unwrap();
    fixture.logs.close().unwrap();
    assert_eq!(fixture.segments(), Vec::<PathBuf>::new());
    assert_eq!(span::all(&fixture.store).count(), 0);
}

fn cases(n: u32) -> ProptestConfig {
    ProptestConfig {
        cases: forebay_testkit::seeds::count(n, n * 100),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn histories_agree_with_the_model(ops in prop::collection::vec(op(), 1..80)) {
        run(ops, 4 << 20);
    }
    #[test]
    fn histories_agree_when_memory_is_short(ops in prop::collection::vec(op(), 1..80)) {
        run(ops, 96 << 10);
    }
}
