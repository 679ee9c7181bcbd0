//! One column: the difference of each value from the one before, then LZ77 [Ziv and Lempel 1977] over the differences.
//!
//! MetaKV (section III-A) delta-codes each column and LZ77-codes the deltas. Here a symbol of the LZ77 is a whole difference,
//! not a byte of it: a match then never begins inside a number, and a block of a hundred records has a hundred symbols.
//!
//! ```text
//!  column = tokens until all rows are there
//!
//!  | 0 n:7 | n + 1 differences, each a folded varint                                literals
//!  | 1 n:7 | if n = 127: varint e | distance - 1 varint |                           match
//!            n (or 127 + e) + 2 differences, the same as those `distance` back, which may overlap them
//! ```
//!
//! The value before the first is 0; differences wrap around at 2^64. No bytes at all: every value is 0.
mod decode;

pub use decode::{LazyColumn, decode};

use crate::varint;

/// The most literals of one token.
const MAX_LITERALS: usize = 128;
/// The shortest match.
const SHORTEST_MATCH: usize = 2;
/// Match lengths from here on take another varint.
const LONG_MATCH: usize = 127;
/// Earlier places that are tried for a match.
const MATCH_TRIES: usize = 8;

/// Buffers of the encoder.
#[derive(Debug, Default)]
pub struct EncodeBuffers {
    /// Folded differences.
    symbols: Vec<u64>,
    /// The last place of each hash of two symbols, plus 1; 0 for none.
    heads: Vec<u32>,
    /// The place before with the same hash, as in `heads`.
    chain: Vec<u32>,
    /// log2 of the length of `heads`.
    bits: u32,
}

/// A match: `len` symbols as those `distance` before.
#[derive(Debug, Clone, Copy, Default)]
struct Lz77Match {
    len: usize,
    distance: usize,
}

impl Lz77Match {
    /// Bytes of its token.
    fn cost(self) -> usize {
        let rest = self.len - SHORTEST_MATCH;
        let more = if rest >= LONG_MATCH {
            varint::len((rest - LONG_MATCH) as u64)
        } else {
            0
        };
        1 + more + varint::len(self.distance as u64 - 1)
    }
}

impl EncodeBuffers {
    /// Appends the column to `out`.
    pub fn encode(&mut self, values: &[u64], out: &mut Vec<u8>) {
        if values.iter().all(|value| *value == 0) || put_steps(values, out) {
            return;
        }
        self.search(values, out);
    }

    /// Appends the column as whatever matches are found.
    fn search(&mut self, values: &[u64], out: &mut Vec<u8>) {
        self.prepare(values);
        let mut at = 0;
        let mut literals = 0;
        while at < self.symbols.len() {
            match self.find(at) {
                Some(found) => {
                    self.put_literals(literals, at, out);
                    put_match(found, out);
                    // What is inside stands before it already: only how it begins and ends is new.
                    self.remember(at);
                    at += found.len;
                    self.remember(at - 1);
                    literals = at;
                }
                None => {
                    self.remember(at);
                    at += 1;
                }
            }
        }
        self.put_literals(literals, at, out);
    }

    fn prepare(&mut self, values: &[u64]) {
        let mut before = 0u64;
        self.symbols.clear();
        self.symbols.extend(values.iter().map(|value| {
            let difference = value.wrapping_sub(before);
            before = *value;
            varint::fold(difference)
        }));
        self.bits = values
            .len()
            .next_power_of_two()
            .trailing_zeros()
            .clamp(6, 16);
        self.heads.clear();
        self.heads.resize(1 << self.bits, 0);
        self.chain.resize(values.len().max(self.chain.len()), 0);
    }

    fn hash(&self, at: usize) -> Option<usize> {
        let pair = self.symbols.get(at..at + SHORTEST_MATCH)?;
        let mixed = (pair[0].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ pair[1])
            .wrapping_mul(0xd6e8_feb8_6659_fd93);
        Some((mixed >> (64 - self.bits)) as usize)
    }

