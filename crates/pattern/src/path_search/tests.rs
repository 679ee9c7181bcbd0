//! Answers against sets of bytes, and how many steps a search takes.
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn path(start: u64, len: u64, steps: &[(u64, u64)]) -> Path {
    Path::new(start.into(), len, steps)
}

fn bytes(path: &Path) -> HashSet<i128> {
    let mut starts = vec![path.start];
    for (stride, count) in &path.steps {
        let step = |at: i128| (0..*count).map(move |k| at + i128::from(k) * i128::from(*stride));
        starts = starts.into_iter().flat_map(step).collect();
    }
    let len = i128::from(path.len);
    starts.into_iter().flat_map(|at| at..at + len).collect()
}

/// How many steps it took to see that they are apart.
fn steps(a: &Path, b: &Path) -> usize {
    let mut search = PathSearch::new(1 << 20);
    assert!(
        search.disjoint(a, b) && search.disjoint(b, a),
        "{a:?} {b:?}"
    );
    (1 << 20) - search.left
}

#[test]
fn pairs_that_are_only_looked_at_are_counted_too() {
    let leaves = |shift: u64| -> Vec<Path> {
        let leaf = |i: u64| path((i << 20) + shift, 8, &[]);
        (0..256).map(leaf).collect()
    };
    let (a, b) = (leaves(0), leaves(8));
    let mut search = PathSearch::new(256 * 256 / PAIRS_PER_STEP);
    assert!(search.paths_disjoint(&a, &b) && search.left > 0);
    assert!(!search.paths_disjoint(&a, &b));
    assert_eq!(search.left, 0);
}

#[test]
fn diagonals_of_blocks_take_few_steps() {
    // BT on 400 processes: block c of a process lies at (x + c, y + c, c) of 20^3, each of 51^3 points of 40 bytes.
    const WIDE: u64 = 51 * 40;
    const ROW: u64 = 20 * WIDE;
    const PLANE: u64 = ROW * 1020;
    let diagonal = |x: u64, y: u64, count: u64| {
        let next = 51 * PLANE + 51 * ROW + WIDE;
        let steps = [(next, count), (ROW, 51), (PLANE, 51)];
        path(y * 51 * ROW + x * WIDE, WIDE, &steps)
    };
    let mut most = 0;
    for x in 0..10 {
        for y in 0..10 {
            if (x, y) != (4, 7) {
                let other = diagonal(x, y, 20 - x.max(y));
                most = most.max(steps(&other, &diagonal(4, 7, 13)));
            }
        }
    }
    assert!(most <= 40, "{most} steps");
    // The last line of the ninth block.
    let one = diagonal(4, 7, 13);
    let blocks = 8 * (51 * PLANE + 51 * ROW + WIDE);
    let last = one.start as u64 + blocks + 50 * PLANE + 50 * ROW + WIDE - 1;
    assert!(!PathSearch::new(1 << 20).disjoint(&one, &path(last, 1, &[])));
    assert!(PathSearch::new(1 << 20).disjoint(&one, &path(last + 1, 1, &[])));
}

#[test]
fn long_rows_are_told_apart_by_residues() {
    // 2^40 elements each, in strides that have few common divisors.
    let a = path(0, 10, &[(600, 1 << 20), (900, 1 << 20)]);
    let b = path(20, 10, &[(750, 1 << 20), (1050, 1 << 20)]);
    assert!(steps(&a, &b) < 9);
    // Too far to be told: nothing is said.
    let far = path(0, 10, &[(u64::MAX / 8, 9)]);
    assert!(!PathSearch::new(9).disjoint(&far, &path(20, 10, &[(u64::MAX / 16, 15)])));
    assert!(!PathSearch::new(0).disjoint(&a, &b));
}

fn any_path() -> impl Strategy<Value = Path> {
    let steps = prop::collection::vec((0u64..90, 1u64..7), 0..4);
    (0u64..900, 0u64..25, steps).prop_map(|(start, len, steps)| path(start, len, &steps))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(1000, 100_000)))]

    #[test]
    fn agrees_with_a_set_of_bytes(a in any_path(), b in any_path()) {
        let apart = bytes(&a).is_disjoint(&bytes(&b));
        prop_assert_eq!(PathSearch::new(1 << 20).disjoint(&a, &b), apart);
        let mut short = PathSearch::new(5);
        prop_assert!(apart || !short.disjoint(&a, &b));
    }

    #[test]
    fn no_byte_twice_is_never_said_of_paths_that_share_one(paths in prop::collection::vec(any_path(), 1..4)) {
        let all: usize = paths.iter().map(|p| p.len as usize * p.steps.iter().map(|s| s.1 as usize).product::<usize>()).sum();
        let set: HashSet<i128> = paths.iter().flat_map(bytes).collect();
        prop_assert!(set.len() == all || !PathSearch::new(1 << 20).leaves_disjoint(&paths));
    }
}
