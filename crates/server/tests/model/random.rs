//! Random numbers from a seed (splitmix64): the same seed replays the same run.

#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// `0..n`
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
    /// `n` bytes, none of them zero.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() % 255) as u8 + 1).collect()
    }
    /// Rows of rows of writes, as programs make them: offsets from `start` on, at least 0.
    pub fn row(&mut self, start: u64, len: u64) -> Vec<u64> {
        let stride = |random: &mut Random| {
            let far = *random.pick(&[2 * len + 8, 4 * len + 8, 700]);
            let stride = random.below(far) as i64;
            if random.chance(25) { -stride } else { stride }
        };
        let (outer, inner) = (stride(self) * 9, stride(self));
        let rows = if self.chance(50) {
            1
        } else {
            1 + self.below(6)
        };
        let count = 2 + self.below(40);
        let at = |row: u64, k: u64| start as i64 + row as i64 * outer + k as i64 * inner;
        let offsets = (0..rows).flat_map(|row| (0..count).map(move |k| at(row, k)));
        offsets.map(|at| at.unsigned_abs()).collect()
    }
}