    fn remember(&mut self, at: usize) {
        if let Some(hash) = self.hash(at) {
            self.chain[at] = std::mem::replace(&mut self.heads[hash], at as u32 + 1);
        }
    }

    /// The longest match at `at` that is shorter than its literals.
    fn find(&self, at: usize) -> Option<Lz77Match> {
        let mut best = Lz77Match::default();
        let mut place = self.heads[self.hash(at)?];
        for _ in 0..MATCH_TRIES {
            let Some(from) = (place as usize).checked_sub(1) else {
                break;
            };
            let len = self.same(from, at);
            if len > best.len {
                best = Lz77Match {
                    len,
                    distance: at - from,
                };
                if at + len == self.symbols.len() {
                    break;
                }
            }
            place = self.chain[from];
        }
        (best.len >= SHORTEST_MATCH && self.pays(at, best)).then_some(best)
    }

    /// How many symbols from `at` on are those from `from` on.
    fn same(&self, from: usize, at: usize) -> usize {
        const STEP: usize = 8;
        let (ahead, _) = self.symbols[at..].as_chunks::<STEP>();
        let (back, _) = self.symbols[from..].as_chunks::<STEP>();
        let whole = ahead.iter().zip(back).take_while(|(a, b)| a == b).count() * STEP;
        let rest = self.symbols[at + whole..]
            .iter()
            .zip(&self.symbols[from + whole..]);
        whole + rest.take_while(|(a, b)| a == b).count()
    }

    /// Whether the match takes less than its literals. At the same length it does not pay: it would cut a run of literals.
    fn pays(&self, at: usize, found: Lz77Match) -> bool {
        let cost = found.cost();
        let mut literals = 0;
        for symbol in &self.symbols[at..at + found.len] {
            literals += varint::len(*symbol);
            if literals > cost {
                return true;
            }
        }
        false
    }

    fn put_literals(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        for literals in self.symbols[from..to].chunks(MAX_LITERALS) {
            out.push(literals.len() as u8 - 1);
            for symbol in literals {
                varint::put(out, *symbol);
            }
        }
    }
}

/// Appends a column of equal steps, in the very bytes that the search would find; `false` if it is none, or too short. Most columns
/// are such: the same file, length or log all over, or offsets and addresses at a stride.
fn put_steps(values: &[u64], out: &mut Vec<u8>) -> bool {
    let [first, second, ..] = *values else {
        return false;
    };
    let step = second.wrapping_sub(first);
    let steps = values.iter().zip(&values[1..]);
    if !steps.map(|(a, b)| b.wrapping_sub(*a)).all(|s| s == step) {
        return false;
    }
    let (start, step) = (varint::fold(first), varint::fold(step));
    let literals = if start == step { 1 } else { 2 };
    let rest = Lz77Match {
        len: values.len() - literals,
        distance: 1,
    };
    if rest.len < SHORTEST_MATCH || rest.len * varint::len(step) <= rest.cost() {
        return false;
    }
    out.push(literals as u8 - 1);
    varint::put(out, start);
    if literals == 2 {
        varint::put(out, step);
    }
    put_match(rest, out);
    true
}

