//! Fuzzers of the messages of collectives: a mutated message is refused or decodes to what its bytes say; a member that gets
//! them keeps no more than its bounds allow, and ends its own operations.
//!
//! Short form: some thousand mutations each; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`).
use super::wire::{
    ChildMessage, CollectiveFailure, OperationId, decode_down, encode_down, is_ring,
};
use super::{CollectiveTimeouts, Collectives, Group, MemoryBounds, Operation, TreeShape};
use crate::{Handler, Message, Replier, local};
use bytes::Bytes;
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Ranks of the group.
const RANKS: u32 = 5;
/// No key of the corpus is longer.
const KEY: usize = 40;

fn operation(round: u64) -> Operation {
    Operation {
        group: Group::new(7, (0..RANKS).collect(), TreeShape::Ring).unwrap(),
        key: Bytes::from_static(b"key"),
        round,
        root: 0,
        limits: CollectiveTimeouts {
            base: Duration::from_millis(2),
            per_level: Duration::from_millis(1),
        },
    }
}

/// What a child of rank 0 sends in this operation.
fn up(round: u64, key: &[u8], content: Result<Bytes, CollectiveFailure>) -> ChildMessage {
    ChildMessage {
        id: OperationId {
            group: 7,
            digest: operation(round).group.digest(),
            round,
            key: Bytes::copy_from_slice(key),
        },
        root: 0,
        keep_for: Duration::from_millis(3),
        content,
    }
}

fn heads() -> Vec<Vec<u8>> {
    let value = || Ok(Bytes::from_static(b"value"));
    let failures = [
        CollectiveFailure::Missing(3),
        CollectiveFailure::Lost(u32::MAX),
        CollectiveFailure::NotAMember(0),
    ];
    let outcomes = || failures.map(Err).into_iter().chain([value()]);
    let ups = [&b"key"[..], b"", &[7; KEY]]
        .into_iter()
        .flat_map(|key| outcomes().map(move |content| up(1, key, content).encode()));
    let downs = outcomes().map(encode_down);
    ups.chain(downs).map(|m| m.head.to_vec()).collect()
}

/// A mutated head, and a number of buffers that it may not fit.
fn message(random: &mut Random, head: Vec<u8>) -> Message {
    let buffers = [1, 0, 1, 2, 300][random.index(5)];
    Message {
        head: head.into(),
        bulk: vec![Bytes::from_static(b"value"); buffers],
    }
}

#[test]
fn messages() {
    let mut read = (0u64, 0u64);
    fuzz(
        "messages of collectives",
        50_000,
        &heads(),
        |random, _, head| {
            let message = message(random, head);
            if let Some(up) = ChildMessage::decode(message.clone()) {
                read.0 += 1;
                assert!(is_ring(&message));
                assert_eq!(up.encode(), message);
            }
            if let Some(outcome) = decode_down(message.clone()) {
                read.1 += 1;
                assert_eq!(encode_down(outcome), message);
            }
        },
    );
    assert!(read.0 > 1000 && read.1 > 100, "{read:?}");
}

/// Whatever comes, and from whomever: a member holds no more than it may, answers each message once, and its own operations end.
#[test]
fn a_member_that_gets_them() {
    let bounds = MemoryBounds {
        pending: 8,
        remembered: 20,
    };
    let end = local::fabric(RANKS).swap_remove(0);
    let member = Arc::new(Collectives::new(end, bounds));
    // Of each rank one message for each operation, at most.
    let most = bounds.pending * RANKS as usize;
    let waiting = Arc::new(AtomicUsize::new(0));
    let (mut round, mut done, mut failed) = (0, 0, 0);
    let corpus = heads();
    fuzz(
        "a member of collectives",
        4_000,
        &corpus,
        |random, _, mut head| {
            // Most of them are for the operation that comes next.
            if head.len() >= 32 && random.index(4) > 0 {
                head[24..32].copy_from_slice(&(round + 1u64).to_le_bytes());
            }
            let (from, message) = (random.index(RANKS as usize) as u32, message(random, head));
            if random.index(3) == 0 {
                member.message(from, message);
            } else {
                waiting.fetch_add(1, Ordering::SeqCst);
                let answer = Answer(waiting.clone());
                let replier = move |reply: Option<Message>| {
                    let read = reply.is_none_or(|reply| decode_down(reply).is_some());
                    assert!(read, "an answer that nobody reads");
                    drop(answer);
                };
                member.request(from, message, Replier::new(replier));
            }
            let (pending, ended) = member.held();
            assert!(pending <= bounds.pending && ended <= bounds.remembered);
            assert!(waiting.load(Ordering::SeqCst) <= most, "{pending} pending");
            if random.index(20) == 0 {
                round += 1;
                let operation = operation(round);
                if random.index(2) == 0 {
                    for child in operation.group.tree_position(0, 0).unwrap().children {
                        let value = Ok(Bytes::from_static(b"its own"));
                        member.message(child, up(round, b"key", value).encode());
                    }
                }
                let begun = Instant::now();
                let outcome = member.reduce(&operation, Bytes::new(), |a, _| a, |all| all);
                // Much longer than any pause of the machine.
                assert!(begun.elapsed() < Duration::from_secs(60));
                *if outcome.is_ok() {
                    &mut done
                } else {
                    &mut failed
                } += 1;
            }
        },
    );
    assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
    drop(member);
    assert_eq!(waiting.load(Ordering::SeqCst), 0, "messages never answered");
}

/// The right to answer; counted until it is used or dropped.
struct Answer(Arc<AtomicUsize>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
