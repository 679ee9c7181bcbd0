//! Calls of teams over several servers in memory: who is counted, who joins, and what a client that stays away ends.
use super::*;
use forebay_fabric::ring::CollectiveFailure;
use forebay_fabric::ring::MemoryBounds;
use forebay_fabric::{Fabric, Handler, local};

const LONG: Duration = Duration::from_secs(60);

fn nodes(n: u32, deadline: Duration) -> Vec<Arc<Teams>> {
    let make = |end: Arc<local::LocalFabric>| {
        let me = end.rank() as Member;
        let collectives = Arc::new(Collectives::new(end.clone(), MemoryBounds::default()));
        end.serve(collectives.clone() as Arc<dyn Handler>);
        Teams::new(collectives, me, deadline)
    };
    local::fabric(n).into_iter().map(make).collect()
}

fn plan(number: u32, members: u16, here: u32) -> TeamSpec {
    TeamSpec {
        number,
        members: (0..members).collect(),
        here,
    }
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    vec![a[0] + b[0]].into()
}

/// Adds ones; twice that is the answer.
fn count(member: &mut TeamMembership, root: Member) -> Result<u8> {
    let twice = |sum: Bytes| Bytes::from(vec![2 * sum[0]]);
    member
        .call(root, Bytes::from_static(&[1]), &add, twice)
        .map(|answer| answer[0])
}

fn failure(outcome: Result<u8>) -> CollectiveFailure {
    match outcome {
        Err(Error::Team { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_clients_count_once_and_the_root_hears_from_few() {
    let nodes = nodes(5, LONG);
    let sums = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for node in &nodes {
            for _ in 0..=node.me {
                let mut member = node.join(&plan(3, 5, u32::from(node.me) + 1)).unwrap();
                threads.push(scope.spawn(move || {
                    (0..20u16)
                        .map(|k| count(&mut member, k % 5).unwrap())
                        .collect::<Vec<_>>()
                }));
            }
        }
        let join = |t: std::thread::ScopedJoinHandle<'_, Vec<u8>>| t.join().unwrap();
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    assert_eq!(sums, vec![vec![30; 20]; 15]);
    for node in &nodes {
        // Once for each call, as the root of four of the twenty it heard from three nodes.
        assert_eq!(
            node.counts(),
            TeamCounts {
                calls: 20,
                failed: 0
            }
        );
        assert!(node.collectives.counts().values >= 4 * 3);
    }
}

#[test]
fn places_are_given_out_once_and_again_when_left() {
    let node = nodes(1, LONG).remove(0);
    let a = node.join(&plan(3, 1, 2)).unwrap();
    let b = node.join(&plan(3, 1, 2)).unwrap();
    let refused = |plan: &TeamSpec| match node.join(plan) {
        Err(Error::Refused(why)) => why,
        _ => panic!("a client too many"),
    };
    let at_once = |plan: &TeamSpec| node.join_within(plan, Duration::ZERO).err().unwrap();
    let taken = at_once(&plan(3, 1, 2));
    assert_eq!(taken.errno(), Errno::BUSY);
    let other = at_once(&plan(3, 1, 3));
    assert_eq!(other.errno(), Errno::BUSY);
    assert!(other.to_string().contains("another team's"), "{other}");
    assert!(refused(&plan(MAX_NUMBER + 1, 1, 1)).contains("highest"));
    assert!(refused(&plan(4, 0, 1)).contains("no client"));
    assert!(refused(&plan(4, 1, 0)).contains("no client"));
    let twice = TeamSpec {
        members: vec![0, 0],
        ..plan(4, 1, 1)
    };
    assert!(refused(&twice).contains("twice"));
    drop((a, b));
    // Another team may have the number now; it goes on after the calls of the last.
    let mut only = node.join(&plan(3, 1, 1)).unwrap();
    assert_eq!(count(&mut only, 0).unwrap(), 2);
    drop(only);
    assert_eq!(node.join(&plan(3, 1, 2)).unwrap().round(), 1);
}

#[test]
fn who_finds_all_places_taken_gets_the_first_that_is_left() {
    let node = nodes(1, LONG).remove(0);
    let taken = node.join(&plan(3, 1, 1)).unwrap();
    let node = &node;
    std::thread::scope(|scope| {
        // Of the same team, and of another with its number: one after the other.
        for here in [1, 2] {
            scope.spawn(move || drop(node.join(&plan(3, 1, here)).unwrap()));
        }
        drop(taken);
    });
}

#[test]
fn a_number_goes_on_behind_its_last_call_however_many_teams_came_since() {
    let node = nodes(1, LONG).remove(0);
    let mut member = node.join(&plan(0, 1, 1)).unwrap();
    for _ in 0..3 {
        assert_eq!(count(&mut member, 0).unwrap(), 2);
    }
    drop(member);
    for number in 1..=2 * MAX_EMPTY_TEAMS as u32 {
        drop(node.join(&plan(number, 1, 1)).unwrap());
    }
    assert!(node.table.lock().teams.len() <= MAX_EMPTY_TEAMS);
    // Its next call is none that someone has abandoned before.
    let mut member = node.join(&plan(0, 1, 1)).unwrap();
    assert_eq!(member.round(), 3);
    assert_eq!(count(&mut member, 0).unwrap(), 2);
}

#[test]
fn a_client_that_stays_away_fails_its_call_for_all_and_the_next_works() {
    let deadline = Duration::from_secs(1);
    let nodes = nodes(3, deadline);
    let here = 2;
    let members = || -> Vec<TeamMembership> {
        let both = |node: &Arc<Teams>| [0, 1].map(|_| node.join(&plan(1, 3, here)).unwrap());
        nodes.iter().flat_map(both).collect()
    };
    let met = &std::sync::Barrier::new(6);
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(members())
            .map(|(place, mut member)| {
                scope.spawn(move || {
                    // The last client of the second node comes when all others have given up.
                    if place == 3 {
                        met.wait();
                    }
                    let first = failure(count(&mut member, 2));
                    if place != 3 {
                        met.wait();
                    }
                    met.wait();
                    (first, count(&mut member, 2).unwrap())
                })
            })
            .collect();
        let join =
            |t: std::thread::ScopedJoinHandle<'_, (CollectiveFailure, u8)>| t.join().unwrap();
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    for (first, second) in outcomes {
        assert!(!first.may_have_happened(), "{first}");
        assert_eq!(second, 12);
    }
    for node in &nodes {
        assert_eq!(
            node.counts(),
            TeamCounts {
                calls: 2,
                failed: 1
            }
        );
    }
}

#[test]
fn a_panic_of_the_one_that_asks_is_heard_by_its_node() {
    let node = nodes(1, LONG).remove(0);
    let members = [0, 1].map(|_| node.join(&plan(1, 1, 2)).unwrap());
    std::thread::scope(|scope| {
        let threads = members.map(|mut member| {
            scope.spawn(move || {
                let boom = |_| panic!("on purpose");
                member
                    .call(0, Bytes::from_static(&[1]), &add, boom)
                    .map(|b| b[0])
            })
        });
        let ends = threads.map(|t| t.join());
        let heard: Vec<_> = ends.into_iter().flatten().collect();
        assert_eq!(heard.len(), 1);
        for outcome in heard {
            assert_eq!(failure(outcome), CollectiveFailure::Panicked(0));
        }
    });
}
