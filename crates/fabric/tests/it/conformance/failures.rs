//! What callers see when a peer does not answer, is closed, or does not exist.

use super::handlers::number;
use super::{ClosureHandler, LONG, RankContext, SHORT};
use crossbeam_channel::unbounded;
use forebay_fabric::{Error, Replier};

/// A request whose replier is dropped ends at once with `Dead`; the rank goes on answering others.
pub fn a_dropped_replier_is_dead(context: &RankContext) {
    context
        .end
        .serve(ClosureHandler::requests(|_, message, replier| {
            if message == number(1) {
                replier.reply(message);
            }
        }));
    context.wait_for_all();
    let to = context.neighbour();
    assert_eq!(context.end.call(to, number(0), LONG), Err(Error::Dead(to)));
    assert_eq!(context.end.call(to, number(1), LONG), Ok(number(1)));
    context.wait_for_all();
}

/// A request that nobody answers ends with `Deadline`; an answer after that does no harm.
pub fn a_deadline_ends_a_call(context: &RankContext) {
    let (keep, kept) = unbounded::<Replier>();
    context
        .end
        .serve(ClosureHandler::requests(move |_, message, replier| {
            if message == number(1) {
                replier.reply(message);
            } else {
                // Fails only when the check has already failed.
                let _ = keep.send(replier);
            }
        }));
    context.wait_for_all();
    let to = context.neighbour();
    let missed = Error::Deadline {
        rank: to,
        after: SHORT,
    };
    assert_eq!(context.end.call(to, number(0), SHORT), Err(missed));
    // The neighbour's call is over too before it is answered.
    context.wait_for_all();
    match kept.recv_timeout(LONG) {
        Ok(replier) => replier.reply(number(5)),
        Err(_) => panic!("the request never arrived"),
    }
    assert_eq!(context.end.call(to, number(1), LONG), Ok(number(1)));
    context.wait_for_all();
}

/// Requests and messages to a closed rank fail with `Dead`, those to other ranks go on.
pub fn a_closed_peer_is_dead(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    if context.rank() == 1 {
        context.end.close();
        context.end.close();
    }
    context.wait_for_all();
    if context.rank() != 1 {
        let end = context.end;
        assert_eq!(end.call(1, number(1), LONG), Err(Error::Dead(1)));
        assert_eq!(end.send(1, number(1)), Err(Error::Dead(1)));
        for to in (0..end.size()).filter(|to| *to != 1) {
            assert_eq!(end.call(to, number(1), LONG), Ok(number(1)));
        }
    }
    context.wait_for_all();
}

/// A closed end neither asks nor sends.
pub fn a_closed_end_refuses(context: &RankContext) {
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    if context.rank() == 0 {
        let (end, to) = (context.end, context.neighbour());
        end.close();
        assert_eq!(end.call(to, number(1), LONG), Err(Error::Closed));
        assert_eq!(end.send(to, number(1)), Err(Error::Closed));
        assert_eq!(end.call(0, number(1), LONG), Err(Error::Closed));
    }
    context.wait_for_all();
}

/// A call that waits ends when either end closes: with `Dead` for the peer's, with `Closed` for its own.
pub fn closing_ends_calls_in_flight(context: &RankContext) {
    let (keep, kept) = unbounded::<Replier>();
    context
        .end
        .serve(ClosureHandler::requests(move |_, _, replier| {
            // Fails only when the check has already failed.
            let _ = keep.send(replier);
        }));
    context.wait_for_all();
    let arrival = || {
        let arrived = kept.recv_timeout(LONG);
        assert!(arrived.is_ok(), "the request never arrived");
        // Kept until the check is over: dropping it would end the call too.
        arrived
    };
    let mut held = Vec::new();
    match context.rank() {
        0 => {
            let ended = context.end.call(1, number(1), LONG);
            assert_eq!(ended, Err(Error::Dead(1)));
            std::thread::scope(|scope| {
                let to_self = scope.spawn(|| context.end.call(0, number(2), LONG));
                held.push(arrival());
                context.end.close();
                let ended = to_self.join().ok();
                let expected = matches!(ended, Some(Err(Error::Closed | Error::Dead(0))));
                assert!(expected, "{ended:?}");
            });
        }
        1 => {
            held.push(arrival());
            context.end.close();
        }
        _ => {}
    }
    context.wait_for_all();
}

/// Ranks beyond the last are refused.
pub fn no_such_rank(context: &RankContext) {
    let (end, size) = (context.end, context.size());
    for rank in [size, size + 1, u32::MAX] {
        let refused = Error::NoSuchRank(rank);
        assert_eq!(end.call(rank, number(1), LONG), Err(refused.clone()));
        assert_eq!(end.send(rank, number(1)), Err(refused));
    }
    context.wait_for_all();
}
