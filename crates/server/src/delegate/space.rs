//! How much room the service has.
use super::{Delegate, expect_reply};
use crate::data::proto::{DataReply, DataRequest};
use crate::{Result, Space};

impl Delegate {
    /// Totals over all members that answer. A dead member's room is left out, as nothing can be stored there.
    ///
    /// # Errors
    /// When this node's own data plane does not answer.
    pub fn statfs(&self) -> Result<Space> {
        let mut spaces = Vec::new();
        for member in 0..self.members() {
            let answer = self
                .node
                .peers
                .data(member, DataRequest::Space)
                .map(|(reply, _)| reply);
            let space = expect_reply!(member, answer, DataReply::Space { live, total, free } => (live, total, free));
            match space {
                Ok(space) => spaces.push(space),
                Err(e) if member != self.member() => {
                    tracing::debug!(member, error = %e, "no answer for statfs")
                }
                Err(e) => return Err(e),
            }
        }
        let live: u64 = spaces.iter().map(|s| s.0).sum();
        // Without a quota all members of this process fill the same disk.
        let space = match self.shared_disk {
            true => {
                let free = spaces.iter().map(|s| s.2).min().unwrap_or(0);
                Space {
                    total: live + free,
                    free,
                    files: 0,
                }
            }
            false => Space {
                total: spaces.iter().map(|s| s.1).sum(),
                free: spaces.iter().map(|s| s.2).sum(),
                files: 0,
            },
        };
        Ok(space)
    }
}
