//! No answer is older than its request, whatever the order of events; a panic is heard by those that wait.
use super::*;
use crossbeam_channel::{Receiver, Sender, unbounded};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

impl<K: Eq + Hash, Q, A> Combiner<K, Q, A> {
    /// Requests about `key` that wait for the one in flight; `None` if none is in flight.
    fn waiting(&self, key: &K) -> Option<usize> {
        let in_flight = self.in_flight.lock();
        // Each of them holds their batch, which is kept here too.
        let next = in_flight.get(key)?.as_ref();
        Some(next.map_or(0, |next| Arc::strong_count(&next.batch) - 1))
    }
}

type Numbers = Combiner<u8, Vec<u64>, u64>;

fn merge(a: &mut Vec<u64>, mut b: Vec<u64>) {
    a.append(&mut b);
}

/// Waits for what another thread is about to do. It fails the test rather than hang.
fn until(done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it did not happen");
}

#[test]
fn requests_that_come_while_one_is_in_flight_form_the_next() {
    let combiner = &Numbers::default();
    let sent = &Mutex::new(Vec::new());
    let (go, gate) = unbounded::<()>();
    std::thread::scope(|scope| {
        let ask = |n: u64, gate: Option<Receiver<()>>| {
            scope.spawn(move || {
                combiner.ask(1, vec![n], merge, |all| {
                    if let Some(gate) = gate {
                        gate.recv().unwrap();
                    }
                    let sum = all.iter().sum();
                    sent.lock().push(all.len());
                    sum
                })
            })
        };
        let first = ask(1, Some(gate));
        until(|| combiner.waiting(&1) == Some(0));
        let mut others = Vec::new();
        for n in 1..=5 {
            others.push(ask(10 * n, None));
            until(|| combiner.waiting(&1) == Some(n as usize));
        }
        // Another key does not wait.
        assert_eq!(combiner.ask(2, vec![3], merge, |all| all[0]), Ok(3));
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(1));
        for other in others {
            assert_eq!(other.join().unwrap(), Ok(150));
        }
    });
    assert_eq!(*sent.lock(), [1, 5]);
    assert_eq!(combiner.waiting(&1), None);
    assert!(combiner.in_flight.lock().is_empty());
}

#[test]
fn waiters_hear_of_a_panic_and_the_next_request_goes_on() {
    let combiner = &Numbers::default();
    let (go, gate) = unbounded::<()>();
    std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            combiner.ask(1, vec![], merge, |_| {
                gate.recv().unwrap();
                panic!("the first fails")
            })
        });
        until(|| combiner.waiting(&1) == Some(0));
        let lead = scope.spawn(|| combiner.ask(1, vec![1], merge, |_| panic!("the second too")));
        until(|| combiner.waiting(&1) == Some(1));
        let joined = scope.spawn(|| combiner.ask(1, vec![2], merge, |all| all[0]));
        until(|| combiner.waiting(&1) == Some(2));
        // One whose merging panics spoils nothing.
        let spoilt = scope.spawn(|| combiner.ask(1, vec![2], |_, _| panic!("no"), |_| 0));
        assert!(spoilt.join().is_err());
        go.send(()).unwrap();
        assert!(first.join().is_err());
        assert!(lead.join().is_err());
        assert_eq!(joined.join().unwrap(), Err(SenderPanicked));
    });
    assert_eq!(combiner.ask(1, vec![7], merge, |all| all[0]), Ok(7));
}

/// What happens next in a history.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A request comes.
    Ask,
    /// The state changes.
    Write,
    /// The request in flight reads the state and ends.
    Finish,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => Just(Event::Ask),
        1 => Just(Event::Write),
        2 => Just(Event::Finish),
    ];
    proptest::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Every history of arrivals, changes and ends: no answer is older than its request's arrival, none is from the future,
    /// and there are as many requests sent as the model says.
    #[test]
    fn no_answer_is_older_than_its_request(events in events()) {
        let combiner = Numbers::default();
        let state = AtomicU64::new(0);
        let sent = AtomicUsize::new(0);
        let (go, gate) = unbounded::<()>();
        let (begun, begins): (Sender<()>, Receiver<()>) = unbounded();
        let mut expected = 0;
        std::thread::scope(|scope| {
            let (combiner, state, sent) = (&combiner, &state, &sent);
            let (mut in_flight, mut waiting) = (false, 0);
            let mut asked = Vec::new();
            let mut finish = |in_flight: &mut bool, waiting: &mut usize| {
                go.send(()).unwrap();
                *in_flight = *waiting > 0;
                *waiting = 0;
                if *in_flight {
                    expected += 1;
                    begins.recv().unwrap();
                } else {
                    until(|| combiner.waiting(&0).is_none());
                }
            };
            for event in events {
                match event {
                    Event::Ask => {
                        let (gate, begun) = (gate.clone(), begun.clone());
                        let came = state.load(Ordering::SeqCst);
                        asked.push(scope.spawn(move || {
                            let answer = combiner.ask(0, vec![], merge, |_| {
                                sent.fetch_add(1, Ordering::SeqCst);
                                let read = state.load(Ordering::SeqCst);
                                begun.send(()).unwrap();
                                // The oldest state it may show is that of its beginning.
                                gate.recv().unwrap();
                                read
                            });
                            (came, answer.unwrap(), state.load(Ordering::SeqCst))
                        }));
                        if in_flight {
                            waiting += 1;
                            until(|| combiner.waiting(&0) == Some(waiting));
                        } else {
                            in_flight = true;
                            begins.recv().unwrap();
                        }
                    }
                    Event::Write => {
                        state.fetch_add(1, Ordering::SeqCst);
                    }
                    Event::Finish if in_flight => finish(&mut in_flight, &mut waiting),
                    Event::Finish => {}
                }
            }
            while in_flight {
                finish(&mut in_flight, &mut waiting);
            }
            for asked in asked {
                let (came, answer, left) = asked.join().unwrap();
                assert!(came <= answer && answer <= left, "{came} {answer} {left}");
            }
        });
        prop_assert!(sent.load(Ordering::SeqCst) >= expected);
        prop_assert!(combiner.in_flight.lock().is_empty());
    }
}

/// Free-running threads, against a counter that only grows.
#[test]
fn no_answer_is_older_than_its_request_at_full_speed() {
    let combiner = &Numbers::default();
    let (state, sent) = (&AtomicU64::new(0), &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                for _ in 0..500 {
                    let came = state.fetch_add(1, Ordering::SeqCst) + 1;
                    let answer = combiner.ask(0, vec![1], merge, |all| {
                        sent.fetch_add(all.len(), Ordering::SeqCst);
                        state.load(Ordering::SeqCst)
                    });
                    assert!(answer.unwrap() >= came);
                }
            });
        }
    });
    assert_eq!(sent.load(Ordering::SeqCst), 8 * 500);
}
