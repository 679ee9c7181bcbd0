//! One-way messages.

use super::handlers::{bytes, number, read_number};
use super::{ClosureHandler, LONG, RankContext};
use crossbeam_channel::unbounded;
use forebay_fabric::Message;

/// Every rank sends 500 numbered messages to every rank at once; each sender's arrive complete and in order.
pub fn messages_of_a_sender_keep_their_order(context: &RankContext) {
    const COUNT: u64 = 500;
    let (arrived, arrivals) = unbounded();
    context
        .end
        .serve(ClosureHandler::messages(move |from, message| {
            // Fails only when the check has already failed.
            let _ = arrived.send((from, read_number(&message)));
        }));
    context.wait_for_all();
    for i in 0..COUNT {
        for to in 0..context.size() {
            assert_eq!(context.end.send(to, number(i)), Ok(()));
        }
    }
    let ranks = context.size() as usize;
    let mut next = vec![0; ranks];
    for _ in 0..ranks * COUNT as usize {
        let arrival = arrivals.recv_timeout(LONG);
        let Ok((from, got)) = arrival else {
            panic!("messages are missing; next expected from each rank: {next:?}");
        };
        let expected = &mut next[from as usize];
        assert_eq!(got, Some(*expected), "from rank {from}");
        *expected += 1;
    }
    context.wait_for_all();
}

/// Head and bulk of messages, empty and of several MiB, arrive as sent.
pub fn messages_and_bulk_arrive_whole(context: &RankContext) {
    let (arrived, arrivals) = unbounded();
    context
        .end
        .serve(ClosureHandler::messages(move |_, message| {
            // Fails only when the check has already failed.
            let _ = arrived.send(message);
        }));
    context.wait_for_all();
    let messages = [0usize, 1, 5000, 4 << 20].map(|len| Message {
        head: bytes(len % 3000, 5),
        bulk: vec![bytes(len, 6), bytes(0, 0), bytes(len / 2, 7)],
    });
    for message in &messages {
        assert_eq!(
            context.end.send(context.neighbour(), message.clone()),
            Ok(())
        );
    }
    for message in messages {
        let arrived = arrivals.recv_timeout(LONG);
        assert!(arrived == Ok(message), "a message did not arrive as sent");
    }
    context.wait_for_all();
}

/// Messages of many sizes in turn arrive in the order sent.
pub fn small_messages_do_not_overtake_large_ones(context: &RankContext) {
    let (arrived, arrivals) = unbounded();
    context
        .end
        .serve(ClosureHandler::messages(move |_, message| {
            // Fails only when the check has already failed.
            let lengths: Vec<usize> = message.bulk.iter().map(|buffer| buffer.len()).collect();
            let _ = arrived.send((read_number(&message), lengths));
        }));
    context.wait_for_all();
    let sizes = |i: u64| [3 << 20, 0, 70_000, 9, 1 << 20, 5000][i as usize % 6];
    for i in 0..36 {
        let message = Message {
            bulk: vec![bytes(sizes(i), i)],
            ..number(i)
        };
        assert_eq!(context.end.send(context.neighbour(), message), Ok(()));
    }
    for i in 0..36 {
        let arrival = arrivals.recv_timeout(LONG);
        assert_eq!(arrival, Ok((Some(i), vec![sizes(i)])));
    }
    context.wait_for_all();
}
