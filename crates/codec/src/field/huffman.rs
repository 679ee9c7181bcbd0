//! Canonical Huffman codes of at most [`MAX_CODE_BITS`] bits, lengths by package-merge (Larmore, Hirschberg).
//!
//! The lengths of a code, as heads have them:
//!
//! ```text
//!  0        1        2
//! +--------+--------+-----------------------------------------------+
//! | first  | count  | (count + 1) nibbles, low first: lengths of the |
//! |        |        | symbols from `first` on, then of `ESCAPE`      |
//! +--------+--------+-----------------------------------------------+
//! ```
//! A length is 1 to 9; 0: the symbol does not occur; 15: no other symbol occurs, and it takes no bits.
//!
//! Invariant: a code that is parsed is complete (every sequence of bits is a sequence of symbols), is a sole symbol, or is empty:
//! there is no fourth case.
use super::FieldError;
use super::symbols::{ESCAPE, SYMBOLS};

/// The longest code, in bits. Four tables of so many bits fit a first-level cache.
pub(super) const MAX_CODE_BITS: u32 = 9;
/// Entries of a table.
pub(super) const TABLE: usize = 1 << MAX_CODE_BITS;
/// The nibble of a sole symbol.
const SOLE_SYMBOL_LENGTH: u8 = 15;

/// The lengths of a code, by symbol; [`SOLE_SYMBOL_LENGTH`] for a sole one.
pub(super) type CodeLengths = [u8; SYMBOLS];

