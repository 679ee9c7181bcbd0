//! Collectives over the local fabric: what all members hear when all goes well, and when members fail, disagree or stay away.
use super::super::{CollectiveTimeouts, Group, TreeShape, topology::fan_in};
use super::*;
use crate::fault::{FaultRates, Faults};
use crate::local;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

impl Collectives {
    /// Operations kept and remembered now.
    pub(in crate::ring) fn held(&self) -> (usize, usize) {
        self.pending.lock().held()
    }
}

const LONG: Duration = Duration::from_secs(60);
const PATIENT: CollectiveTimeouts = CollectiveTimeouts {
    base: LONG,
    per_level: LONG,
};

fn members(ends: &[Arc<dyn Fabric>], bounds: MemoryBounds) -> Vec<Arc<Collectives>> {
    let make = |end: &Arc<dyn Fabric>| {
        let member = Arc::new(Collectives::new(end.clone(), bounds));
        end.serve(member.clone());
        member
    };
    ends.iter().map(make).collect()
}

fn locals(n: u32) -> Vec<Arc<dyn Fabric>> {
    let ends = local::fabric(n);
    ends.into_iter().map(|e| e as Arc<dyn Fabric>).collect()
}

fn operation(
    n: u32,
    shape: TreeShape,
    round: u64,
    root: Rank,
    limits: CollectiveTimeouts,
) -> Operation {
    Operation {
        group: Group::new(7, (0..n).collect(), shape).unwrap(),
        key: Bytes::from_static(b"key"),
        round,
        root,
        limits,
    }
}

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_le_bytes())
}

fn read(bytes: &Bytes) -> u64 {
    u64::from_le_bytes(bytes[..].try_into().unwrap())
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    number(read(&a) + read(&b))
}

/// What each member's call gave, and how often the operation ran.
fn run(
    members: &[Arc<Collectives>],
    operation: &Operation,
    who: impl Fn(Rank) -> bool,
) -> (Vec<Option<Result<u64, CollectiveFailure>>>, u64) {
    let ran = &AtomicU64::new(0);
    let outcomes = std::thread::scope(|scope| {
        let start = |(rank, member): (usize, &Arc<Collectives>)| {
            let (member, operation) = (member.clone(), operation.clone());
            who(rank as Rank).then(|| {
                scope.spawn(move || {
                    let own = number(1 << rank);
                    let answer = member.reduce(&operation, own, add, |sum| {
                        ran.fetch_add(1, Ordering::SeqCst);
                        sum
                    });
                    answer.map(|a| read(&a))
                })
            })
        };
        let threads: Vec<_> = members.iter().enumerate().map(start).collect();
        let join = |t: Option<std::thread::ScopedJoinHandle<_>>| t.map(|t| t.join().unwrap());
        threads.into_iter().map(join).collect()
    });
    (outcomes, ran.load(Ordering::SeqCst))
}

#[test]
fn the_root_receives_the_logarithm_for_many_sizes() {
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33] {
        for shape in [TreeShape::Ring, TreeShape::Fitted(Default::default())] {
            let members = members(&locals(n), MemoryBounds::default());
            let root = n / 2;
            let (outcomes, ran) = run(&members, &operation(n, shape, 1, root, PATIENT), |_| true);
            let all = (1u64 << n) - 1;
            assert_eq!(outcomes, vec![Some(Ok(all)); n as usize]);
            assert_eq!(ran, 1);
            let counts = members[root as usize].counts();
            let expected = u64::from(fan_in(n));
            assert_eq!((counts.values, counts.answers), (expected, expected));
            let total: u64 = members.iter().map(|m| m.counts().values).sum();
            assert_eq!(total, u64::from(n) - 1);
            assert!(members.iter().all(|m| m.held() == (0, 1)));
        }
    }
}

