//! Collectives over the transport.

use super::{LONG, RankContext};
use bytes::Bytes;
use forebay_fabric::Rank;
use forebay_fabric::ring::topology::fan_in;
use forebay_fabric::ring::{
    CollectiveFailure, CollectiveTimeouts, Collectives, Group, MemoryBounds, NetworkCost,
    Operation, TreeShape,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PATIENT: CollectiveTimeouts = CollectiveTimeouts {
    base: LONG,
    per_level: Duration::from_secs(1),
};
const FITTED: TreeShape = TreeShape::Fitted(NetworkCost { hop: 5, gap: 1 });

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_le_bytes())
}

fn read(bytes: &Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(bytes[..].try_into().ok()?))
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    number(read(&a).unwrap_or(0) + read(&b).unwrap_or(0))
}

/// A rank's collectives, and how often an operation ran here.
struct Member {
    collectives: Arc<Collectives>,
    ran: AtomicU64,
}

impl Member {
    fn of(context: &RankContext) -> Member {
        let collectives = Collectives::new(context.end.clone(), MemoryBounds::default());
        let collectives = Arc::new(collectives);
        context.end.serve(collectives.clone());
        context.wait_for_all();
        Member {
            collectives,
            ran: AtomicU64::new(0),
        }
    }

    /// The sum of `2^rank` over the members, from the root.
    fn sum(&self, rank: Rank, operation: &Operation) -> Result<Option<u64>, CollectiveFailure> {
        let own = number(1 << rank);
        let answer = self.collectives.reduce(operation, own, add, |sum| {
            self.ran.fetch_add(1, Ordering::SeqCst);
            sum
        });
        answer.map(|a| read(&a))
    }
}

fn operation(ranks: Vec<Rank>, shape: TreeShape, round: u64, root: Rank) -> Option<Operation> {
    Some(Operation {
        group: Group::new(1, ranks, shape).ok()?,
        key: Bytes::from_static(b"sum"),
        round,
        root,
        limits: PATIENT,
    })
}

/// Every rank in turn is the root, in every shape; it receives exactly the messages that it should.
pub fn everyone_gets_the_roots_answer(context: &RankContext) {
    let member = Member::of(context);
    let n = context.size();
    let all = (1u64 << n) - 1;
    let shapes = [TreeShape::Ring, FITTED, TreeShape::Direct];
    let mut before = member.collectives.counts();
    context.wait_for_all();
    for (round, shape) in (0..).zip(shapes) {
        for root in 0..n {
            let round = round * u64::from(n) + u64::from(root);
            let Some(operation) = operation((0..n).collect(), shape, round, root) else {
                panic!("all ranks are a group");
            };
            let ran = member.ran.load(Ordering::SeqCst);
            assert_eq!(member.sum(context.rank(), &operation), Ok(Some(all)));
            if context.rank() == root {
                let expected = match shape {
                    TreeShape::Direct => n - 1,
                    _ => fan_in(n),
                };
                let now = member.collectives.counts();
                assert_eq!(now.values - before.values, u64::from(expected));
                assert_eq!(now.answers - before.answers, u64::from(expected));
                assert_eq!(member.ran.load(Ordering::SeqCst), ran + 1);
            }
            // Counted before any message of the next round comes.
            before = member.collectives.counts();
            context.wait_for_all();
        }
    }
}

/// Some ranks, in an order of their own, while the others do something else.
pub fn a_group_of_some_ranks(context: &RankContext) {
    let (member, n) = (Member::of(context), context.size());
    let ranks: Vec<Rank> = (0..n).rev().filter(|r| r % 2 == 0).collect();
    let expected = ranks.iter().map(|r| 1u64 << r).sum();
    for round in 0..20 {
        let root = ranks[round as usize % ranks.len()];
        let Some(operation) = operation(ranks.clone(), TreeShape::Ring, round, root) else {
            panic!("some ranks are a group");
        };
        let outcome = member.sum(context.rank(), &operation);
        if context.rank().is_multiple_of(2) {
            assert_eq!(outcome, Ok(Some(expected)));
        } else {
            assert_eq!(outcome, Err(CollectiveFailure::NotAMember(context.rank())));
        }
    }
    context.wait_for_all();
}

/// Four threads of each rank, each with operations of its own.
pub fn operations_at_once(context: &RankContext) {
    let (member, n) = (&Member::of(context), context.size());
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..25u64 {
                    let root = (round as u32 + u32::from(thread)) % n;
                    let Some(operation) = operation((0..n).collect(), FITTED, round, root) else {
                        panic!("all ranks are a group");
                    };
                    let key = Bytes::copy_from_slice(&[thread]);
                    let outcome = member.sum(context.rank(), &Operation { key, ..operation });
                    assert_eq!(outcome, Ok(Some((1u64 << n) - 1)));
                }
            });
        }
    });
    context.wait_for_all();
}

/// One rank does not come: all others fail in time, the operation never runs, the late one fails too, and the next works.
pub fn a_rank_that_stays_away_fails_it(context: &RankContext) {
    let (member, n) = (Member::of(context), context.size());
    let Some(patient) = operation((0..n).collect(), TreeShape::Ring, 1, 0) else {
        panic!("all ranks are a group");
    };
    let hasty = Operation {
        limits: CollectiveTimeouts {
            base: Duration::from_millis(300),
            per_level: Duration::from_millis(100),
        },
        round: 0,
        ..patient.clone()
    };
    let away = context.rank() == 1;
    if !away {
        let outcome = member.sum(context.rank(), &hasty);
        assert!(outcome.is_err(), "{outcome:?}");
    }
    context.wait_for_all();
    if away {
        let outcome = member.sum(context.rank(), &hasty);
        assert!(outcome.is_err(), "{outcome:?}");
    }
    context.wait_for_all();
    assert_eq!(member.ran.load(Ordering::SeqCst), 0);
    let outcome = member.sum(context.rank(), &patient);
    assert_eq!(outcome, Ok(Some((1u64 << n) - 1)));
    context.wait_for_all();
}

/// One rank is gone, and the others know: all fail long before their limits.
pub fn a_dead_rank_fails_it_at_once(context: &RankContext) {
    let (member, n) = (Member::of(context), context.size());
    if context.rank() == 1 {
        context.end.close();
    }
    context.wait_for_all();
    if context.rank() != 1 {
        let Some(operation) = operation((0..n).collect(), TreeShape::Ring, 0, 0) else {
            panic!("all ranks are a group");
        };
        member.collectives.rank_died(1);
        let begun = std::time::Instant::now();
        let outcome = member.sum(context.rank(), &operation);
        assert!(
            matches!(
                outcome,
                Err(CollectiveFailure::Missing(1) | CollectiveFailure::Lost(1))
            ),
            "{outcome:?}"
        );
        assert!(begun.elapsed() < PATIENT.base);
    }
    context.wait_for_all();
}
