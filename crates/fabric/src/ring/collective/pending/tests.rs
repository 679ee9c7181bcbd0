//! Which messages an operation keeps, which it refuses, and what makes room.
use super::*;

impl PendingOperations {
    /// Operations kept and remembered now.
    pub(in crate::ring) fn held(&self) -> (usize, usize) {
        (self.pending.len(), self.ended.len())
    }
}

fn id(round: u64) -> OperationId {
    OperationId {
        group: 0,
        digest: 0,
        round,
        key: Bytes::new(),
    }
}

fn arrival(from: Rank) -> ChildArrival {
    ChildArrival {
        from,
        root: 0,
        content: Ok(Bytes::new()),
        replier: None,
    }
}

const LONG: Duration = Duration::from_secs(600);

fn table() -> PendingOperations {
    PendingOperations::new(MemoryBounds {
        pending: 3,
        remembered: 2,
    })
}

fn refusal(
    table: &mut PendingOperations,
    round: u64,
    from: Rank,
    keep_for: Duration,
) -> Option<CollectiveFailure> {
    let (refused, _) = table.keep(id(round), arrival(from), keep_for, 9);
    refused.map(|(_, failure)| failure)
}

#[test]
fn more_than_fits_is_refused() {
    let mut table = table();
    for round in 0..3 {
        assert_eq!(refusal(&mut table, round, 1, LONG), None);
    }
    assert_eq!(
        refusal(&mut table, 3, 1, LONG),
        Some(CollectiveFailure::Busy(9))
    );
    assert_eq!(
        table.begin_call(&id(3), 9).0.err(),
        Some(CollectiveFailure::Busy(9))
    );
    // Those under way go on.
    assert_eq!(refusal(&mut table, 2, 2, LONG), None);
    assert!(table.begin_call(&id(2), 9).0.is_ok());
    assert_eq!(
        table.begin_call(&id(2), 9).0.err(),
        Some(CollectiveFailure::Busy(9))
    );
    assert_eq!(table.take(&id(2)).len(), 2);
}

#[test]
fn what_is_over_is_refused_as_long_as_it_is_remembered() {
    let mut table = table();
    for round in 0..3 {
        assert_eq!(table.end(&id(round), CollectiveFailure::Over(9)).len(), 0);
    }
    assert_eq!(
        refusal(&mut table, 2, 1, LONG),
        Some(CollectiveFailure::Over(9))
    );
    assert_eq!(
        table.begin_call(&id(1), 9).0.err(),
        Some(CollectiveFailure::Over(9))
    );
    assert_eq!(refusal(&mut table, 0, 1, LONG), None);
    assert_eq!(table.held(), (1, 2));
}

#[test]
fn one_message_a_rank() {
    let mut table = table();
    assert_eq!(refusal(&mut table, 0, 1, LONG), None);
    assert_eq!(table.take(&id(0)).len(), 1);
    assert_eq!(
        refusal(&mut table, 0, 1, LONG),
        Some(CollectiveFailure::Over(9))
    );
}

#[test]
fn what_nobody_came_for_makes_room() {
    let mut table = table();
    for round in 0..3 {
        assert_eq!(refusal(&mut table, round, 1, Duration::ZERO), None);
        // With a caller it stays.
        if round == 0 {
            assert!(table.begin_call(&id(0), 9).0.is_ok());
        }
    }
    let (refused, expired) = table.keep(id(3), arrival(1), LONG, 9);
    assert!(refused.is_none());
    // Those of rounds 1 and 2; the one of round 2 went when 1 was dropped, or now.
    assert!(!expired.is_empty());
    let left: HashSet<u64> = table.pending.keys().map(|id| id.round).collect();
    assert_eq!(left, HashSet::from([0, 3]));
}

fn other(digest: u64, round: u64) -> OperationId {
    OperationId {
        digest,
        ..id(round)
    }
}

#[test]
fn two_groups_of_one_number_fail_both_whoever_comes_first() {
    let mut table = PendingOperations::new(MemoryBounds::default());
    assert!(table.begin_call(&id(0), 9).0.is_ok());
    let (refused, _) = table.keep(other(1, 0), arrival(4), LONG, 9);
    assert_eq!(
        refused.map(|(_, why)| why),
        Some(CollectiveFailure::Mismatch(4))
    );
    assert_eq!(
        table.cannot_complete(&id(0), [].into_iter()),
        Some(CollectiveFailure::Mismatch(4))
    );
    table.end(&id(0), CollectiveFailure::Mismatch(4));
    // The other way round, with an own child that waits.
    assert!(table.keep(other(2, 7), arrival(4), LONG, 9).0.is_none());
    assert!(table.keep(id(1), arrival(5), LONG, 9).0.is_none());
    let (outcome, refused) = table.begin_call(&id(1), 9);
    assert_eq!(outcome.err(), Some(CollectiveFailure::Mismatch(4)));
    assert!(
        refused
            .iter()
            .all(|(_, why)| *why == CollectiveFailure::Mismatch(4))
    );
    let from: Vec<Rank> = refused.iter().map(|(a, _)| a.from).collect();
    assert_eq!(from, [4, 5]);
    // What nobody waits for, and late failures, are no groups of now.
    assert!(
        table
            .keep(other(3, 7), arrival(4), Duration::ZERO, 9)
            .0
            .is_none()
    );
    let gone = ChildArrival {
        content: Err(CollectiveFailure::Missing(4)),
        ..arrival(4)
    };
    assert!(table.keep(other(4, 7), gone, LONG, 9).0.is_none());
    assert!(table.begin_call(&id(2), 9).0.is_ok());
    assert_eq!(table.cannot_complete(&id(2), [4].into_iter()), None);
}

#[test]
fn who_is_behind_hears_so_and_who_is_ahead_is_not_waited_for() {
    let mut table = PendingOperations::new(MemoryBounds::default());
    // Before the caller comes, and after.
    assert_eq!(refusal(&mut table, 3, 1, LONG), None);
    assert_eq!(refusal(&mut table, 6, 2, LONG), None);
    let (outcome, refused) = table.begin_call(&id(5), 9);
    assert!(outcome.is_ok());
    let refused: Vec<_> = refused.iter().map(|(a, why)| (a.from, *why)).collect();
    assert_eq!(refused, [(1, CollectiveFailure::Over(9))]);
    assert_eq!(
        refusal(&mut table, 4, 1, LONG),
        Some(CollectiveFailure::Over(9))
    );
    assert_eq!(refusal(&mut table, 7, 3, LONG), None);
    for (rank, why) in [
        (1, None),
        (2, Some(CollectiveFailure::Ahead(2))),
        (3, Some(CollectiveFailure::Ahead(3))),
    ] {
        assert_eq!(table.cannot_complete(&id(5), [rank].into_iter()), why);
    }
    // Of another key nothing follows.
    let key = OperationId {
        key: Bytes::from_static(b"k"),
        ..id(1)
    };
    assert!(table.keep(key, arrival(1), LONG, 9).0.is_none());
}