/// Losses, delays and deaths, all at once, over many seeds: every call ends, and what the members hear fits together.
#[test]
fn what_the_members_hear_fits_together_whatever_goes_wrong() {
    let seeds = forebay_testkit::seeds::count(60, 2000);
    let (mut done, mut failed, mut unsure) = (0, 0, 0);
    for seed in 0..seeds {
        let n = 2 + (seed % 8) as u32;
        let faults = Faults::new(seed);
        let ends: Vec<_> = locals(n).into_iter().map(|end| faults.wrap(end)).collect();
        let members = members(&ends, MemoryBounds::default());
        let odds = 20 * (seed % 4) as u16;
        faults.set(FaultRates {
            lose_request: odds,
            lose_reply: odds,
            lose_message: 4 * odds,
            late: 3 * odds,
            delay: Duration::from_millis(60),
            ..FaultRates::default()
        });
        if seed % 5 == 4 {
            faults.kill(1);
        }
        let limits = CollectiveTimeouts {
            base: Duration::from_millis(40),
            per_level: Duration::from_millis(10),
        };
        let shape = if seed % 2 == 0 {
            TreeShape::Ring
        } else {
            TreeShape::Fitted(Default::default())
        };
        let root = seed as u32 % n;
        let (outcomes, ran) = run(&members, &operation(n, shape, 1, root, limits), |_| true);
        assert!(ran <= 1);
        for outcome in outcomes.into_iter().flatten() {
            match outcome {
                Ok(sum) => {
                    assert_eq!((sum, ran), ((1 << n) - 1, 1), "seed {seed}");
                    done += 1;
                }
                Err(failure) if failure.may_have_happened() => unsure += 1,
                Err(failure) => {
                    assert_eq!(ran, 0, "seed {seed}: {failure}");
                    failed += 1;
                }
            }
        }
        // Afterwards the next one works.
        faults.set(FaultRates::default());
        faults.revive(1);
        let next = operation(n, shape, 2, root, PATIENT);
        let (outcomes, _) = run(&members, &next, |_| true);
        assert_eq!(outcomes, vec![Some(Ok((1 << n) - 1)); n as usize]);
    }
    // The odds are such that all of them happen.
    assert!(
        done > 0 && failed > 0 && unsure > 0,
        "{done} {failed} {unsure}"
    );
}

/// A rank that never comes: the others hear its name, and it hears that it is too late.
#[test]
fn a_rank_that_stays_away_is_named() {
    let members = members(&locals(8), MemoryBounds::default());
    let limits = CollectiveTimeouts {
        base: Duration::from_millis(300),
        per_level: Duration::from_millis(200),
    };
    // Distance 3 from the root: it has a child at 7, and its parent is at 1.
    let op = operation(8, TreeShape::Ring, 1, 0, limits);
    let (outcomes, ran) = run(&members, &op, |rank| rank != 5);
    assert_eq!(ran, 0);
    assert_eq!(outcomes[7], Some(Err(CollectiveFailure::Missing(5))));
    assert_eq!(outcomes[0], Some(Err(CollectiveFailure::Missing(5))));
    // Rank 1 waits below it; nobody there answers.
    assert_eq!(outcomes[1], Some(Err(CollectiveFailure::Lost(5))));
    let (late, ran) = run(&members, &op, |rank| rank == 5);
    assert_eq!(ran, 0);
    assert_eq!(late[5], Some(Err(CollectiveFailure::Missing(5))));
}

/// With word of the death nobody waits for a limit: these are far beyond what the test may take.
#[test]
fn a_rank_that_declines_is_not_waited_for() {
    for n in [2, 5, 9] {
        let members = members(&locals(n), MemoryBounds::default());
        for (round, root) in (0..n).enumerate() {
            let operation = operation(n, TreeShape::Ring, round as u64, root, PATIENT);
            let absent = (root + 1) % n;
            members[absent as usize].decline(&operation);
            let (outcomes, ran) = run(&members, &operation, |r| r != absent);
            assert_eq!(ran, 0);
            let heard = outcomes.iter().flatten();
            assert!(heard.clone().count() == n as usize - 1);
            assert!(
                heard
                    .clone()
                    .all(|o| matches!(o, Err(e) if !e.may_have_happened())),
                "{outcomes:?}"
            );
            // It cannot change its mind.
            let late = members[absent as usize].reduce(&operation, number(1), add, |sum| sum);
            assert_eq!(late, Err(CollectiveFailure::Missing(absent)));
        }
    }
}

