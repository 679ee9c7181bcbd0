//! What callers see when a peer does not answer, is closed, or never was.

use super::handlers::number;
use super::{Ends, Functions, LONG, SHORT};
use crate::{Error, Replier};
use crossbeam_channel::unbounded;

/// A request whose replier is dropped ends at once with `Dead`; the rank goes on answering others.
pub fn a_dropped_replier_is_dead(ends: &Ends) {
    ends[1].serve(Functions::requests(|_, message, replier| {
        if message == number(1) {
            replier.reply(message);
        }
    }));
    assert_eq!(ends[0].call(1, number(0), LONG), Err(Error::Dead(1)));
    assert_eq!(ends[0].call(1, number(1), LONG), Ok(number(1)));
}

/// A request that nobody answers ends with `Deadline`; an answer after that does no harm.
pub fn a_deadline_ends_a_call(ends: &Ends) {
    let (keep, kept) = unbounded::<Replier>();
    ends[1].serve(Functions::requests(move |_, message, replier| {
        if message == number(1) {
            replier.reply(message);
        } else {
            // Fails only when the check has already failed.
            let _ = keep.send(replier);
        }
    }));
    let missed = Error::Deadline {
        rank: 1,
        after: SHORT,
    };
    assert_eq!(ends[0].call(1, number(0), SHORT), Err(missed));
    match kept.recv_timeout(LONG) {
        Ok(replier) => replier.reply(number(5)),
        Err(_) => panic!("the request never arrived"),
    }
    assert_eq!(ends[0].call(1, number(1), LONG), Ok(number(1)));
}

/// Requests and messages to a closed rank fail with `Dead`, those to other ranks go on.
pub fn a_closed_peer_is_dead(ends: &Ends) {
    for end in ends {
        end.serve(Functions::echo());
    }
    ends[1].close();
    ends[1].close();
    assert_eq!(ends[0].call(1, number(1), LONG), Err(Error::Dead(1)));
    assert_eq!(ends[0].send(1, number(1)), Err(Error::Dead(1)));
    for to in (0..ends[0].size()).filter(|to| *to != 1) {
        assert_eq!(ends[0].call(to, number(1), LONG), Ok(number(1)));
    }
}

/// A closed end neither asks nor sends.
pub fn a_closed_end_refuses(ends: &Ends) {
    for end in ends {
        end.serve(Functions::echo());
    }
    ends[0].close();
    assert_eq!(ends[0].call(1, number(1), LONG), Err(Error::Closed));
    assert_eq!(ends[0].send(1, number(1)), Err(Error::Closed));
    assert_eq!(ends[0].call(0, number(1), LONG), Err(Error::Closed));
}

/// A call that waits ends when either end closes: with `Dead` for the peer's, with `Closed` for its own.
pub fn closing_ends_calls_in_flight(ends: &Ends) {
    let (keep, kept) = unbounded::<Replier>();
    for end in ends {
        let keep = keep.clone();
        end.serve(Functions::requests(move |_, _, replier| {
            // Fails only when the check has already failed.
            let _ = keep.send(replier);
        }));
    }
    std::thread::scope(|scope| {
        let to_peer = scope.spawn(|| ends[0].call(1, number(1), LONG));
        let first = kept.recv_timeout(LONG);
        ends[1].close();
        assert_eq!(to_peer.join().ok(), Some(Err(Error::Dead(1))));
        let to_self = scope.spawn(|| ends[0].call(0, number(2), LONG));
        let second = kept.recv_timeout(LONG);
        ends[0].close();
        let ended = to_self.join().ok();
        assert!(
            matches!(ended, Some(Err(Error::Closed | Error::Dead(0)))),
            "{ended:?}"
        );
        assert!(first.is_ok() && second.is_ok(), "a request never arrived");
    });
}

/// Ranks beyond the last are refused.
pub fn no_such_rank(ends: &Ends) {
    let size = ends[0].size();
    for rank in [size, size + 1, u32::MAX] {
        assert_eq!(
            ends[0].call(rank, number(1), LONG),
            Err(Error::NoSuchRank(rank))
        );
        assert_eq!(ends[0].send(rank, number(1)), Err(Error::NoSuchRank(rank)));
    }
}
