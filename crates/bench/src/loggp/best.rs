//! Lower bounds of a reduction to one server and a broadcast from it: the best tree for each, with any number of messages at the
//! root (Karp, Sahay, Santos, Schauser: Optimal broadcast and summation in the LogP model, SPAA 1993).

use super::{Network, OperationOutcome};
use forebay_fabric::ring::{NetworkCost, arrival_times};

/// The best times for every number of servers up to one.
pub struct OptimalTreeTimes {
    up: Vec<u64>,
    down: Vec<u64>,
    hop: u64,
    gap: u64,
}

impl OptimalTreeTimes {
    /// The times for every number of servers up to `last`.
    pub fn new(network: &Network, last: u32) -> OptimalTreeTimes {
        let (hop, gap) = (network.hop() + network.work, network.between_receptions());
        // A reduction is a broadcast backwards.
        OptimalTreeTimes {
            up: arrival_times(last, fit(hop, gap), u32::MAX),
            down: arrival_times(last, fit(network.hop(), network.between_sends()), u32::MAX),
            hop,
            gap,
        }
    }

    /// What `n` servers take; no more than `last`.
    pub fn outcome(&self, n: u32) -> OperationOutcome {
        let at = n.max(1) as usize - 1;
        let gathered = self.up[at];
        // The root's receptions end a gap apart, the first a hop after the start.
        let root_messages = match gathered.checked_sub(self.hop) {
            Some(rest) if n > 1 => rest / self.gap + 1,
            _ => 0,
        };
        OperationOutcome {
            gathered,
            finished: gathered + self.down[at],
            root_messages: root_messages.min(u64::from(n) - 1),
        }
    }
}

fn fit(hop: u64, gap: u64) -> NetworkCost {
    let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    NetworkCost {
        hop: short(hop),
        gap: short(gap),
    }
}
