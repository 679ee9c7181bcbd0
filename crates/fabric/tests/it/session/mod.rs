//! A session alone, over a network in memory that loses, delays, doubles and damages what it carries.

mod memory;

use crate::common::{LONG, SHORT, identity};
use crate::conformance::{self, ClosureHandler, FabricBarrier, RankBarrier};
use bytes::Bytes;
use crossbeam_channel::{Receiver, unbounded};
use forebay_fabric::session::{Health, Identity, IdentityError, Session, SessionEnd};
use forebay_fabric::session::{StartError, Timing, start};
use forebay_fabric::{Error, Fabric, Handler, Message, Rank, Replier};
use memory::{Delivery, MemoryNetwork, MemoryTransport};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a frame is for, in the byte that says so (`session/frame.rs` has the layout).
#[derive(Clone, Copy)]
enum FrameKind {
    Request = 1,
    Reply = 2,
    Message = 4,
}

const PATIENT: Timing = Timing {
    heartbeat: Duration::from_millis(200),
    limit: LONG,
    join: LONG,
};
/// Where a peer is to die of silence.
const STRICT: Timing = Timing {
    limit: Duration::from_secs(2),
    ..PATIENT
};

/// What the first `n` processes of the network get when they join, each changed by `change`.
fn join(
    network: &Arc<MemoryNetwork>,
    n: u32,
    timing: Timing,
    change: impl Fn(&mut Identity) + Sync,
) -> Vec<Result<Session, StartError>> {
    std::thread::scope(|scope| {
        let joining = (0..n).map(|process| {
            let (network, change) = (network.clone(), &change);
            scope.spawn(move || {
                let joining = start(move || Ok(MemoryTransport::new(network, process)))?;
                assert_eq!(joining.process, process);
                let mut identity = identity(process, joining.processes);
                change(&mut identity);
                joining.join(identity, timing)
            })
        });
        let joining: Vec<_> = joining.collect();
        joining.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A network of `n` processes, and their sessions.
fn sessions(n: u32, timing: Timing) -> (Arc<MemoryNetwork>, Vec<Session>) {
    let network = MemoryNetwork::new(n);
    let joined = join(&network, n, timing, |_| {});
    let sessions = joined.into_iter().map(|session| session.unwrap());
    (network, sessions.collect())
}

/// The next fabric of each session, served by `handler`.
fn serve(sessions: &[Session], handler: impl Fn() -> Arc<dyn Handler>) -> Vec<Arc<dyn Fabric>> {
    let ends = sessions.iter().map(|session| {
        let end: Arc<dyn Fabric> = session.fabric();
        end.serve(handler());
        end
    });
    ends.collect()
}

/// The next fabric of each session; it answers each request with the request.
fn echo(sessions: &[Session]) -> Vec<Arc<dyn Fabric>> {
    serve(sessions, || ClosureHandler::echo())
}

fn stop(sessions: Vec<Session>, timeout: Duration) -> Vec<SessionEnd> {
    std::thread::scope(|scope| {
        let stop = |session: Session| scope.spawn(move || session.stop(timeout));
        let ending: Vec<_> = sessions.into_iter().map(stop).collect();
        ending.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn is(kind: FrameKind, first: &Bytes) -> bool {
    first[6] == kind as u8
}

fn deaths(session: &Session) -> Receiver<Rank> {
    let (died, deaths) = unbounded();
    session.on_death(move |rank| died.send(rank).unwrap());
    deaths
}

fn message(n: u8) -> Message {
    Message::new(vec![n])
}

fn missed(rank: Rank) -> Result<Message, Error> {
    let after = SHORT;
    Err(Error::Deadline { rank, after })
}

#[test]
fn a_session_over_any_transport_conforms() {
    for n in [1, 2, 5] {
        let (network, sessions) = sessions(n, PATIENT);
        std::thread::scope(|scope| {
            for session in sessions {
                scope.spawn(move || {
                    let barrier = FabricBarrier::new(session.fabric());
                    let end = || -> Arc<dyn Fabric> { session.fabric() };
                    conformance::each(conformance::CHECKS, end, &barrier);
                    barrier.wait();
                    drop(barrier);
                    assert_eq!(session.stop(LONG), SessionEnd::Finalized);
                });
            }
        });
        assert_eq!(network.finished.load(Ordering::SeqCst), n as usize);
    }
}

#[test]
fn a_lost_request_or_reply_costs_its_call_only() {
    for kind in [FrameKind::Request, FrameKind::Reply] {
        let (network, sessions) = sessions(2, PATIENT);
        let ends = echo(&sessions);
        let mut lost = false;
        network.decide(move |_, _, first| {
            match is(kind, first) && !std::mem::replace(&mut lost, true) {
                true => Delivery::Never,
                false => Delivery::Once,
            }
        });
        assert_eq!(ends[0].call(1, message(1), SHORT), missed(1));
        assert_eq!(ends[0].call(1, message(2), LONG), Ok(message(2)));
        drop(ends);
        assert_eq!(stop(sessions, LONG), [SessionEnd::Finalized; 2]);
    }
}

#[test]
fn a_reply_that_comes_after_its_deadline_is_nobodys() {
    let (network, sessions) = sessions(2, PATIENT);
    let ends = echo(&sessions);
    let (held, holding) = unbounded();
    network.decide(move |_, _, first| match is(FrameKind::Reply, first) {
        true => {
            held.send(()).unwrap();
            Delivery::Held
        }
        false => Delivery::Once,
    });
    assert_eq!(ends[0].call(1, message(1), SHORT), missed(1));
    assert_eq!(holding.recv_timeout(LONG), Ok(()));
    network.decide(|_, _, _| Delivery::Once);
    network.release();
    for n in 2..9 {
        assert_eq!(ends[0].call(1, message(n), LONG), Ok(message(n)));
    }
    drop(ends);
    assert_eq!(stop(sessions, LONG), [SessionEnd::Finalized; 2]);
}

#[test]
fn replies_and_farewells_that_come_twice_count_once() {
    let (network, sessions) = sessions(3, PATIENT);
    let ends = echo(&sessions);
    network.decide(|_, _, first| {
        let harmful = is(FrameKind::Request, first) || is(FrameKind::Message, first);
        match harmful {
            true => Delivery::Once,
            false => Delivery::Twice,
        }
    });
    for n in 0..20 {
        for to in 0..3 {
            assert_eq!(ends[0].call(to, message(n), LONG), Ok(message(n)));
        }
    }
    ends[1].close();
    assert_eq!(ends[0].call(1, message(1), LONG), Err(Error::Dead(1)));
    assert_eq!(ends[0].call(2, message(1), LONG), Ok(message(1)));
    drop(ends);
    assert_eq!(stop(sessions, LONG), [SessionEnd::Finalized; 3]);
}

#[test]
fn who_sends_what_is_no_frame_is_dead_and_others_go_on() {
    fn flip(first: &Bytes, at: usize) -> Bytes {
        let mut bytes = first.to_vec();
        bytes[at] ^= 1;
        bytes.into()
    }
    type Damage = fn(&Bytes) -> Bytes;
    let damages: [(&str, Damage); 6] = [
        ("cut in its header", |first| first.slice(..20)),
        ("cut in its bytes", |first| first.slice(..first.len() - 1)),
        ("too long", |first| [&first[..], b"x"].concat().into()),
        ("empty", |_| Bytes::new()),
        ("of another version", |first| flip(first, 4)),
        ("with another length", |first| flip(first, 32)),
    ];
    for (what, damage) in damages {
        let (network, sessions) = sessions(3, PATIENT);
        let ends = echo(&sessions);
        let deaths: Vec<_> = sessions.iter().map(deaths).collect();
        network.decide(move |from, to, first| {
            match (from, to) == (1, 0) && is(FrameKind::Reply, first) {
                true => Delivery::Replaced(damage(first)),
                false => Delivery::Once,
            }
        });
        let call = ends[0].call(1, message(1), LONG);
        assert_eq!(call, Err(Error::Dead(1)), "a frame {what}");
        assert_eq!(deaths[0].recv_timeout(LONG), Ok(1), "a frame {what}");
        assert_eq!(sessions[0].peers()[1].health, Health::Dead);
        assert_eq!(ends[0].call(2, message(2), LONG), Ok(message(2)));
        assert_eq!(ends[2].call(0, message(3), LONG), Ok(message(3)));
        // It goes on sending heartbeats, so it is told, and is alone.
        let mut alone = [(); 2].map(|()| deaths[1].recv_timeout(LONG).unwrap());
        alone.sort();
        assert_eq!(alone, [0, 2], "a frame {what}");
        assert_eq!(ends[1].call(2, message(4), LONG), Err(Error::Dead(2)));
        drop(ends);
        assert!(stop(sessions, SHORT).contains(&SessionEnd::Abandoned));
    }
}

#[test]
fn a_silent_peer_dies_and_stays_dead_when_it_is_reached_again() {
    let (network, sessions) = sessions(3, STRICT);
    let ends = serve(&sessions, || {
        let kept = parking_lot::Mutex::new(Vec::<Replier>::new());
        ClosureHandler::requests(move |_, message, replier| match message.head[0] {
            0 => kept.lock().push(replier),
            _ => replier.reply(message),
        })
    });
    let deaths: Vec<_> = sessions.iter().map(deaths).collect();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ends[0].call(1, message(0), LONG));
        network.cut_off(1);
        assert_eq!(asked.join().unwrap(), Err(Error::Dead(1)));
    });
    for at in [0, 2] {
        assert_eq!(deaths[at].recv_timeout(LONG), Ok(1));
        assert_eq!(sessions[at].peers()[1].health, Health::Dead);
    }
    assert_eq!(ends[0].call(2, message(2), LONG), Ok(message(2)));
    assert_eq!(ends[0].send(1, message(2)), Err(Error::Dead(1)));
    // It hears nobody either.
    let mut alone = [(); 2].map(|()| deaths[1].recv_timeout(LONG).unwrap());
    alone.sort();
    assert_eq!(alone, [0, 2]);
    network.reconnect(1);
    assert_eq!(ends[1].call(0, message(2), LONG), Err(Error::Dead(0)));
    assert_eq!(ends[0].call(1, message(2), LONG), Err(Error::Dead(1)));
    drop(ends);
    assert_eq!(stop(sessions, LONG), [SessionEnd::Abandoned; 3]);
    assert_eq!(network.finished.load(Ordering::SeqCst), 0);
}

#[test]
fn a_peer_that_was_declared_dead_is_told_so_and_is_alone() {
    let (network, sessions) = sessions(3, STRICT);
    let ends = echo(&sessions);
    let deaths: Vec<_> = sessions.iter().map(deaths).collect();
    let (outside, expulsions) = unbounded();
    sessions[1].on_expulsion(move |by| outside.send(by).unwrap());
    // It hears the others; they do not hear it.
    network.decide(|from, _, _| match from {
        1 => Delivery::Never,
        _ => Delivery::Once,
    });
    assert_eq!(deaths[0].recv_timeout(LONG), Ok(1));
    assert_eq!(deaths[2].recv_timeout(LONG), Ok(1));
    network.decide(|_, _, _| Delivery::Once);
    let by = expulsions.recv_timeout(LONG).unwrap();
    assert!(by == 0 || by == 2, "{by}");
    let mut alone = [(); 2].map(|()| deaths[1].recv_timeout(LONG).unwrap());
    alone.sort();
    assert_eq!(alone, [0, 2]);
    assert_eq!(ends[1].call(0, message(1), LONG), Err(Error::Dead(0)));
    assert!(expulsions.is_empty(), "once is enough");
    drop(ends);
    assert_eq!(stop(sessions, LONG), [SessionEnd::Abandoned; 3]);
}

#[test]
fn a_peer_that_cannot_be_sent_to_is_dead_at_once() {
    let (network, sessions) = sessions(3, PATIENT);
    let ends = echo(&sessions);
    let deaths = deaths(&sessions[0]);
    assert_eq!(ends[0].call(1, message(1), LONG), Ok(message(1)));
    network.make_unreachable(1);
    assert_eq!(ends[0].call(1, message(1), LONG), Err(Error::Dead(1)));
    assert_eq!(deaths.recv_timeout(LONG), Ok(1));
    assert_eq!(ends[0].call(2, message(1), LONG), Ok(message(1)));
    drop(ends);
    assert!(stop(sessions, SHORT).contains(&SessionEnd::Abandoned));
}

#[test]
fn messages_wait_for_a_large_one_before_them_and_requests_do_not() {
    let (network, sessions) = sessions(2, PATIENT);
    let (arrived, arrivals) = unbounded();
    let mailbox = ClosureHandler::messages(move |_, message| arrived.send(message.head).unwrap());
    let messages: Vec<_> = sessions.iter().map(Session::fabric).collect();
    messages[1].serve(mailbox);
    let requests = echo(&sessions);
    network.hold_large();
    let large = Message {
        bulk: vec![vec![7; 100_000].into()],
        ..Message::new("large")
    };
    assert_eq!(messages[0].send(1, large), Ok(()));
    assert_eq!(messages[0].send(1, Message::new("small")), Ok(()));
    assert_eq!(requests[0].call(1, message(1), LONG), Ok(message(1)));
    assert!(arrivals.is_empty());
    network.release();
    assert_eq!(arrivals.recv_timeout(LONG), Ok("large".into()));
    assert_eq!(arrivals.recv_timeout(LONG), Ok("small".into()));
    drop((messages, requests));
    assert_eq!(stop(sessions, LONG), [SessionEnd::Finalized; 2]);
}

#[test]
fn processes_that_do_not_belong_together_are_refused_alike() {
    type Change = fn(&mut Identity);
    type Reason = fn(&IdentityError) -> bool;
    let cases: [(Change, Reason); 5] = [
        (
            |i| i.secret.push(1),
            |e| matches!(e, IdentityError::Secret(..)),
        ),
        (
            |i| i.version += 1,
            |e| matches!(e, IdentityError::Version(..)),
        ),
        (
            |i| i.service[0] = 1,
            |e| matches!(e, IdentityError::Service(..)),
        ),
        (
            |i| i.members = 9,
            |e| matches!(e, IdentityError::Members(..)),
        ),
        (
            |i| i.member = 0,
            |e| matches!(e, IdentityError::Twice { .. }),
        ),
    ];
    for (change, is_reason) in cases {
        let network = MemoryNetwork::new(3);
        let joined = join(&network, 3, PATIENT, |identity| {
            if identity.member == 1 {
                change(identity);
            }
        });
        let said = refusals(joined, is_reason);
        assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
        assert!(said[0].contains("process 0 (here)"), "{said:?}");
        // All refuse, so all can end the transport.
        assert_eq!(network.finished.load(Ordering::SeqCst), 3);
    }
}

#[test]
fn a_process_whose_introduction_is_damaged_is_refused_by_all() {
    let network = MemoryNetwork::new(2);
    network.damage_record(1);
    let joined = join(&network, 2, PATIENT, |_| {});
    let garbled = IdentityError::Garbled("process 1".into());
    assert_eq!(
        refusals(joined, |e| matches!(e, IdentityError::Garbled(_))),
        { [garbled.to_string(), garbled.to_string()] }
    );
}

fn refusals(
    joined: Vec<Result<Session, StartError>>,
    is_reason: fn(&IdentityError) -> bool,
) -> Vec<String> {
    let refusal = |result| match result {
        Err(StartError::Refused(error)) if is_reason(&error) => error.to_string(),
        Err(error) => panic!("refused for another reason: {error}"),
        Ok(_) => panic!("not refused"),
    };
    joined.into_iter().map(refusal).collect()
}

#[test]
fn those_that_came_do_not_wait_for_ever_for_one_that_does_not() {
    let join_limit = Duration::from_millis(300);
    let hasty = Timing {
        join: join_limit,
        ..PATIENT
    };
    let network = MemoryNetwork::new(3);
    for joined in join(&network, 2, hasty, |_| {}) {
        assert!(matches!(joined, Err(StartError::Late(limit)) if limit == join_limit));
    }
    assert_eq!(network.finished.load(Ordering::SeqCst), 0);
}
