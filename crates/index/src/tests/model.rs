//! The index against a plain model: which log byte every byte of a file comes from.
use super::*;
use forebay_storage::Engine;
use proptest::prelude::*;
use std::collections::HashSet;

/// What the model knows of a unit of the file: `(member, log, addr of its first byte, seq)`.
type Unit = Option<(u16, u64, u64, u64)>;

/// Changes in units; addresses are given out by the test so that each is used once.
#[derive(Debug, Clone)]
enum Step {
    Put {
        at: u64,
        len: u64,
        log: u64,
        joined: bool,
    },
    Cut {
        at: u64,
        len: u64,
        to_end: bool,
    },
}

const UNITS: u64 = 96;

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        6 => (0..UNITS, 1..24u64, 0..3u64, any::<bool>()).prop_map(|(at, len, log, joined)| Step::Put { at, len, log, joined }),
        1 => (0..UNITS, 1..40u64, any::<bool>()).prop_map(|(at, len, to_end)| Step::Cut { at, len, to_end }),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..12), 1..8)
}

/// Runs the batches on the index and on the model, over `UNITS` units of `unit` bytes from `base`.
fn agree(base: u64, unit: u64, batches: &[Vec<Step>]) {
    agree_in(&fixture(), base, unit, batches, 0);
}

/// The same in that index; it is flushed before the batches whose bits are set.
fn agree_in(f: &Fixture, base: u64, unit: u64, batches: &[Vec<Step>], flushes: u8) {
    let mut model: Vec<Unit> = vec![None; UNITS as usize];
    let (mut next_addr, mut last_end) = ([0u64; 3], 0);
    for (number, batch) in batches.iter().enumerate() {
        let seq = number as u64 / 2; // two batches share a commit, so that joins across batches happen
        let mut changes = Vec::new();
        let mut used: HashSet<(u16, u64, u64)> = sources(&model);
        for step in batch {
            match *step {
                Step::Put {
                    at,
                    len,
                    log,
                    joined,
                } => {
                    let at = if joined { last_end } else { at };
                    let end = (at + len).min(UNITS);
                    if at >= end {
                        continue;
                    }
                    last_end = end;
                    let addr = next_addr[log as usize];
                    next_addr[log as usize] += (end - at) * unit;
                    let member = (log % 2) as u16;
                    changes.push(Change::Put(Extent {
                        offset: base + at * unit,
                        len: (end - at) * unit,
                        member,
                        log,
                        addr,
                        seq,
                    }));
                    for u in at..end {
                        let source = (member, log, addr + (u - at) * unit);
                        model[u as usize] = Some((source.0, source.1, source.2, seq));
                        used.insert(source);
                    }
                }
                Step::Cut { at, len, to_end } => {
                    let end = if to_end { UNITS } else { (at + len).min(UNITS) };
                    let byte_end = if to_end { u64::MAX } else { base + end * unit };
                    changes.push(Change::Cut {
                        start: base + at * unit,
                        end: byte_end,
                    });
                    model[at as usize..end as usize].fill(None);
                }
            }
        }
        if flushes >> (number % 8) & 1 == 1 {
            f.index.engine().flush().unwrap();
        }
        let (displaced, _) = f.change(9, &changes);
        let mut freed = HashSet::new();
        for e in &displaced {
            for addr in (e.addr..e.addr + e.len).step_by(unit as usize) {
                assert!(
                    freed.insert((e.member, e.log, addr)),
                    "displaced twice: {e:?}"
                );
            }
        }
        let expected: HashSet<_> = used.difference(&sources(&model)).copied().collect();
        assert_eq!(freed, expected, "displaced by {changes:?}");
        check(f, base, unit, &model);
        assert_eq!(f.change(9, &[]).1, 0);
    }
}

fn sources(model: &[Unit]) -> HashSet<(u16, u64, u64)> {
    model.iter().flatten().map(|u| (u.0, u.1, u.2)).collect()
}

fn check(f: &Fixture, base: u64, unit: u64, model: &[Unit]) {
    let stored = f.all(9);
    for pair in stored.windows(2) {
        assert!(pair[0].end() <= pair[1].offset, "overlap: {pair:?}");
    }
    for e in &stored {
        assert!(
            e.len <= MAX_EXTENT && e.offset / SLICE == (e.end() - 1) / SLICE,
            "{e:?}"
        );
    }
    let parts = [(0, UNITS), (UNITS / 3, UNITS / 2), (7, 8)];
    let mut requests = parts
        .map(|(from, to)| (9, base + from * unit..base + to * unit))
        .to_vec();
    // In no order, one of nothing, one of another file.
    requests.extend([
        (9, base..base),
        requests[1].clone(),
        (8, 0..u64::MAX),
        requests[0].clone(),
    ]);
    let together = f.index.get_many(&requests).unwrap();
    assert_eq!(
        (together.len(), together.get(3).len(), together.get(5).len()),
        (7, 0, 0)
    );
    assert_eq!(
        (together.get(4), together.get(6)),
        (together.get(1), together.get(0))
    );
    for (i, (from, to)) in parts.into_iter().enumerate() {
        let (start, end) = (base + from * unit, base + to * unit);
        let found = f.index.get(9, start..end, usize::MAX).unwrap();
        assert_eq!(together.get(i), found);
        let mut seen: Vec<Unit> = vec![None; UNITS as usize];
        let mut covered = 0;
        for e in &found {
            assert!(e.offset >= start && e.end() <= end);
            // A unit may be longer than an extent: its first byte speaks for it.
            let first = (e.offset - base).div_ceil(unit);
            for u in first..(e.end() - base).div_ceil(unit) {
                let addr = e.addr + (base + u * unit - e.offset);
                seen[u as usize] = Some((e.member, e.log, addr, e.seq));
            }
            covered += e.len;
        }
        let full = model[from as usize..to as usize].iter().flatten().count() as u64;
        assert_eq!(covered, full * unit);
        let range = from as usize..to as usize;
        assert_eq!(&seen[range.clone()], &model[range]);
        // Asking in steps of one gives the same; the first hundred steps will do.
        let (mut at, mut stepped) = (start, Vec::new());
        while let Some(e) = f.index.get(9, at..end, 1).unwrap().first() {
            at = e.end();
            stepped.push(*e);
            if stepped.len() == 100 {
                break;
            }
        }
        assert_eq!(stepped, found[..found.len().min(100)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(80, 2_000)))]

    #[test]
    fn agrees_with_the_model_byte_by_byte_at_a_slice_end(batches in steps()) {
        agree(SLICE - UNITS / 2, 1, &batches);
    }

    #[test]
    fn agrees_with_the_model_from_memory_and_disk(batches in steps(), flushes: u8) {
        agree_in(&fixture_with(small()), SLICE - UNITS / 2, 1, &batches, flushes);
    }

    #[test]
    fn agrees_with_the_model_over_long_extents(batches in steps()) {
        agree(SLICE - 5 * MAX_EXTENT, MAX_EXTENT / 8, &batches);
    }

    #[test]
    fn agrees_with_the_model_over_many_slices(batches in steps()) {
        agree(3 * MAX_EXTENT / 2, SLICE / 4, &batches);
    }
}
