//! BLAKE3 of many chunks of 4 KiB at once.
//!
//! BLAKE3 hashes the 1 KiB parts of its input side by side, one in each lane of a vector register, and joins the results two by two:
//!
//! ```text
//! chunk      |  part 0  |  part 1  |  part 2  |  part 3  |      1 KiB each
//!                 \         /           \         /
//!                   parent                parent                64 bytes in: two results
//!                          \             /
//!                               root
//! ```
//! One chunk of 4 KiB fills 4 lanes. A processor with AVX-512 has 16, one with AVX2 8. So the same part of up to 16 chunks is hashed
//! together; with AVX-512 that takes two thirds of the time.
//!
//! It calls the vector code of `blake3` by an interface that the crate keeps for its own benchmarks and may change, therefore
//! `Cargo.toml` names one version exactly. Invariant (a test): the results are those of `blake3::hash`.
use crate::chunk::MIN_CHUNK_BYTES;
use blake3::IncrementCounter;
use blake3::platform::Platform;

/// Bytes of a chunk that is hashed with others.
pub const PAGE_BYTES: usize = MIN_CHUNK_BYTES as usize;
/// Most chunks that are hashed at once.
pub const MAX_PAGES: usize = 16;
/// Bytes of a result.
const HASH_BYTES: usize = 32;
/// Bytes of a part.
const PART_BYTES: usize = 1024;
const PARTS: usize = PAGE_BYTES / PART_BYTES;
// The tree above.
const _: () = assert!(PARTS == 4);
/// The initial value and the flags of the BLAKE3 specification (sections 2.2 and 2.3).
const INITIAL_VALUE: [u32; 8] = [
    0x6A09_E667,
    0xBB67_AE85,
    0x3C6E_F372,
    0xA54F_F53A,
    0x510E_527F,
    0x9B05_688C,
    0x1F83_D9AB,
    0x5BE0_CD19,
];
const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;

type Hash = [u8; HASH_BYTES];

/// The hashes of at most [`MAX_PAGES`] chunks, in their order; behind them any bytes.
pub fn hash_pages(pages: &[&[u8; PAGE_BYTES]]) -> [Hash; MAX_PAGES] {
    debug_assert!(pages.len() <= MAX_PAGES);
    let platform = Platform::detect();
    let mut parts = [[[0; HASH_BYTES]; PARTS]; MAX_PAGES];
    for at in 0..PARTS {
        let inputs = pages
            .iter()
            .map(|page| &page.as_chunks::<PART_BYTES>().0[at]);
        let mut hashes = [[0; HASH_BYTES]; MAX_PAGES];
        let out = hashes.as_flattened_mut();
        let input = HashInputs::of(inputs);
        platform.hash_many(
            input.listed(),
            &INITIAL_VALUE,
            at as u64,
            IncrementCounter::No,
            0,
            CHUNK_START,
            CHUNK_END,
            out,
        );
        for (parts, hash) in parts.iter_mut().zip(hashes) {
            parts[at] = hash;
        }
    }
    let mut parents = [[[0; HASH_BYTES]; 2]; MAX_PAGES];
    for at in 0..2 {
        let pairs = parts.iter().map(|parts| [parts[2 * at], parts[2 * at + 1]]);
        let hashes = join_pairs(platform, pairs.take(pages.len()), PARENT);
        for (parents, hash) in parents.iter_mut().zip(hashes) {
            parents[at] = hash;
        }
    }
    join_pairs(
        platform,
        parents.into_iter().take(pages.len()),
        PARENT | ROOT,
    )
}

/// The hashes of pairs of hashes.
fn join_pairs(
    platform: Platform,
    pairs: impl Iterator<Item = [Hash; 2]>,
    flags: u8,
) -> [Hash; MAX_PAGES] {
    let mut blocks = [[0; 2 * HASH_BYTES]; MAX_PAGES];
    let mut count = 0;
    for (block, pair) in blocks.iter_mut().zip(pairs) {
        block.copy_from_slice(pair.as_flattened());
        count += 1;
    }
    let mut hashes = [[0; HASH_BYTES]; MAX_PAGES];
    let inputs = HashInputs::of(blocks[..count].iter());
    let out = hashes.as_flattened_mut();
    let no = IncrementCounter::No;
    platform.hash_many(inputs.listed(), &INITIAL_VALUE, 0, no, flags, 0, 0, out);
    hashes
}

/// The inputs of one call that hashes several.
struct HashInputs<'a, const N: usize> {
    list: [&'a [u8; N]; MAX_PAGES],
    count: usize,
}

impl<'a, const N: usize> HashInputs<'a, N> {
    fn of(inputs: impl Iterator<Item = &'a [u8; N]>) -> HashInputs<'a, N> {
        let mut list = [&[0; N]; MAX_PAGES];
        let mut count = 0;
        for (place, input) in list.iter_mut().zip(inputs) {
            *place = input;
            count += 1;
        }
        HashInputs { list, count }
    }

    fn listed(&self) -> &[&'a [u8; N]] {
        &self.list[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::seeded_bytes;

    #[test]
    fn the_hashes_are_those_of_the_chunks_alone() {
        let bytes = seeded_bytes(1, MAX_PAGES * PAGE_BYTES);
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        for count in 0..=MAX_PAGES {
            let some: Vec<_> = pages.iter().rev().take(count).collect();
            let hashes = hash_pages(&some);
            for (page, hash) in some.iter().zip(hashes) {
                assert_eq!(hash, *blake3::hash(&page[..]).as_bytes(), "of {count}");
            }
        }
    }
}
