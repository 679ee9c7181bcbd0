//! Requests and their replies.

use super::handlers::{bytes, number, read_number};
use super::{ClosureHandler, LONG, RankContext};
use forebay_fabric::{Fabric, Message, Replier};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Each rank asks each other one; requester and reply are not mixed up.
pub fn every_rank_answers_every_rank(context: &RankContext) {
    let own = u64::from(context.rank());
    context
        .end
        .serve(ClosureHandler::requests(move |from, message, replier| {
            let asked = read_number(&message).unwrap_or(0);
            replier.reply(number(asked * 10_000 + own * 100 + u64::from(from)));
        }));
    context.wait_for_all();
    for to in 0..context.size() {
        let reply = context
            .end
            .call(to, number(7), LONG)
            .map(|m| read_number(&m));
        let expected = 70_000 + u64::from(to) * 100 + own;
        assert_eq!(reply, Ok(Some(expected)), "rank {own} asks rank {to}");
    }
    context.wait_for_all();
}

/// A call to one's own rank reaches one's own handler.
pub fn a_rank_calls_itself(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    let reply = context.end.call(context.rank(), number(3), LONG);
    assert_eq!(reply, Ok(number(3)));
    context.wait_for_all();
}

/// Heads and bulk buffers of 0 bytes to 24 MiB come back as sent.
pub fn sizes_from_nothing_to_many_mib(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    let to = context.neighbour();
    assert_eq!(
        context.end.call(to, Message::default(), LONG),
        Ok(Message::default())
    );
    for len in [0, 1, 7, 4095, 4096, 4097, 65_536, (1 << 20) + 1, 24 << 20] {
        let message = Message {
            head: bytes(len.min(100_000), 1),
            bulk: vec![bytes(len, 2)],
        };
        let reply = context.end.call(to, message.clone(), LONG);
        // Not assert_eq: it would print all of it.
        assert!(
            reply == Ok(message),
            "{len} bytes did not come back as sent"
        );
    }
    context.wait_for_all();
}

/// A thousand buffers, empty ones among them, keep number, order and borders.
pub fn many_buffers_keep_their_borders(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    let bulk = (0..1000).map(|i| bytes(i * 37 % 501, i as u64)).collect();
    let message = Message {
        head: bytes(10, 9),
        bulk,
    };
    let reply = context.end.call(context.neighbour(), message.clone(), LONG);
    assert!(
        reply == Ok(message),
        "the buffers did not come back as sent"
    );
    context.wait_for_all();
}

/// Eight threads of each rank ask all ranks at once; every one gets its own answer.
pub fn many_callers_at_once(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    let end = context.end;
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for i in 0..100 {
                    let to = ((u64::from(end.rank()) + i) % u64::from(end.size())) as u32;
                    let message = number(u64::from(end.rank()) << 32 | thread << 16 | i);
                    assert_eq!(end.call(to, message.clone(), LONG), Ok(message));
                }
            });
        }
    });
    context.wait_for_all();
}

/// A handler calls the rank that called it, and so on, ten calls deep.
pub fn nested_calls_work(context: &RankContext) {
    let own: Weak<dyn Fabric> = Arc::downgrade(context.end);
    context
        .end
        .serve(ClosureHandler::requests(move |from, message, replier| {
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
    context.wait_for_all();
    let reply = context.end.call(context.neighbour(), number(10), LONG);
    assert_eq!(reply, Ok(number(11)));
    context.wait_for_all();
}

/// A handler may keep the replier and answer from another thread, in another order than asked.
pub fn late_replies_arrive(context: &RankContext) {
    let kept = Arc::new(Mutex::new(Vec::<(Message, Replier)>::new()));
    context
        .end
        .serve(ClosureHandler::requests(move |_, message, replier| {
            let mut kept = kept.lock();
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
    context.wait_for_all();
    let (end, to) = (context.end, context.neighbour());
    std::thread::scope(|scope| {
        for i in 0..8 {
            scope.spawn(move || assert_eq!(end.call(to, number(i), LONG), Ok(number(i))));
        }
    });
    context.wait_for_all();
}
