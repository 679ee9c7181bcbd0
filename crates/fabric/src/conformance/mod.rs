//! What every transport must do, as checks over its ends: a transport's tests call [`all`].
//!
//! Each check gets the ends of a fresh fabric, by rank, all in this process; it sets their handlers, and closes them
//! when it is done. A check that fails panics: this module is a test that lives where every transport can reach it.
//! No check depends on how fast the machine is: waits that must end are long, waits that must run out are short.

mod failures;
mod handlers;
mod messages;
mod requests;

pub use failures::{
    a_closed_end_refuses, a_closed_peer_is_dead, a_deadline_ends_a_call, a_dropped_replier_is_dead,
    closing_ends_calls_in_flight, no_such_rank,
};
pub use handlers::Functions;
pub use messages::{messages_and_bulk_arrive_whole, messages_of_a_sender_keep_their_order};
pub use requests::{
    a_rank_calls_itself, every_rank_answers_every_rank, late_replies_arrive,
    many_buffers_keep_their_borders, many_callers_at_once, nested_calls_work,
    sizes_from_nothing_to_many_mib,
};

use crate::Fabric;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any healthy call takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);
/// For calls that nobody will answer.
const SHORT: Duration = Duration::from_millis(50);

/// The ends of a fabric.
pub type Ends = [Arc<dyn Fabric>];

/// One check, and its name for the report.
pub type Check = (&'static str, fn(&Ends));

/// Every check. Each works with 2 ends or more.
pub const CHECKS: &[Check] = &[
    (
        "every_rank_answers_every_rank",
        every_rank_answers_every_rank,
    ),
    ("a_rank_calls_itself", a_rank_calls_itself),
    (
        "sizes_from_nothing_to_many_mib",
        sizes_from_nothing_to_many_mib,
    ),
    (
        "many_buffers_keep_their_borders",
        many_buffers_keep_their_borders,
    ),
    ("many_callers_at_once", many_callers_at_once),
    ("nested_calls_work", nested_calls_work),
    ("late_replies_arrive", late_replies_arrive),
    (
        "messages_of_a_sender_keep_their_order",
        messages_of_a_sender_keep_their_order,
    ),
    (
        "messages_and_bulk_arrive_whole",
        messages_and_bulk_arrive_whole,
    ),
    ("a_dropped_replier_is_dead", a_dropped_replier_is_dead),
    ("a_deadline_ends_a_call", a_deadline_ends_a_call),
    ("a_closed_peer_is_dead", a_closed_peer_is_dead),
    ("a_closed_end_refuses", a_closed_end_refuses),
    ("closing_ends_calls_in_flight", closing_ends_calls_in_flight),
    ("no_such_rank", no_such_rank),
];

/// Runs every check on fabrics of 2 and 5 ranks from `make`.
///
/// # Panics
/// When the transport fails one; the name was printed before.
pub fn all(mut make: impl FnMut(u32) -> Vec<Arc<dyn Fabric>>) {
    for size in [2, 5] {
        for (name, check) in CHECKS {
            println!("conformance: {name}, {size} ranks");
            let ends = make(size);
            assert_eq!(ends.len(), size as usize);
            check(&ends);
            for end in &ends {
                end.close();
            }
        }
    }
}
