//! Counts how often spans, and holds of bases, name each chunk, and compares with the saved counts.
//!
//! A chunk is counted once for each run of each span or hold that has a byte of it. Memory is bounded: one pass over all spans counts
//! [`CONTAINERS_PER_PASS`] containers, so a large store takes several passes.
use crate::container::{self, ChunkCounts, Container, ContainerId};
use crate::span::{self, SpanRuns};
use forebay_proto::Result;
use forebay_storage::Store;
use std::collections::BTreeMap;

/// Containers that one pass counts: some 32 MiB of counts for containers of 1 MiB with chunks of 4 KiB.
const CONTAINERS_PER_PASS: usize = 16 << 10;

/// The counts of a container.
pub struct Recount {
    /// The container.
    pub container: Container,
    /// As counted from the spans.
    pub counted: ChunkCounts,
    /// As saved in the container's record.
    pub saved: Result<ChunkCounts>,
}

impl Recount {
    /// Whether the saved counts are right.
    pub fn is_right(&self) -> bool {
        self.saved
            .as_ref()
            .is_ok_and(|saved| *saved == self.counted)
    }
}

/// Calls `each` for every container, in the order of their numbers. Unreadable records of spans and containers are skipped; the
/// check of records reports these.
///
/// # Errors
/// As `each`.
pub fn recount(store: &Store, mut each: impl FnMut(Recount) -> Result<()>) -> Result<()> {
    let mut containers = container::all(store).filter_map(Result::ok).peekable();
    while containers.peek().is_some() {
        let row: BTreeMap<ContainerId, (Container, ChunkCounts)> = containers
            .by_ref()
            .take(CONTAINERS_PER_PASS)
            .map(|c| (c.id, (c.clone(), ChunkCounts::none(c.count()))))
            .collect();
        for (_, (container, counted)) in count(store, row) {
            each(Recount {
                saved: container::load_counts(store, &container),
                container,
                counted,
            })?;
        }
    }
    Ok(())
}

fn count(
    store: &Store,
    mut row: BTreeMap<ContainerId, (Container, ChunkCounts)>,
) -> BTreeMap<ContainerId, (Container, ChunkCounts)> {
    let mut add = |runs: &SpanRuns| {
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            if let Some((container, counts)) = row.get_mut(&id)
                && let Some(chunks) = container.chunks_over(&positions)
            {
                counts.0[chunks].iter_mut().for_each(|count| *count += 1);
            }
        }
    };
    let spans = span::all(store).filter_map(Result::ok);
    spans.for_each(|span| span.runs().into_iter().for_each(&mut add));
    container::needed_holds(store).for_each(|hold| add(&hold.base));
    row
}
