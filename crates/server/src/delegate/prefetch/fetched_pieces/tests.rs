//! Pieces against a plain model of bytes, and what makes room.
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SPAN: u64 = 64;

/// The byte at `at` of a file as of a generation.
fn byte(fid: Fid, generation: u64, at: u64) -> u8 {
    (fid.0 * 101 + generation * 37 + at * 3) as u8
}

fn content(fid: Fid, generation: u64, range: &Range<u64>) -> Bytes {
    range.clone().map(|at| byte(fid, generation, at)).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Promise(u64, Range<u64>),
    /// One of those that are promised: its number, and whether bytes come.
    Fill(usize, bool),
    Begin(usize),
    Find(u64, Range<u64>),
    GiveUp(u64, Range<u64>),
    Newer(u64),
    Later,
}

fn some_range() -> impl Strategy<Value = Range<u64>> {
    (0..SPAN, 1..20u64).prop_map(|(at, len)| at..(at + len).min(SPAN))
}

fn step() -> impl Strategy<Value = Step> {
    let fid = 0..2u64;
    prop_oneof![
        4 => (fid.clone(), some_range()).prop_map(|(f, r)| Step::Promise(f, r)),
        3 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(n, came)| Step::Fill(n, came)),
        3 => any::<usize>().prop_map(Step::Begin),
        4 => (fid.clone(), some_range()).prop_map(|(f, r)| Step::Find(f, r)),
        1 => (fid.clone(), some_range()).prop_map(|(f, r)| Step::GiveUp(f, r)),
        1 => fid.prop_map(Step::Newer),
        1 => Just(Step::Later),
    ]
}

/// Sums and order, as the invariants say.
fn check(pieces: &FetchedPieces) {
    let mut sum = 0;
    let (mut unread, mut here) = (0, 0);
    for (fid, file) in &pieces.files {
        let mut before = 0;
        assert!(!file.pieces.is_empty());
        for (&start, piece) in &file.pieces {
            assert!(piece.len > 0 && start >= before);
            before = start + piece.len;
            sum += piece.len;
            if let PieceStage::Here { read, .. } = piece.stage {
                here += 1;
                unread += piece.len - read;
                let fresh = pieces.fresh.get(&piece.turn).map(|p| (p.0, p.1));
                let spent = pieces.spent.get(&piece.turn).copied();
                assert_eq!(fresh.xor(spent), Some((*fid, start)));
            }
        }
    }
    let stats = &pieces.stats;
    assert_eq!(sum, stats.held_bytes);
    assert!(sum <= pieces.limit);
    assert_eq!(pieces.fresh.len() + pieces.spent.len(), here);
    assert_eq!(
        stats.fetched_bytes,
        stats.used_bytes + stats.wasted_bytes + unread
    );
}

fn run(limit: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut pieces = FetchedPieces::new(limit);
    let mut now = Instant::now();
    let mut generations = [1u64, 1];
    // Promised: file, generation, piece. And, if there is room for all, what is here by file and offset.
    let mut open: Vec<(Fid, u64, WantedPiece)> = Vec::new();
    let mut model: BTreeMap<(u64, u64), bool> = BTreeMap::new();
    let roomy = limit > 2 * SPAN;
    for step in steps {
        match step {
            Step::Promise(file, range) => {
                let (fid, generation) = (Fid(*file), generations[*file as usize]);
                let wanted = pieces.reserve_missing(fid, generation, range.clone(), now);
                prop_assert!(wanted.is_some() || !roomy);
                for wanted in wanted.unwrap_or_default() {
                    for at in wanted.range.clone() {
                        prop_assert!(range.contains(&at));
                        let before = model.insert((*file, at), false);
                        prop_assert!(before.is_none() || !roomy, "promised twice");
                    }
                    open.push((fid, generation, wanted));
                }
            }
            Step::Begin(n) if !open.is_empty() => {
                let (fid, _, wanted) = &open[n % open.len()];
                pieces.begin(*fid, wanted);
            }
            Step::Fill(n, came) if !open.is_empty() => {
                let (fid, generation, wanted) = open.swap_remove(n % open.len());
                let bytes = came.then(|| content(fid, generation, &wanted.range));
                let known = pieces.piece(fid, &wanted).is_some();
                pieces.fill(fid, &wanted, bytes, Duration::from_micros(9), now);
                for at in wanted.range.clone().filter(|_| known) {
                    match came {
                        true => model.insert((fid.0, at), true),
                        false => model.remove(&(fid.0, at)),
                    };
                }
            }
            Step::Find(file, range) => {
                let (fid, generation) = (Fid(*file), generations[*file as usize]);
                let all = range
                    .clone()
                    .all(|at| model.get(&(*file, at)) == Some(&true));
                match pieces.find(fid, generation, range) {
                    PieceLookup::Here(bytes, _) => {
                        prop_assert_eq!(bytes, content(fid, generation, range));
                        prop_assert!(all || !roomy);
                    }
                    _ => prop_assert!(!all || !roomy),
                }
            }
            Step::GiveUp(file, range) => pieces.give_up(Fid(*file), range),
            Step::Newer(file) => generations[*file as usize] += 1,
            Step::Later => now += UNREAD_PIECE_AGE,
            Step::Begin(_) | Step::Fill(..) => {}
        }
        check(&pieces);
        // What left the queue is not promised any more; a newer generation empties the file once something is promised.
        model.retain(|&(file, at), _| {
            let known = pieces.files.get(&Fid(file));
            let current = known.filter(|f| f.generation == generations[file as usize]);
            current.is_some_and(|f| {
                let start = f.first(at);
                f.pieces
                    .get(&start)
                    .is_some_and(|p| start <= at && at < start + p.len)
            })
        });
    }
    Ok(())
}

