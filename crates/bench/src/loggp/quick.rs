//! The same times as the simulator's, server by server instead of event by event: below a server nothing depends on what is
//! above it, and on the way down the other way round. For the thousands of sizes of one case; a test compares the two.

use super::{Network, OperationOutcome};
use forebay_fabric::ring::Tree;

/// A server after it has sent its request: when its processor and its card are free.
#[derive(Clone, Copy, Default)]
struct SimulatedServer {
    processor: u64,
    sending: u64,
    receiving: u64,
    /// When its request, then its answer, arrives at the other's card.
    arrival: u64,
}

/// A collective of all servers of `tree`, its root at position 0.
pub fn quick(net: &Network, tree: &Tree) -> OperationOutcome {
    let n = tree.size();
    let mut servers = vec![SimulatedServer::default(); n as usize];
    // The position at distance d from position 0; parents are nearer than their children.
    let at = |d: u32| (n - d) % n;
    let mut arrivals = Vec::new();
    let mut root_messages = 0;
    for d in (0..n).rev() {
        arrivals.clear();
        arrivals.extend(tree.children(at(d), 0).map(|c| servers[c as usize].arrival));
        arrivals.sort_unstable();
        let server = &mut servers[at(d) as usize];
        for arrival in &arrivals {
            receive(net, server, *arrival, net.work);
        }
        if d > 0 {
            server.arrival = send(net, server);
        } else {
            root_messages = arrivals.len() as u64;
        }
    }
    let gathered = servers[0].processor;
    let mut finished = gathered;
    for d in 0..n {
        let mut server = servers[at(d) as usize];
        if d > 0 {
            let arrival = server.arrival;
            receive(net, &mut server, arrival, 0);
            finished = finished.max(server.processor);
        }
        for child in tree.children(at(d), 0) {
            servers[child as usize].arrival = send(net, &mut server);
        }
    }
    OperationOutcome {
        gathered,
        finished,
        root_messages,
    }
}

fn receive(net: &Network, server: &mut SimulatedServer, arrival: u64, work: u64) {
    let start = arrival.max(server.processor).max(server.receiving);
    server.processor = start + net.receive + work;
    server.receiving = start + net.gap + net.bytes();
}

/// As soon as it can; returns the arrival.
fn send(net: &Network, server: &mut SimulatedServer) -> u64 {
    let start = server.processor.max(server.sending);
    server.processor = start + net.send;
    server.sending = start + net.gap + net.bytes();
    start + net.send + net.bytes() + net.latency
}
