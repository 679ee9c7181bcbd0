//! One-way messages.

use super::handlers::{bytes, number, read_number};
use super::{Ends, Functions, LONG};
use crate::Message;
use crossbeam_channel::unbounded;

/// Every rank sends 500 numbered messages to every rank at once; each sender's arrive complete and in order.
pub fn messages_of_a_sender_keep_their_order(ends: &Ends) {
    const COUNT: u64 = 500;
    let (arrived, arrivals) = unbounded();
    for end in ends {
        let (to, arrived) = (end.rank(), arrived.clone());
        end.serve(Functions::messages(move |from, message| {
            // Fails only when the check has already failed.
            let _ = arrived.send((from, to, read_number(&message)));
        }));
    }
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || {
                for i in 0..COUNT {
                    for to in 0..end.size() {
                        assert_eq!(end.send(to, number(i)), Ok(()));
                    }
                }
            });
        }
    });
    let ranks = ends.len();
    let mut next = vec![vec![0; ranks]; ranks];
    for _ in 0..ranks * ranks * COUNT as usize {
        let arrival = arrivals.recv_timeout(LONG);
        let Ok((from, to, got)) = arrival else {
            panic!("messages are missing; next expected from row to column: {next:?}");
        };
        let expected = &mut next[from as usize][to as usize];
        assert_eq!(got, Some(*expected), "from rank {from} to rank {to}");
        *expected += 1;
    }
}

/// Head and bulk of messages, empty and of several MiB, arrive as sent.
pub fn messages_and_bulk_arrive_whole(ends: &Ends) {
    let (arrived, arrivals) = unbounded();
    ends[1].serve(Functions::messages(move |_, message| {
        // Fails only when the check has already failed.
        let _ = arrived.send(message);
    }));
    let messages = [0usize, 1, 5000, 4 << 20].map(|len| Message {
        head: bytes(len % 3000, 5),
        bulk: vec![bytes(len, 6), bytes(0, 0), bytes(len / 2, 7)],
    });
    for message in &messages {
        assert_eq!(ends[0].send(1, message.clone()), Ok(()));
    }
    for message in messages {
        let arrived = arrivals.recv_timeout(LONG);
        assert!(arrived == Ok(message), "a message did not arrive as sent");
    }
}