#[test]
fn a_death_is_heard_at_once() {
    let ends = locals(8);
    let members = members(&ends, MemoryBounds::default());
    ends[6].close();
    let op = operation(8, TreeShape::Ring, 1, 0, PATIENT);
    let (outcomes, ran) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for member in &members {
                member.rank_died(6);
            }
        });
        run(&members, &op, |rank| rank != 6)
    });
    assert_eq!(ran, 0);
    for (rank, outcome) in outcomes.iter().enumerate().filter(|(r, _)| *r != 6) {
        assert!(
            matches!(
                outcome,
                Some(Err(
                    CollectiveFailure::Missing(6) | CollectiveFailure::Lost(6)
                ))
            ),
            "{rank}: {outcome:?}"
        );
    }
}

#[test]
fn members_that_disagree_fail() {
    let members = members(&locals(4), MemoryBounds::default());
    let ops = [
        operation(4, TreeShape::Ring, 1, 0, PATIENT),
        operation(4, TreeShape::Direct, 1, 0, PATIENT),
    ];
    std::thread::scope(|scope| {
        let call = |rank: usize, op: usize| {
            let (members, ops) = (&members, &ops);
            scope.spawn(move || members[rank].reduce(&ops[op], number(1), add, |sum| sum))
        };
        let calls: Vec<_> = (0..4)
            .map(|rank| call(rank, usize::from(rank == 2)))
            .collect();
        for call in calls {
            assert_eq!(call.join().unwrap(), Err(CollectiveFailure::Mismatch(2)));
        }
    });
}

#[test]
fn a_panic_is_heard_by_all() {
    let members = members(&locals(4), MemoryBounds::default());
    let op = &operation(4, TreeShape::Ring, 1, 0, PATIENT);
    std::thread::scope(|scope| {
        let call = |member: &Arc<Collectives>| {
            let member = member.clone();
            scope.spawn(move || member.reduce(op, number(1), add, |_| panic!("at the root")))
        };
        let mut calls: Vec<_> = members.iter().map(call).collect();
        assert!(calls.remove(0).join().is_err());
        for call in calls {
            assert_eq!(call.join().unwrap(), Err(CollectiveFailure::Panicked(0)));
        }
    });
    assert!(members.iter().all(|m| m.held() == (0, 1)));
}

#[test]
fn outsiders_and_second_callers_are_refused() {
    let members = members(&locals(3), MemoryBounds::default());
    let mut op = operation(2, TreeShape::Ring, 1, 0, PATIENT);
    let refused = members[2].reduce(&op, number(1), add, |s| s);
    assert_eq!(refused, Err(CollectiveFailure::NotAMember(2)));
    op.root = 2;
    let refused = members[1].reduce(&op, number(1), add, |s| s);
    assert_eq!(refused, Err(CollectiveFailure::NotAMember(2)));
    op.root = 0;
    assert!(
        run(&members[..2], &op, |_| true)
            .0
            .iter()
            .all(|o| *o == Some(Ok(3)))
    );
    // The same round again.
    assert_eq!(
        members[1].reduce(&op, number(1), add, |s| s),
        Err(CollectiveFailure::Over(1))
    );
}