fn put_match(found: Lz77Match, out: &mut Vec<u8>) {
    let rest = found.len - SHORTEST_MATCH;
    out.push(0x80 | rest.min(LONG_MATCH) as u8);
    if rest >= LONG_MATCH {
        varint::put(out, (rest - LONG_MATCH) as u64);
    }
    varint::put(out, found.distance as u64 - 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(values: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        EncodeBuffers::default().encode(values, &mut out);
        out
    }

    fn there_and_back(values: &[u64]) -> usize {
        let bytes = bytes(values);
        let mut back = vec![7; values.len()];
        decode(&bytes, &mut back).unwrap();
        assert_eq!(back, values);
        bytes.len()
    }

    #[test]
    fn regular_columns_take_few_bytes_however_long() {
        for n in [100u64, 10_000] {
            let shown = |f: fn(u64) -> u64| there_and_back(&(0..n).map(f).collect::<Vec<_>>());
            assert_eq!(shown(|_| 0), 0, "zeros");
            assert!(shown(|_| 1 << 60) <= 16, "a constant");
            assert!(shown(|i| i * 47008) <= 16, "a stride");
            assert!(shown(|i| 1000 + i % 16) <= 20, "sixteen writers in turn");
            assert!(shown(|i| i / 16 * 4096) <= 20, "their logs' addresses");
            assert!(shown(|i| u64::MAX - i) <= 8, "downwards, around zero");
        }
    }

    #[test]
    fn irregular_columns_take_little_more_than_their_differences() {
        let mut random = forebay_testkit::random::Random::new(1);
        let values: Vec<u64> = (0..1000).map(|_| random.next() >> 33).collect();
        // 31 bits and a sign: five bytes each, and a byte for each 128.
        assert!(there_and_back(&values) <= 5 * 1000 + 8);
    }

    #[test]
    fn an_empty_column_and_one_row() {
        there_and_back(&[]);
        there_and_back(&[0]);
        there_and_back(&[u64::MAX]);
    }

    /// Runs, strides and repetitions, as real columns have them.
    fn columns() -> impl Strategy<Value = Vec<u64>> {
        let piece = prop_oneof![
            (any::<u64>(), 0u64..5, 1usize..300).prop_map(|(start, step, n)| {
                (0..n as u64)
                    .map(|i| start.wrapping_add(i.wrapping_mul(step)))
                    .collect::<Vec<_>>()
            }),
            (proptest::collection::vec(0u64..1000, 1..20), 1usize..20)
                .prop_map(|(period, n)| period.repeat(n)),
            proptest::collection::vec(any::<u64>(), 0..50),
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn equal_steps_are_what_the_search_would_find(start: u64, small in 0u64..300, step: u64, little in 0u64..300, n in 1usize..400) {
            for (start, step) in [(start, step), (small, little), (small, small), (small, 0), (start, little.wrapping_neg())] {
                let values: Vec<u64> = (0..n as u64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect();
                let mut searched = Vec::new();
                if values.iter().any(|value| *value > 0) {
                    EncodeBuffers::default().search(&values, &mut searched);
                }
                prop_assert_eq!(bytes(&values), searched);
            }
        }

        #[test]
        fn any_column_comes_back(values in columns()) {
            let mut work = EncodeBuffers::default();
            let mut first = Vec::new();
            work.encode(&values, &mut first);
            // Buffers of one column leave no trace in the next.
            work.encode(&[5, 5, 9], &mut Vec::new());
            let mut second = Vec::new();
            work.encode(&values, &mut second);
            prop_assert_eq!(&first, &second);
            let mut back = vec![7; values.len()];
            prop_assert!(decode(&first, &mut back).is_some());
            prop_assert_eq!(&back, &values);
            let mut lazy = LazyColumn::default();
            lazy.read(&bytes(&[9; 700]), 700).unwrap();
            prop_assert_eq!(lazy.read(&first, values.len()), Some(()));
            let back: Vec<u64> = (0..lazy.rows()).map(|row| lazy.get(row)).collect();
            prop_assert_eq!(back, values);
        }

        #[test]
        fn a_column_cut_short_or_with_more_behind_it_is_refused(values in columns(), more in 0u8..255, cut: usize) {
            let whole = bytes(&values);
            prop_assume!(!whole.is_empty());
            let mut back = vec![0; values.len()];
            let short = &whole[..cut % whole.len()];
            prop_assert!(short.is_empty() || decode(short, &mut back).is_none());
            prop_assert!(short.is_empty() || LazyColumn::default().read(short, values.len()).is_none());
            let long = [&whole[..], &[more]].concat();
            prop_assert!(decode(&long, &mut back).is_none());
        }

        #[test]
        fn garbage_gives_numbers_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200), rows in 0usize..500) {
            let mut values = vec![0; rows];
            let whole = decode(&bytes, &mut values);
            let mut lazy = LazyColumn::default();
            prop_assert_eq!(lazy.read(&bytes, rows), whole);
            if whole.is_some() {
                prop_assert!(values.iter().enumerate().all(|(row, want)| lazy.get(row) == *want));
            }
        }
    }
}
