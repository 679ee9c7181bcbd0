//! Sizes that need gigabytes of memory and some seconds.

use crate::common::LONG;
use crate::conformance::{Check, ClosureHandler, RankContext};
use forebay_fabric::Message;
use forebay_testkit::random::seeded_bytes;

/// Apart from the others, for they need that memory.
pub const CHECKS: &[Check] = &[Check {
    name: "sizes_to_a_gib",
    ranks: 2,
    run: sizes_to_a_gib,
}];

/// Rank 0 sends rank 1 up to 1 GiB, in one buffer and in several, and gets it back as sent.
fn sizes_to_a_gib(context: &RankContext) {
    const GIB: usize = 1 << 30;
    context.end.serve(ClosureHandler::echo());
    context.wait_for_all();
    if context.rank() == 0 {
        let mib = seeded_bytes(3, 1 << 20);
        let whole = bytes::Bytes::from(mib.repeat(GIB >> 20));
        let several = vec![
            whole.slice(..GIB / 2 + 1),
            whole.slice(..0),
            whole.slice(7..GIB / 3),
        ];
        for bulk in [vec![whole.slice(..GIB / 4 - 1)], several, vec![whole]] {
            let message = Message {
                bulk,
                ..Message::new("large")
            };
            let reply = context.end.call(1, message.clone(), LONG);
            assert!(reply == Ok(message), "a large message did not come back");
        }
    }
    context.wait_for_all();
}
