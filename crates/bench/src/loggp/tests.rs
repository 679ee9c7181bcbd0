//! A simulator that goes from event to event (a message arrives at a server, the server has received it), and collectives
//! compared with it.

use super::network::SimulatedServer;
use super::*;
use clap::Parser as _;
use forebay_fabric::ring::{
    NetworkCost, Reduction, ReductionError, ReductionStep, Tree, TreeShape,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MessageEvent {
    /// At the card of `to`.
    Arrives { to: u32, from: u32, up: bool },
    /// The processor of `to` has it.
    Received { to: u32, from: u32, up: bool },
}

/// The servers, and what is on its way between them.
struct Cluster {
    network: Network,
    servers: Vec<SimulatedServer>,
    /// By time; at the same time, in the order in which they were caused.
    events: BinaryHeap<Reverse<(u64, u64, MessageEvent)>>,
    caused: u64,
}

impl Cluster {
    fn new(network: Network, servers: u32) -> Cluster {
        Cluster {
            network,
            servers: vec![SimulatedServer::default(); servers as usize],
            events: BinaryHeap::new(),
            caused: 0,
        }
    }

    fn at(&mut self, time: u64, event: MessageEvent) {
        self.caused += 1;
        self.events.push(Reverse((time, self.caused, event)));
    }

    fn send(&mut self, now: u64, from: u32, to: u32, up: bool) {
        let arrival = self.servers[from as usize].send(&self.network, now);
        self.at(arrival, MessageEvent::Arrives { to, from, up });
    }

    /// The processor of `to` takes what has arrived; requests are work too.
    fn receive(&mut self, now: u64, to: u32, from: u32, up: bool) {
        let work = if up { self.network.work } else { 0 };
        let done = self.servers[to as usize].receive(&self.network, now, work);
        self.at(done, MessageEvent::Received { to, from, up });
    }
}

/// A collective of `n` servers that all begin at 0: up the tree of `shape`, and down again.
fn simulate(network: &Network, shape: TreeShape, n: u32) -> OperationOutcome {
    let tree = Tree::new(shape, n);
    let reduction = |rank| Reduction::new(tree.parent(rank, 0), tree.children(rank, 0));
    let mut run = CollectiveRun {
        cluster: Cluster::new(*network, n),
        ranks: (0..n).map(reduction).collect(),
        answered: vec![false; n as usize],
        outcome: OperationOutcome {
            gathered: 0,
            finished: 0,
            root_messages: 0,
        },
    };
    for rank in 0..n {
        let step = run.ranks[rank as usize].own(1, |a, b| a + b);
        run.act(step, 0, rank);
    }
    while let Some(Reverse((now, _, event))) = run.cluster.events.pop() {
        match event {
            MessageEvent::Arrives { to, from, up } => run.cluster.receive(now, to, from, up),
            MessageEvent::Received { to, from, up: true } => {
                run.outcome.root_messages += u64::from(to == 0);
                let step = run.ranks[to as usize].child(from, 1, |a, b| a + b);
                run.act(step, now, to);
            }
            MessageEvent::Received { to, up: false, .. } => run.answer(now, to),
        }
    }
    assert!(
        run.answered.iter().all(|a| *a),
        "a server without an answer"
    );
    run.outcome
}

/// One collective under way.
struct CollectiveRun {
    cluster: Cluster,
    ranks: Vec<Reduction<u64>>,
    answered: Vec<bool>,
    outcome: OperationOutcome,
}

impl CollectiveRun {
    fn act(&mut self, step: Result<ReductionStep<u64>, ReductionError>, now: u64, rank: u32) {
        match step {
            Ok(ReductionStep::Wait) => {}
            Ok(ReductionStep::Up(parent, _)) => self.cluster.send(now, rank, parent, true),
            Ok(ReductionStep::Execute(_)) => {
                self.outcome.gathered = now;
                self.answer(now, rank);
            }
            Err(refused) => unreachable!("the simulated network doubles nothing: {refused}"),
        }
    }

    /// `rank` has the answer, and hands it on.
    fn answer(&mut self, now: u64, rank: u32) {
        self.outcome.finished = self.outcome.finished.max(now);
        let again = std::mem::replace(&mut self.answered[rank as usize], true);
        assert!(!again, "answered twice");
        for child in self.ranks[rank as usize].end() {
            self.cluster.send(now, rank, child, false);
        }
    }
}

impl Default for Network {
    /// That of the command line.
    fn default() -> Network {
        #[derive(clap::Parser)]
        struct DefaultArgs {
            #[command(flatten)]
            network: Network,
        }
        DefaultArgs::parse_from(["ring"]).network
    }
}

/// Round numbers: a hop of 10, of which 2 to send and 3 to receive; 4 between messages.
const ROUND: Network = Network {
    latency: 5,
    send: 2,
    receive: 3,
    gap: 4,
    byte: 0,
    size: 1,
    work: 0,
};

fn fit(network: &Network) -> TreeShape {
    TreeShape::Fitted(NetworkCost {
        hop: network.hop() as u32,
        gap: network.between_receptions().max(network.between_sends()) as u32,
    })
}

#[test]
fn two_servers_take_a_round_trip() {
    let outcome = collective(&ROUND, TreeShape::Ring, 2);
    assert_eq!((outcome.gathered, outcome.finished), (10, 20));
    let long = Network {
        size: 1001,
        byte: 2000,
        ..ROUND
    };
    assert_eq!(
        collective(&long, TreeShape::Ring, 2).finished,
        20 + 2 * 2000
    );
}

#[test]
fn direct_is_what_one_can_work_out() {
    // Receptions 4 apart, the last of 7 ends at 10 + 6 * 4; sends 4 apart, and a hop.
    let outcome = collective(&ROUND, TreeShape::Direct, 8);
    assert_eq!((outcome.gathered, outcome.finished), (34, 34 + 24 + 10));
    assert_eq!(outcome.root_messages, 7);
}

#[test]
fn the_ring_of_a_power_of_two_is_that_many_hops() {
    let outcome = collective(&ROUND, TreeShape::Ring, 1024);
    assert_eq!((outcome.gathered, outcome.finished), (100, 200));
    assert_eq!(outcome.root_messages, 10);
}

#[test]
fn one_by_one_the_server_is_the_bottleneck() {
    let outcome = independent(&ROUND, 100);
    // The first arrives at 7; each costs the server 5 of processor time; the last answer has 5 + 3 to go.
    assert_eq!(outcome.finished, 7 + 500 + 8);
    assert_eq!(outcome.root_messages, 100);
}

/// The formula of the best tree is what the simulator finds when it runs that tree.
#[test]
fn the_best_tree_takes_what_the_formula_says() {
    for network in [ROUND, Network::default(), Network { work: 700, ..ROUND }] {
        for n in [2, 3, 7, 64, 100, 1000] {
            let best = OptimalTreeTimes::new(&network, n).outcome(n);
            let up = NetworkCost {
                hop: (network.hop() + network.work) as u32,
                gap: network.between_receptions() as u32,
            };
            let down = NetworkCost {
                hop: network.hop() as u32,
                gap: network.between_sends() as u32,
            };
            let gathered = collective(&network, TreeShape::Best(up), n).gathered;
            let there = collective(&network, TreeShape::Best(down), n);
            assert_eq!(gathered, best.gathered, "{n} {network:?}");
            assert_eq!(
                there.finished - there.gathered,
                best.finished - best.gathered,
                "{n} {network:?}"
            );
        }
    }
}

/// Nothing beats the best tree.
#[test]
fn no_shape_is_faster_than_the_best_tree() {
    let free = Network { gap: 1, ..ROUND };
    for network in [ROUND, free, Network::default()] {
        for n in (2..300).chain([1000, 1024]) {
            let best = OptimalTreeTimes::new(&network, n).outcome(n).finished;
            for shape in [TreeShape::Ring, TreeShape::Direct, fit(&network)] {
                let found = collective(&network, shape, n).finished;
                assert!(found >= best, "{n} {shape:?}: {found} < {best}");
            }
        }
    }
}

/// The simulated ranks run the state machine that runs over real transports; server by server it takes the same times.
#[test]
fn collectives_take_what_the_simulator_finds() {
    let odd = Network {
        work: 700,
        gap: 1,
        ..ROUND
    };
    for network in [ROUND, odd, Network::default()] {
        for n in (1..200).chain([777, 1024]) {
            for shape in [TreeShape::Ring, TreeShape::Direct, fit(&network)] {
                let found = collective(&network, shape, n);
                assert_eq!(found, simulate(&network, shape, n), "{n} {shape:?}");
            }
        }
    }
}
