//! The fabric with faults: each fault, and that the wrapper changes nothing without them.

use crate::common::{LONG, local_ends};
use crate::conformance::{self, ClosureHandler};
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_fabric::{Error, Fabric, Message};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// All ends of a fabric of `n` ranks, with the same faults.
fn faulty_ends(n: u32, faults: &Arc<Faults>) -> Vec<Arc<dyn Fabric>> {
    let ends = local_ends(n).into_iter();
    ends.map(|end| faults.wrap(end)).collect()
}

/// Two ends, a count of requests that rank 1 carried out.
fn pair(faults: &Arc<Faults>) -> (Vec<Arc<dyn Fabric>>, Arc<AtomicU64>) {
    let ends = faulty_ends(2, faults);
    let carried_out = Arc::new(AtomicU64::new(0));
    let count = carried_out.clone();
    ends[1].serve(ClosureHandler::requests(move |_, message, replier| {
        count.fetch_add(1, Ordering::SeqCst);
        replier.reply(message);
    }));
    (ends, carried_out)
}

/// For each of 200 calls, whether it was answered.
fn answered(ends: &[Arc<dyn Fabric>]) -> Vec<bool> {
    let call = |_| ends[0].call(1, Message::default(), LONG).is_ok();
    (0..200).map(call).collect()
}

#[test]
fn without_faults_it_conforms() {
    conformance::all(|n| faulty_ends(n, &Faults::new(1)));
}

#[test]
fn a_seed_replays_and_lost_requests_are_not_carried_out() {
    let run = |seed| {
        let faults = Faults::new(seed);
        let (ends, carried_out) = pair(&faults);
        faults.set(FaultRates {
            lose_request: 300,
            lose_reply: 200,
            ..FaultRates::default()
        });
        (
            answered(&ends),
            carried_out.load(Ordering::SeqCst),
            faults.counts(),
        )
    };
    let (answers, carried_out, counts) = run(7);
    assert_eq!(run(7), (answers.clone(), carried_out, counts));
    assert_ne!(run(8).0, answers);
    assert_eq!(carried_out, 200 - counts.lost_requests);
    let ok = answers.iter().filter(|a| **a).count() as u64;
    assert_eq!(ok, 200 - counts.lost_requests - counts.lost_replies);
    assert!(
        counts.lost_requests > 20 && counts.lost_replies > 10,
        "{counts:?}"
    );
}

#[test]
fn a_killed_rank_is_cut_off_until_revived() {
    let faults = Faults::new(1);
    let (ends, carried_out) = pair(&faults);
    ends[0].serve(ClosureHandler::echo());
    faults.kill(1);
    assert_eq!(
        ends[0].call(1, Message::default(), LONG),
        Err(Error::Dead(1))
    );
    assert_eq!(ends[0].send(1, Message::default()), Err(Error::Dead(1)));
    assert_eq!(
        ends[1].call(0, Message::default(), LONG),
        Err(Error::Closed)
    );
    assert_eq!(carried_out.load(Ordering::SeqCst), 0);
    faults.revive(1);
    assert_eq!(
        ends[0].call(1, Message::default(), LONG),
        Ok(Message::default())
    );
    assert_eq!(faults.counts().refused, 3);
}

#[test]
fn a_rank_killed_during_a_call_carries_it_out_without_a_reply() {
    let faults = Faults::new(1);
    let ends = faulty_ends(2, &faults);
    let kill = faults.clone();
    ends[1].serve(ClosureHandler::requests(move |_, message, replier| {
        kill.kill(1);
        replier.reply(message);
    }));
    assert_eq!(
        ends[0].call(1, Message::default(), LONG),
        Err(Error::Dead(1))
    );
}

#[test]
fn delays_go_to_the_clock_given_and_may_miss_the_deadline() {
    let slept = Arc::new(AtomicU64::new(0));
    let clock = slept.clone();
    let faults = Faults::with_sleep(1, move |d| {
        clock.fetch_add(d.as_millis() as u64, Ordering::SeqCst);
    });
    let (ends, carried_out) = pair(&faults);
    faults.set(FaultRates {
        latency: Duration::from_secs(5),
        ..FaultRates::default()
    });
    assert!(ends[0].call(1, Message::default(), LONG).is_ok());
    assert_eq!(slept.load(Ordering::SeqCst), 5000);
    let short = Duration::from_secs(5);
    let missed = Error::Deadline {
        rank: 1,
        after: short,
    };
    assert_eq!(ends[0].call(1, Message::default(), short), Err(missed));
    assert_eq!(carried_out.load(Ordering::SeqCst), 2);
    faults.set(FaultRates {
        late: 500,
        delay: Duration::from_secs(9),
        ..FaultRates::default()
    });
    assert!(answered(&ends).iter().all(|a| *a));
    assert!((50..150).contains(&faults.counts().delayed));
}

#[test]
fn lost_messages_leave_the_others_in_order() {
    let faults = Faults::new(3);
    let ends = faulty_ends(2, &faults);
    let (arrived, arrivals) = crossbeam_channel::unbounded();
    ends[1].serve(ClosureHandler::messages(move |_, m| {
        arrived.send(m.head[0]).unwrap()
    }));
    faults.set(FaultRates {
        lose_message: 500,
        ..FaultRates::default()
    });
    for i in 0..100u8 {
        ends[0].send(1, Message::new(vec![i])).unwrap();
    }
    let rest = 100 - faults.counts().lost_messages as usize;
    let got: Vec<u8> = (0..rest)
        .map(|_| arrivals.recv_timeout(LONG).unwrap())
        .collect();
    assert!(got.is_sorted() && (20..80).contains(&rest), "{got:?}");
    assert!(arrivals.is_empty());
}