#[test]
fn memory_stays_bounded_under_messages_nobody_waits_for() {
    let ends = locals(2);
    let bounds = MemoryBounds {
        pending: 8,
        remembered: 16,
    };
    let members = members(&ends, bounds);
    for round in 0..200 {
        let up = ChildMessage {
            id: OperationId {
                group: 1,
                digest: 0,
                round,
                key: Bytes::new(),
            },
            root: 0,
            keep_for: Duration::from_millis(round % 3),
            content: Err(CollectiveFailure::Missing(9)),
        };
        ends[1].send(0, up.encode()).unwrap();
    }
    ends[1].send(0, Message::new("FRNG and nonsense")).unwrap();
    // Messages of one sender are handled in order; this one comes last, through the same mailbox.
    while members[0].counts().failures < 200 {
        std::thread::yield_now();
    }
    let (pending, ended) = members[0].held();
    assert!(pending <= 8 && ended <= 16, "{pending} {ended}");
}

fn of_number_3(ranks: &[Rank], round: u64) -> Operation {
    Operation {
        group: Group::new(3, ranks.to_vec(), TreeShape::Ring).unwrap(),
        key: Bytes::new(),
        round,
        root: 0,
        limits: PATIENT,
    }
}

fn sum(member: &Collectives, operation: &Operation) -> Result<u64, CollectiveFailure> {
    let own = number(1 << member.fabric.rank());
    let answer = member.reduce(operation, own, add, |sum| sum);
    answer.map(|sum| read(&sum))
}

/// The limits are far beyond what the test may take.
#[test]
fn two_lists_that_use_one_number_at_once_fail_at_once() {
    let members = members(&locals(3), MemoryBounds::default());
    let (one, other) = (of_number_3(&[0, 1], 0), of_number_3(&[2, 0], 0));
    let heard = std::thread::scope(|scope| {
        let calls = [(0, &one), (2, &other)];
        let calls = calls.map(|(rank, op): (usize, _)| {
            let member = &members[rank];
            scope.spawn(move || sum(member, op))
        });
        calls.map(|call| call.join().unwrap())
    });
    assert_eq!(heard, [Err(CollectiveFailure::Mismatch(2)); 2]);
    // Who comes later hears it, too.
    assert_eq!(sum(&members[1], &one), Err(CollectiveFailure::Mismatch(2)));
    assert_eq!(
        sum(&members[0], &other),
        Err(CollectiveFailure::Mismatch(2))
    );
    // One after the other they may use it, from the same rounds on.
    for (list, all) in [([0, 1], 0b011), ([2, 0], 0b101), ([1, 0], 0b011)] {
        let op = &of_number_3(&list, 1);
        let heard = std::thread::scope(|scope| {
            let call = |rank: Rank| {
                let member = &members[rank as usize];
                scope.spawn(move || sum(member, op))
            };
            list.map(call).map(|call| call.join().unwrap())
        });
        assert_eq!(heard, [Ok(all); 2]);
    }
}

/// Until they are at the same one.
#[test]
fn ranks_at_different_rounds_hear_so_at_once() {
    let members = members(&locals(2), MemoryBounds::default());
    for (child, root) in [(0u64, 4u64), (14, 10)] {
        let last = child.max(root);
        let [behind, ahead] = [(1usize, child), (0, root)].map(|(rank, first)| {
            let member = members[rank].clone();
            move || -> Vec<_> {
                let rounds = first..=last;
                rounds
                    .map(|round| sum(&member, &of_number_3(&[0, 1], round)))
                    .collect()
            }
        });
        let (child_heard, root_heard) = std::thread::scope(|scope| {
            let calls = [scope.spawn(behind), scope.spawn(ahead)];
            let [child, root] = calls.map(|call| call.join().unwrap());
            (child, root)
        });
        let after = |failure| [vec![Err(failure); 4], vec![Ok(3)]].concat();
        let (child_expected, root_expected) = match child < root {
            true => (after(CollectiveFailure::Over(0)), vec![Ok(3)]),
            false => (vec![Ok(3)], after(CollectiveFailure::Ahead(1))),
        };
        assert_eq!(child_heard, child_expected);
        assert_eq!(root_heard, root_expected);
    }
}
