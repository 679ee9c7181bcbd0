//! The timeouts and intervals of a session.

use std::time::Duration;

/// The times that a session keeps to. They are for up to 64 processes; for more they grow in proportion, as each
/// process listens to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A link that was silent for this long carries a heartbeat. At most a third of `limit` makes sense.
    pub heartbeat: Duration,
    /// A peer that was silent for this long is dead.
    pub limit: Duration,
    /// How long a process waits for the others to introduce themselves.
    pub join: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Duration::from_secs(1),
            limit: Duration::from_secs(10),
            join: Duration::from_secs(120),
        }
    }
}

impl Timing {
    pub(super) fn scaled(self, size: u32) -> Timing {
        let factor = size.div_ceil(64).max(1);
        Timing {
            heartbeat: self.heartbeat * factor,
            limit: self.limit * factor,
            join: self.join * factor,
        }
    }
}
