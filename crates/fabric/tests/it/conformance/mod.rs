//! What every transport must do, as checks that all ranks run at once: a transport's tests call [`all`] when its ranks
//! are threads of one process, and each rank calls [`each`] when they are processes.
//!
//! A check sees one rank's end and a [`RankBarrier`] where the ranks wait for each other; nothing else is shared, so the same
//! check serves threads and processes. Each check gets a fresh fabric, sets this rank's handler, and is over when all
//! ranks have waited for each other at its end. A check that fails panics. No check depends on how fast the machine is: waits that must end are long, waits that must run out are
//! short.

mod barrier;
mod failures;
mod handlers;
mod messages;
mod requests;
mod ring;

pub use barrier::{FabricBarrier, RankBarrier, ThreadBarrier};
pub use handlers::ClosureHandler;

use crate::common::{LONG, SHORT};
use forebay_fabric::{Fabric, Rank};
use std::sync::Arc;

/// One rank's part in a check.
pub struct RankContext<'a> {
    /// This rank's end.
    pub end: &'a Arc<dyn Fabric>,
    /// Where the ranks wait for each other.
    pub barrier: &'a dyn RankBarrier,
}

impl RankContext<'_> {
    pub fn rank(&self) -> Rank {
        self.end.rank()
    }

    fn size(&self) -> u32 {
        self.end.size()
    }

    /// The next rank; this one itself if it is alone. Each rank is the neighbour of one.
    fn neighbour(&self) -> Rank {
        (self.rank() + 1) % self.size()
    }

    pub fn wait_for_all(&self) {
        self.barrier.wait();
    }
}

/// One check.
pub struct Check {
    /// Its name, for the report.
    pub name: &'static str,
    /// The fewest ranks it works with.
    pub ranks: u32,
    /// One rank's part. Between its last wait for the others and its end it does not use the fabric.
    pub run: fn(&RankContext),
}

macro_rules! checks {
    ($($ranks:literal $module:ident::$name:ident),* $(,)?) => {
        &[$(Check { name: stringify!($name), ranks: $ranks, run: $module::$name }),*]
    };
}

/// Every check.
pub const CHECKS: &[Check] = checks![
    1 requests::every_rank_answers_every_rank,
    1 requests::a_rank_calls_itself,
    1 requests::sizes_from_nothing_to_many_mib,
    1 requests::many_buffers_keep_their_borders,
    1 requests::many_callers_at_once,
    1 requests::nested_calls_work,
    1 requests::late_replies_arrive,
    1 messages::messages_of_a_sender_keep_their_order,
    1 messages::messages_and_bulk_arrive_whole,
    1 messages::small_messages_do_not_overtake_large_ones,
    1 failures::a_dropped_replier_is_dead,
    1 failures::a_deadline_ends_a_call,
    2 failures::a_closed_peer_is_dead,
    1 failures::a_closed_end_refuses,
    2 failures::closing_ends_calls_in_flight,
    1 failures::no_such_rank,
    1 ring::everyone_gets_the_roots_answer,
    1 ring::a_group_of_some_ranks,
    1 ring::operations_at_once,
    2 ring::a_rank_that_stays_away_fails_it,
    2 ring::a_dead_rank_fails_it_at_once,
];

/// Runs every check on fabrics of 1, 2 and 5 ranks from `make`, each rank a thread.
///
/// # Panics
/// When the transport fails one; the name was printed before.
pub fn all(mut make: impl FnMut(u32) -> Vec<Arc<dyn Fabric>>) {
    for size in [1, 2, 5] {
        for check in CHECKS.iter().filter(|c| c.ranks <= size) {
            println!("conformance: {}, {size} ranks", check.name);
            let ends = make(size);
            assert_eq!(ends.len(), size as usize);
            together(&ends, check.run);
        }
    }
}

/// Runs `run` for each end on a thread of its own, and closes the ends.
///
/// # Panics
/// When one of them does.
pub fn together(ends: &[Arc<dyn Fabric>], run: fn(&RankContext)) {
    let threads = ThreadBarrier::new(ends.len() as u32);
    std::thread::scope(|scope| {
        for (at, end) in ends.iter().enumerate() {
            let barrier = &threads;
            scope.spawn(move || {
                let _guard = barrier.guard_against_panic();
                assert_eq!((end.rank() as usize, end.size() as usize), (at, ends.len()));
                run(&RankContext { end, barrier });
                barrier.wait();
            });
        }
    });
    for end in ends {
        end.close();
    }
}

/// This rank's part in those of `checks` that work with this many ranks, each on a fresh end from `make`. All ranks
/// call it at once with the same checks; rank 0 prints the names.
///
/// # Panics
/// When this rank fails one.
pub fn each(
    checks: &[Check],
    mut make: impl FnMut() -> Arc<dyn Fabric>,
    barrier: &dyn RankBarrier,
) {
    for check in checks {
        let end = make();
        let size = end.size();
        if check.ranks <= size {
            if end.rank() == 0 {
                println!("conformance: {}, {size} ranks", check.name);
            }
            (check.run)(&RankContext { end: &end, barrier });
        }
        barrier.wait();
        end.close();
    }
}
