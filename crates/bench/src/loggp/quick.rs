//! Computes the simulator's times server by server instead of event by event: on the way up, times at a server depend only on
//! servers below it; on the way down, only on those above it. For the thousands of sizes of one case; a test compares the two.

use super::OperationOutcome;
use super::network::{Network, SimulatedServer};
use forebay_fabric::ring::Tree;

/// A collective of all servers of `tree`, its root at position 0.
pub fn quick(net: &Network, tree: &Tree) -> OperationOutcome {
    let n = tree.size();
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
