//! How much room the service has.
use super::Delegate;
use crate::{Result, SpaceTotals};
use forebay_proto::data::GetUsage;

impl Delegate {
    /// Used: what all members that answer store. Free: what this node may still store, because what is written here stays
    /// here. The total is both, so it is not the same on every node. A dead member's data is left out.
    ///
    /// # Errors
    /// When this node's own data plane does not answer.
    pub fn statfs(&self) -> Result<SpaceTotals> {
        let _at = self.counters.other();
        let (mut used, mut free) = (0u64, 0);
        for member in 0..self.node.peers.members() {
            match self.node.peers.call(member, GetUsage) {
                Ok(usage) => {
                    used = used.saturating_add(usage.live);
                    if member == self.node.peers.member() {
                        free = usage.free;
                    }
                }
                Err(e) if member != self.node.peers.member() => {
                    tracing::debug!(member, error = %e, "no answer for statfs")
                }
                Err(e) => return Err(e),
            }
        }
        Ok(SpaceTotals {
            total: used.saturating_add(free),
            free,
            files: 0,
        })
    }
}
