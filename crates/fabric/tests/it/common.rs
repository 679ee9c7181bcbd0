//! What the tests of several transports share.

use forebay_fabric::session::Identity;
use forebay_fabric::{Fabric, Rank, local};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything healthy takes on the slowest machine.
pub const LONG: Duration = Duration::from_secs(60);
/// For calls that nobody will answer.
pub const SHORT: Duration = Duration::from_millis(50);

/// Who a member of a service of `members` is.
pub fn identity(member: Rank, members: u32) -> Identity {
    Identity {
        version: 1,
        secret: b"the job's secret".to_vec(),
        member,
        members,
        service: [5; 16],
    }
}

/// The ends of a new fabric of `n` ranks, which are threads of this process.
pub fn local_ends(n: u32) -> Vec<Arc<dyn Fabric>> {
    let ends = local::fabric(n).into_iter();
    ends.map(|end| end as Arc<dyn Fabric>).collect()
}
