//! Offsets of rows of writes, as programs make them.
use forebay_testkit::random::Random;

/// Rows of rows of writes of `len` bytes: offsets from `start` on, at least 0.
pub fn row(random: &mut Random, start: u64, len: u64) -> Vec<u64> {
    let stride = |random: &mut Random| {
        let far = *random.pick(&[2 * len + 8, 4 * len + 8, 700]);
        let stride = random.below(far) as i64;
        if random.chance(25) { -stride } else { stride }
    };
    let (outer, inner) = (stride(random) * 9, stride(random));
    let rows = if random.chance(50) {
        1
    } else {
        1 + random.below(6)
    };
    let count = 2 + random.below(40);
    let at = |row: u64, k: u64| start as i64 + row as i64 * outer + k as i64 * inner;
    let offsets = (0..rows).flat_map(|row| (0..count).map(move |k| at(row, k)));
    offsets.map(|at| at.unsigned_abs()).collect()
}
