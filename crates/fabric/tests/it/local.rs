//! Ranks as threads of one process: the conformance suite, and what only this transport promises.

use crate::common::local_ends;
use crate::conformance::{self, ClosureHandler};
use forebay_fabric::local::fabric;
use forebay_fabric::{Error, Fabric, Message};
use forebay_testkit::wait::until;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn conforms() {
    conformance::all(local_ends);
}

#[test]
fn a_request_runs_on_its_callers_thread() {
    let ends = fabric(2);
    let ran_on = Arc::new(Mutex::new(None));
    let note = ran_on.clone();
    ends[1].serve(ClosureHandler::requests(move |_, m, replier| {
        *note.lock() = Some(std::thread::current().id());
        replier.reply(m);
    }));
    ends[0].call(1, Message::default(), Duration::ZERO).unwrap();
    assert_eq!(*ran_on.lock(), Some(std::thread::current().id()));
}

#[test]
fn bulk_bytes_are_not_copied() {
    let ends = fabric(2);
    ends[1].serve(ClosureHandler::echo());
    let message = Message {
        bulk: vec![vec![1u8; 4096].into()],
        ..Message::default()
    };
    let address = message.bulk[0].as_ptr();
    let reply = ends[0].call(1, message, Duration::from_secs(9)).unwrap();
    assert_eq!(reply.bulk[0].as_ptr(), address);
}

#[test]
fn a_rank_that_does_not_serve_yet_is_dead_and_its_messages_wait() {
    let ends = fabric(2);
    let asked = ends[0].call(1, Message::default(), Duration::from_secs(9));
    assert_eq!(asked, Err(Error::Dead(1)));
    ends[0].send(1, Message::new("early")).unwrap();
    let (arrived, arrivals) = crossbeam_channel::unbounded();
    ends[1].serve(ClosureHandler::messages(move |_, m| {
        arrived.send(m).unwrap()
    }));
    assert_eq!(arrivals.recv().unwrap(), Message::new("early"));
}

#[test]
fn closing_lets_go_of_the_handler_and_may_be_called_by_it() {
    let ends = fabric(2);
    let alive = Arc::new(());
    let held = alive.clone();
    let own = ends[1].clone();
    let (done, finished) = crossbeam_channel::bounded(1);
    ends[1].serve(ClosureHandler::messages(move |_, _| {
        let _held = &held;
        own.close();
        done.send(()).unwrap();
    }));
    ends[0].send(1, Message::default()).unwrap();
    finished.recv().unwrap();
    // The mailbox thread lets go a moment after its last message.
    until("the handler is let go", || Arc::strong_count(&alive) == 1);
}
