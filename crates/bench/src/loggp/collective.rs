//! The times of a collective, computed server by server: on the way up, times at a server depend only on servers below it; on
//! the way down, only on those above it.
//!
//! # The model
//! - A processor does one thing at a time: `o` to send, `o` to receive, `work` to combine.
//! - Two sends of a server start `g + (k - 1) G` apart at least; so do two receptions.
//! - A message of `k` bytes is at its receiver `(k - 1) G + L` after its `o` of sending.
//! - A server receives in the order of arrival, as soon as it can.
//! - `P` is the number of servers; the network's capacity is not limited beyond the gaps.

use super::network::{Network, SimulatedServer};
use forebay_fabric::ring::{Tree, TreeShape};

/// What one simulated operation took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationOutcome {
    /// Nanoseconds until the root had everything.
    pub gathered: u64,
    /// Nanoseconds until the last server had its answer.
    pub finished: u64,
    /// Messages that the root received.
    pub root_messages: u64,
}

/// A collective of `n` servers that all begin at 0: up the tree of `shape` to its root at position 0, and down again.
pub fn collective(net: &Network, shape: TreeShape, n: u32) -> OperationOutcome {
    let tree = Tree::new(shape, n);
    let mut servers = vec![SimulatedServer::default(); n as usize];
    // When each one's request, then its answer, arrives at the other's card.
    let mut arrival = vec![0; n as usize];
    // The position at distance d from position 0; parents are nearer than their children.
    let at = |d: u32| (n - d) % n;
    let mut requests = Vec::new();
    let mut root_messages = 0;
    for d in (0..n).rev() {
        requests.clear();
        requests.extend(tree.children(at(d), 0).map(|c| arrival[c as usize]));
        requests.sort_unstable();
        let server = &mut servers[at(d) as usize];
        for request in &requests {
            server.receive(net, *request, net.work);
        }
        if d > 0 {
            arrival[at(d) as usize] = server.send(net, 0);
        } else {
            root_messages = requests.len() as u64;
        }
    }
    let gathered = servers[0].processor;
    let mut finished = gathered;
    for d in 0..n {
        let server = &mut servers[at(d) as usize];
        if d > 0 {
            finished = finished.max(server.receive(net, arrival[at(d) as usize], 0));
        }
        for child in tree.children(at(d), 0) {
            arrival[child as usize] = server.send(net, 0);
        }
    }
    OperationOutcome {
        gathered,
        finished,
        root_messages,
    }
}

/// `clients` that each ask one server by themselves, all at 0, as MDHIM's clients do: it receives, carries out and answers one
/// after the other.
pub fn independent(network: &Network, clients: u32) -> OperationOutcome {
    let arrival = network.send + network.bytes() + network.latency;
    let mut server = SimulatedServer::default();
    let mut outcome = OperationOutcome {
        gathered: 0,
        finished: 0,
        root_messages: clients.into(),
    };
    for _ in 0..clients {
        outcome.gathered = server.receive(network, arrival, network.work);
        outcome.finished = server.send(network, outcome.gathered) + network.receive;
    }
    outcome
}