proptest! {
    #[test]
    fn with_room_for_all_it_is_the_plain_model(steps in prop::collection::vec(step(), 1..120)) {
        run(1 << 20, &steps)?;
    }

    #[test]
    fn without_room_it_forgets_but_never_lies(limit in 1..60u64, steps in prop::collection::vec(step(), 1..120)) {
        run(limit, &steps)?;
    }
}

const FILE: Fid = Fid(7);

/// Fetches this at once.
fn fetch(pieces: &mut FetchedPieces, range: Range<u64>, now: Instant) -> bool {
    let Some(wanted) = pieces.reserve_missing(FILE, 1, range, now) else {
        return false;
    };
    for wanted in wanted {
        assert!(pieces.begin(FILE, &wanted));
        let bytes = content(FILE, 1, &wanted.range);
        pieces.fill(FILE, &wanted, Some(bytes), Duration::ZERO, now);
    }
    true
}

#[test]
fn what_was_read_makes_room_and_what_will_be_read_does_not() {
    let (mut pieces, now) = (FetchedPieces::new(30), Instant::now());
    assert!(
        fetch(&mut pieces, 0..10, now)
            && fetch(&mut pieces, 10..20, now)
            && fetch(&mut pieces, 20..30, now)
    );
    assert!(
        !fetch(&mut pieces, 30..40, now),
        "all of it is still to be read"
    );
    assert!(matches!(
        pieces.find(FILE, 1, &(10..20)),
        PieceLookup::Here(..)
    ));
    assert!(fetch(&mut pieces, 30..40, now));
    assert!(matches!(
        pieces.find(FILE, 1, &(10..20)),
        PieceLookup::No { .. }
    ));
    assert!(matches!(
        pieces.find(FILE, 1, &(0..10)),
        PieceLookup::Here(..)
    ));
    assert_eq!(pieces.stats.wasted_bytes, 0);
    assert!(!fetch(&mut pieces, 40..60, now));
    assert!(
        fetch(&mut pieces, 40..60, now + UNREAD_PIECE_AGE),
        "nobody has read it for long"
    );
    assert_eq!(pieces.stats.wasted_bytes, 10);
}

#[test]
fn what_is_given_up_is_not_fetched_or_goes_first() {
    let (mut pieces, now) = (FetchedPieces::new(30), Instant::now());
    fetch(&mut pieces, 0..10, now);
    let queued = pieces.reserve_missing(FILE, 1, 10..20, now).unwrap();
    let coming = pieces.reserve_missing(FILE, 1, 20..30, now).unwrap();
    assert!(pieces.begin(FILE, &coming[0]));
    pieces.give_up(FILE, &(0..30));
    assert!(!pieces.begin(FILE, &queued[0]));
    pieces.fill(
        FILE,
        &coming[0],
        Some(content(FILE, 1, &(20..30))),
        Duration::ZERO,
        now,
    );
    assert!(
        matches!(pieces.find(FILE, 1, &(20..30)), PieceLookup::Here(..)),
        "it is there all the same"
    );
    assert!(fetch(&mut pieces, 40..70, now));
    assert_eq!(pieces.stats.wasted_bytes, 10);
}

#[test]
fn a_newer_generation_takes_the_old_bytes_away_and_an_older_one_gets_nothing() {
    let (mut pieces, now) = (FetchedPieces::new(100), Instant::now());
    fetch(&mut pieces, 0..10, now);
    let late = pieces.reserve_missing(FILE, 1, 10..20, now).unwrap();
    assert!(matches!(
        pieces.find(FILE, 2, &(0..10)),
        PieceLookup::No { .. }
    ));
    pieces.reserve_missing(FILE, 2, 50..60, now).unwrap();
    pieces.fill(
        FILE,
        &late[0],
        Some(content(FILE, 1, &(10..20))),
        Duration::ZERO,
        now,
    );
    for generation in [1, 2] {
        assert!(matches!(
            pieces.find(FILE, generation, &(0..20)),
            PieceLookup::No { .. }
        ));
    }
    assert!(pieces.reserve_missing(FILE, 1, 70..80, now).is_none());
    assert_eq!(pieces.stats.wasted_bytes, 20);
}

#[test]
fn a_reader_that_meets_the_queue_asks_itself() {
    let (mut pieces, now) = (FetchedPieces::new(100), Instant::now());
    let queued = pieces.reserve_missing(FILE, 1, 0..10, now).unwrap();
    assert!(matches!(
        pieces.find(FILE, 1, &(0..10)),
        PieceLookup::No { queued: true }
    ));
    assert!(!pieces.begin(FILE, &queued[0]));
    let queued = pieces.reserve_missing(FILE, 1, 0..10, now).unwrap();
    pieces.begin(FILE, &queued[0]);
    assert!(matches!(pieces.find(FILE, 1, &(2..5)), PieceLookup::Coming));
    assert!(matches!(
        pieces.find(FILE, 1, &(2..11)),
        PieceLookup::No { .. }
    ));
}
