//! Requests and their replies.

use super::handlers::{bytes, number, read_number};
use super::{Ends, Functions, LONG};
use crate::{Fabric, Message, Replier};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Each rank asks each other one; requester and reply are not mixed up.
pub fn every_rank_answers_every_rank(ends: &Ends) {
    for end in ends {
        let own = u64::from(end.rank());
        end.serve(Functions::requests(move |from, message, replier| {
            let asked = read_number(&message).unwrap_or(0);
            replier.reply(number(asked * 10_000 + own * 100 + u64::from(from)));
        }));
    }
    for (at, end) in ends.iter().enumerate() {
        assert_eq!((end.rank() as usize, end.size() as usize), (at, ends.len()));
        for to in 0..end.size() {
            let reply = end.call(to, number(7), LONG).map(|m| read_number(&m));
            let expected = 70_000 + u64::from(to) * 100 + at as u64;
            assert_eq!(reply, Ok(Some(expected)), "rank {at} asks rank {to}");
        }
    }
}

/// A call to one's own rank reaches one's own handler.
pub fn a_rank_calls_itself(ends: &Ends) {
    let end = &ends[1];
    end.serve(Functions::echo());
    assert_eq!(end.call(1, number(3), LONG), Ok(number(3)));
}

/// Heads and bulk buffers of 0 bytes to 24 MiB come back as sent.
pub fn sizes_from_nothing_to_many_mib(ends: &Ends) {
    ends[1].serve(Functions::echo());
    assert_eq!(
        ends[0].call(1, Message::default(), LONG),
        Ok(Message::default())
    );
    for len in [0, 1, 7, 4095, 4096, 4097, 65_536, (1 << 20) + 1, 24 << 20] {
        let message = Message {
            head: bytes(len.min(100_000), 1),
            bulk: vec![bytes(len, 2)],
        };
        let reply = ends[0].call(1, message.clone(), LONG);
        // Not assert_eq: it would print all of it.
        assert!(
            reply == Ok(message),
            "{len} bytes did not come back as sent"
        );
    }
}

/// A thousand buffers, empty ones among them, keep number, order and borders.
pub fn many_buffers_keep_their_borders(ends: &Ends) {
    ends[1].serve(Functions::echo());
    let bulk = (0..1000).map(|i| bytes(i * 37 % 501, i as u64)).collect();
    let message = Message {
        head: bytes(10, 9),
        bulk,
    };
    let reply = ends[0].call(1, message.clone(), LONG);
    assert!(
        reply == Ok(message),
        "the buffers did not come back as sent"
    );
}

/// Eight threads of each rank ask all ranks at once; every one gets its own answer.
pub fn many_callers_at_once(ends: &Ends) {
    for end in ends {
        end.serve(Functions::echo());
    }
    std::thread::scope(|scope| {
        for end in ends {
            for thread in 0..8u64 {
                scope.spawn(move || {
                    for i in 0..100 {
                        let to = ((u64::from(end.rank()) + i) % ends.len() as u64) as u32;
                        let message = number(u64::from(end.rank()) << 32 | thread << 16 | i);
                        assert_eq!(end.call(to, message.clone(), LONG), Ok(message));
                    }
                });
            }
        }
    });
}

/// A handler calls the rank that called it, and so on, ten calls deep.
pub fn nested_calls_work(ends: &Ends) {
    for end in ends {
        let own: Weak<dyn Fabric> = Arc::downgrade(end);
        end.serve(Functions::requests(move |from, message, replier| {
            let (Some(depth), Some(own)) = (read_number(&message), own.upgrade()) else {
                return;
            };
            let below = match depth {
                0 => Ok(number(0)),
                _ => own.call(from, number(depth - 1), LONG),
            };
            if let Some(below) = below.ok().as_ref().and_then(read_number) {
                replier.reply(number(below + 1));
            }
        }));
    }
    assert_eq!(ends[0].call(1, number(10), LONG), Ok(number(11)));
}

/// A handler may keep the replier and answer from another thread, in another order than asked.
pub fn late_replies_arrive(ends: &Ends) {
    let kept = Arc::new(Mutex::new(Vec::<(Message, Replier)>::new()));
    let keep = kept.clone();
    ends[1].serve(Functions::requests(move |_, message, replier| {
        let mut kept = keep.lock();
        kept.push((message, replier));
        if kept.len() < 8 {
            return;
        }
        let all: Vec<_> = kept.drain(..).rev().collect();
        std::thread::spawn(move || {
            for (message, replier) in all {
                replier.reply(message);
            }
        });
    }));
    std::thread::scope(|scope| {
        for i in 0..8 {
            let end = &ends[0];
            scope.spawn(move || assert_eq!(end.call(1, number(i), LONG), Ok(number(i))));
        }
    });
}
