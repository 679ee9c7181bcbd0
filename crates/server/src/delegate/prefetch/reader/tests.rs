//! What is fetched for readers of every kind.
use super::*;
use std::collections::HashSet;

fn at(offset: u64, len: u64) -> ReadRequest {
    ReadRequest { offset, len }
}

/// Reads all of these: how many were fetched before they were read, and how many were fetched.
fn run(reader: &mut HandleReader, requests: &[ReadRequest]) -> (usize, usize) {
    let mut there: HashSet<(u64, u64)> = HashSet::new();
    let (mut right, mut fetched) = (0, 0);
    for request in requests {
        let plan = reader.observe(*request);
        right += usize::from(there.remove(&(request.offset, request.len)));
        plan.give_up
            .iter()
            .for_each(|r| _ = there.remove(&(r.offset, r.len)));
        fetched += plan.fetch.len();
        there.extend(plan.fetch.iter().map(|r| (r.offset, r.len)));
        reader.arrived(false);
    }
    (right, fetched)
}

fn pattern() -> HandleReader {
    HandleReader::pattern(Arc::default(), 64)
}

fn random(count: u64) -> Vec<ReadRequest> {
    let mix = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n << 7);
    (1..=count)
        .map(|n| at(mix(mix(n) >> 11) % 4096 * 8192, 8192))
        .collect()
}

#[test]
fn a_stride_is_fetched_ahead_after_a_few() {
    let requests: Vec<ReadRequest> = (0..1000).map(|k| at(k * 9000, 512)).collect();
    let (right, fetched) = run(&mut pattern(), &requests);
    assert!(right >= 990 && fetched <= right + 64, "{right} {fetched}");
}

#[test]
fn rows_of_several_variables_are_fetched_ahead_over_their_ends() {
    let step = |t: u64| {
        let rows = |base: u64, rows: u64, stride: u64, len: u64| {
            (0..rows).map(move |r| at(t * 10_000_000 + base + r * stride, len))
        };
        rows(0, 24, 5000, 900)
            .chain(rows(3_000_000, 16, 70_000, 4096))
            .chain(rows(7_000_000, 9, 1200, 300))
    };
    let requests: Vec<ReadRequest> = (0..40).flat_map(step).collect();
    let (right, fetched) = run(&mut pattern(), &requests);
    assert!(
        right * 100 >= requests.len() * 93,
        "{right} of {}",
        requests.len()
    );
    assert!(fetched * 100 <= right * 105, "{fetched} for {right}");
}

#[test]
fn random_reads_are_left_alone() {
    let requests = random(20_000);
    for mut reader in [pattern(), HandleReader::readahead()] {
        let (_, fetched) = run(&mut reader, &requests);
        assert!(fetched <= 20, "{fetched}");
    }
}

#[test]
fn requests_a_little_out_of_order_are_fetched_ahead_all_the_same() {
    let mut requests: Vec<ReadRequest> = (0..1000).map(|k| at(k << 20, 1 << 20)).collect();
    // As two threads hand them over: every third pair is swapped.
    (50..990).step_by(6).for_each(|k| requests.swap(k, k + 1));
    let (right, fetched) = run(&mut pattern(), &requests);
    assert!(right >= 980 && fetched <= right + 64, "{right} {fetched}");
}

#[test]
fn what_is_passed_over_does_not_stop_it() {
    let skipped = |k: &u64| k % 50 != 49;
    let requests: Vec<ReadRequest> = (0..2000)
        .filter(skipped)
        .map(|k| at(k * 9000, 512))
        .collect();
    let (right, fetched) = run(&mut pattern(), &requests);
    assert!(
        right * 10 >= requests.len() * 9,
        "{right} of {}",
        requests.len()
    );
    assert!(fetched * 100 <= right * 125, "{fetched} for {right}");
}

#[test]
fn a_reader_that_goes_astray_is_left_alone_and_taken_up_again() {
    let mut reader = pattern();
    let stride = |from: u64| (0..200).map(move |k| at(from + k * 10_000, 4096));
    let first: Vec<ReadRequest> = stride(0).collect();
    assert!(run(&mut reader, &first).0 > 190);
    let (_, fetched) = run(&mut reader, &random(500));
    assert!(fetched < 64, "{fetched}");
    let last: Vec<ReadRequest> = stride(1 << 40).collect();
    assert!(run(&mut reader, &last).0 > 180);
}

#[test]
fn who_comes_second_is_fetched_ahead_where_there_is_no_loop() {
    let steps = Arc::<RequestHistory>::default();
    // None twice.
    let path: Vec<ReadRequest> = (0..300u64).map(|k| at(k * k * 5000, 700)).collect();
    let new = || HandleReader::pattern(steps.clone(), 64);
    assert_eq!(run(&mut new(), &path).1, 0);
    let (right, fetched) = run(&mut new(), &path);
    assert!(right >= 290 && fetched <= right + 1, "{right} {fetched}");
}

#[test]
fn perfect_knows_each_reader_by_its_first_requests() {
    let paths = [
        random(100),
        random(50).into_iter().chain([at(1, 1)]).collect(),
        vec![at(5, 5), at(9, 9)],
    ];
    let future = Arc::new(FutureReads::new(paths.clone()));
    for path in &paths {
        let mut reader = HandleReader::perfect(future.clone(), 64);
        let (right, fetched) = run(&mut reader, path);
        // The first is not foreseen, nor the one where two go apart.
        assert!(right >= path.len() - 2, "{right}");
        // Up to where two go apart, the first one's steps are taken.
        assert!(fetched <= right + 64, "{fetched}");
    }
}

#[test]
fn the_depth_follows_what_comes_too_late_within_its_bound() {
    let mut reader = HandleReader::pattern(Arc::default(), 20);
    assert_eq!(reader.depth(), FIRST_DEPTH);
    reader.arrived(true);
    assert_eq!(reader.depth(), 8);
    (0..9).for_each(|_| reader.arrived(true));
    assert_eq!(reader.depth(), 20);
    (0..20 * IN_TIME_READS).for_each(|_| reader.arrived(false));
    assert_eq!(reader.depth(), 3);
    let ahead = |reader: &mut HandleReader| reader.observe(at(0, 1)).fetch.len();
    assert_eq!(ahead(&mut reader), 0);
    reader.refused(at(7, 7));
    assert_eq!(reader.depth(), MIN_DEPTH);
}

#[test]
fn memory_of_a_reader_without_a_pattern_is_bounded() {
    let mut reader = pattern();
    for n in 0..100_000u64 {
        reader.observe(at(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24, 77));
    }
    let PredictionSource::Pattern { predictor, .. } = &reader.source else {
        unreachable!("it is one by pattern");
    };
    assert!(
        predictor.memory() < 4 * MAX_PREDICTOR_MEMORY,
        "{}",
        predictor.memory()
    );
}