/// The best lengths for symbols that occur so often.
pub(super) fn lengths(counts: &[u32; SYMBOLS]) -> CodeLengths {
    let mut lengths = [0; SYMBOLS];
    let mut leaves: Vec<(u32, u8)> = (0..=255)
        .zip(counts)
        .filter(|(_, n)| **n > 0)
        .map(|(symbol, n)| (*n, symbol))
        .collect();
    if let [(_, symbol)] = leaves[..] {
        lengths[symbol as usize] = SOLE_SYMBOL_LENGTH;
    }
    if leaves.len() < 2 {
        return lengths;
    }
    leaves.sort_unstable();
    if put_plain_lengths(&leaves, &mut lengths) <= MAX_CODE_BITS as usize {
        return lengths;
    }
    lengths.fill(0);
    // Of each level, from the deepest, its items in the order of their weights, and which of them are leaves.
    let mut levels: Vec<Vec<bool>> = Vec::with_capacity(MAX_CODE_BITS as usize);
    let mut packages: Vec<u64> = Vec::new();
    for _ in 0..MAX_CODE_BITS {
        let mut weights = Vec::with_capacity(leaves.len() + packages.len());
        let mut is_leaf = Vec::with_capacity(leaves.len() + packages.len());
        let (mut a, mut b) = (leaves.iter().peekable(), packages.iter().peekable());
        loop {
            let leaf = match (a.peek(), b.peek()) {
                (Some((n, _)), Some(package)) => u64::from(*n) <= **package,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let weight = if leaf {
                a.next().map(|(n, _)| u64::from(*n))
            } else {
                b.next().copied()
            };
            weights.extend(weight);
            is_leaf.push(leaf);
        }
        packages = weights.as_chunks().0.iter().map(|[a, b]| a + b).collect();
        levels.push(is_leaf);
    }
    let mut taken = 2 * leaves.len() - 2;
    for level in levels.iter().rev() {
        let of_level = level.iter().take(taken);
        let n = of_level.filter(|leaf| **leaf).count();
        for (_, symbol) in &leaves[..n] {
            lengths[*symbol as usize] += 1;
        }
        taken = 2 * (taken - n);
    }
    lengths
}

/// The lengths of Huffman's code of sorted leaves, of which there are at least two; returns the longest. Lengths above 255 are not right,
/// but are not used.
fn put_plain_lengths(leaves: &[(u32, u8)], lengths: &mut CodeLengths) -> usize {
    let n = leaves.len();
    // Leaves, then inner nodes in the order in which they are made, which is that of their weights.
    let mut weights = [0u64; 2 * SYMBOLS];
    let mut parents = [0usize; 2 * SYMBOLS];
    for (weight, (count, _)) in weights.iter_mut().zip(leaves) {
        *weight = u64::from(*count);
    }
    let (mut leaf, mut inner) = (0, n);
    for made in n..2 * n - 1 {
        for _ in 0..2 {
            let take_leaf = leaf < n && (inner >= made || weights[leaf] <= weights[inner]);
            let child = if take_leaf { &mut leaf } else { &mut inner };
            weights[made] += weights[*child];
            parents[*child] = made;
            *child += 1;
        }
    }
    let mut depths = [0usize; 2 * SYMBOLS];
    for node in (0..2 * n - 2).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    for ((_, symbol), depth) in leaves.iter().zip(&depths) {
        lengths[*symbol as usize] = *depth as u8;
    }
    depths[..n].iter().copied().max().unwrap_or(0)
}

/// The bits that a symbol takes.
pub(super) fn length(lengths: &CodeLengths, symbol: usize) -> u32 {
    match lengths[symbol] {
        SOLE_SYMBOL_LENGTH => 0,
        length => length.into(),
    }
}

/// Appends the lengths of a code.
pub(super) fn put(lengths: &CodeLengths, out: &mut Vec<u8>) {
    let plain = &lengths[..ESCAPE];
    let first = plain.iter().position(|l| *l > 0).unwrap_or(0);
    let end = plain
        .iter()
        .rposition(|l| *l > 0)
        .map_or(0, |last| last + 1);
    out.extend([first as u8, (end - first) as u8]);
    let mut nibbles = lengths[first..end].to_vec();
    nibbles.push(lengths[ESCAPE]);
    for pair in nibbles.chunks(2) {
        out.push(pair[0] | pair.get(1).unwrap_or(&0) << 4);
    }
}

/// Takes the lengths of a code off `bytes`.
pub(super) fn take(bytes: &mut &[u8]) -> Result<CodeLengths, FieldError> {
    let (&[first, count], rest) = bytes.split_first_chunk().ok_or(FieldError::Truncated)?;
    let (first, count) = (usize::from(first), usize::from(count));
    if first + count > ESCAPE {
        return Err(FieldError::Code);
    }
    let (nibbles, rest) = rest
        .split_at_checked(count / 2 + 1)
        .ok_or(FieldError::Truncated)?;
    *bytes = rest;
    let nibble = |i: usize| nibbles[i / 2] >> (i % 2 * 4) & 15;
    let mut lengths = [0; SYMBOLS];
    for i in 0..count {
        lengths[first + i] = nibble(i);
    }
    lengths[ESCAPE] = nibble(count);
    let present = lengths.iter().filter(|l| **l > 0).count();
    let sole = lengths.contains(&SOLE_SYMBOL_LENGTH);
    let mut kraft = 0u32;
    for length in lengths
        .into_iter()
        .filter(|l| *l > 0 && *l != SOLE_SYMBOL_LENGTH)
    {
        if u32::from(length) > MAX_CODE_BITS {
            return Err(FieldError::Code);
        }
        kraft += 1 << (MAX_CODE_BITS - u32::from(length));
    }
    match present {
        0 => Ok(lengths),
        1 if sole => Ok(lengths),
        _ if !sole && kraft as usize == TABLE => Ok(lengths),
        _ => Err(FieldError::Code),
    }
}

/// The canonical codes, each with its first bit lowest.
pub(super) fn codes(lengths: &CodeLengths) -> [u16; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let mut next = 0u16;
    for length in 1..=MAX_CODE_BITS {
        next <<= 1;
        for (symbol, _) in lengths
            .iter()
            .enumerate()
            .filter(|(_, l)| u32::from(**l) == length)
        {
            // With lengths from `lengths` or `take` the code fits; the mask is for others.
            codes[symbol] = next.reverse_bits() >> (16 - length);
            next = next.wrapping_add(1);
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::Random;
    use forebay_testkit::seeds::for_each_seed;

    fn random_counts(random: &mut Random) -> [u32; SYMBOLS] {
        let mut counts = [0; SYMBOLS];
        let most = 1 + random.index(256);
        let scale = random.below(31);
        for _ in 0..most {
            let bits = random.below(scale + 1);
            counts[random.index(256)] = 1 + random.below(1 << bits) as u32;
        }
        counts
    }

    #[test]
    fn codes_are_complete_and_come_back() {
        for_each_seed("huffman_codes", (500, 20_000), |seed| {
            let counts = random_counts(&mut Random::new(seed));
            let made = lengths(&counts);
            assert!((0..SYMBOLS).all(|s| (counts[s] > 0) == (made[s] > 0)));
            let mut bytes = Vec::new();
            put(&made, &mut bytes);
            bytes.push(99);
            let mut rest = &bytes[..];
            assert_eq!(take(&mut rest), Ok(made));
            assert_eq!(rest, [99]);
            for cut in 0..bytes.len() - 1 {
                assert_eq!(take(&mut &bytes[..cut]), Err(FieldError::Truncated));
            }
            // No code is the beginning of another.
            let codes = codes(&made);
            let mut owners = vec![None; TABLE];
            for s in (0..SYMBOLS).filter(|s| made[*s] > 0) {
                for slot in (codes[s] as usize..TABLE).step_by(1 << length(&made, s)) {
                    assert_eq!(owners[slot].replace(s), None);
                }
            }
        });
    }

    #[test]
    fn lengths_are_those_of_huffman_where_these_are_short() {
        let mut counts = [0; SYMBOLS];
        for (symbol, count) in [(3, 40), (7, 30), (9, 20), (200, 7), (ESCAPE, 3)] {
            counts[symbol] = count;
        }
        let made = lengths(&counts);
        assert_eq!([3, 7, 9, 200, ESCAPE].map(|s| made[s]), [1, 2, 3, 4, 4]);
    }

    #[test]
    fn rare_symbols_have_the_longest_code_and_no_longer() {
        let mut counts = [0; SYMBOLS];
        for (i, count) in counts.iter_mut().enumerate().take(30) {
            *count = 1 << i;
        }
        let made = lengths(&counts);
        assert_eq!(made[..30].iter().max(), Some(&(MAX_CODE_BITS as u8)));
        assert_eq!(made[29], 1);
    }

    #[test]
    fn codes_that_are_not_complete_are_refused() {
        let parse = |bytes: &[u8]| take(&mut &bytes[..]);
        // Two symbols of 1 bit and one of 2; one of 2 bits alone; 11 bits; two sole ones; one beyond the symbols.
        assert_eq!(parse(&[0, 2, 0x11, 2]), Err(FieldError::Code));
        assert_eq!(parse(&[0, 1, 2]), Err(FieldError::Code));
        assert_eq!(parse(&[0, 1, 11]), Err(FieldError::Code));
        assert_eq!(parse(&[0, 2, 0xff, 0]), Err(FieldError::Code));
        assert_eq!(parse(&[200, 100, 0, 0]), Err(FieldError::Code));
        assert!(parse(&[0, 2, 0x21, 2]).is_ok());
    }
}
