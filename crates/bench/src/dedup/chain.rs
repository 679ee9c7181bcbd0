//! Chains of checkpoints generated from a seed; each checkpoint differs from the one before in a given share of its bytes.
//!
//! The content of a block is a function of the seed, its number, and the checkpoint that changed it last (its version). So a chain
//! of any length takes one byte of memory a block. The content cannot be compressed.
//!
//! ```text
//! checkpoint 0 | header | 0 0 0 0 0 0 0 0 ... |     a digit is a block of 4 KiB: the checkpoint that changed it last
//! checkpoint 1 | header | 0 1 0 0 1 1 1 0 ... |     changed runs: one of a single block, one of several
//! ```
//!
//! Invariants: no two blocks of different numbers or versions have the same bytes, and no two headers do. A checkpoint has exactly
//! the share of changed bytes that its chain says, up to rounding to runs.
use forebay_testkit::random::Random;
use std::io::{self, Write};

/// Bytes of a block, and of a short run.
pub const BLOCK_BYTES: u64 = 4 << 10;
/// Bytes of a long run.
pub const LONG_RUN_BYTES: u64 = 256 << 10;
const LONG_RUN_BLOCKS: u64 = LONG_RUN_BYTES / BLOCK_BYTES;
/// Blocks that are made before they are written.
const BATCH_BLOCKS: usize = 256;
/// Stands for a block's number in what a header holds.
const HEADER: u64 = u64::MAX >> 8;

/// Which bytes of a checkpoint are not those of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedBytes {
    /// So many percent in runs of [`LONG_RUN_BYTES`] and so many in runs of [`BLOCK_BYTES`], at multiples of their lengths.
    Runs { long: u64, short: u64 },
    /// All bytes.
    All,
}

/// The shape of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainShape {
    /// Checkpoints, at most 256.
    pub checkpoints: usize,
    /// The bytes that change from one checkpoint to the next.
    pub changed: ChangedBytes,
    /// Bytes of a header before each one, in turn; none if there is no length.
    pub headers: &'static [u64],
}

/// One checkpoint of a chain; the first, until it is advanced.
pub struct Chain {
    shape: ChainShape,
    /// Bytes of a checkpoint, without its header.
    size: u64,
    seed: u64,
    random: Random,
    checkpoint: usize,
    /// The checkpoint that changed each block last.
    versions: Vec<u8>,
    distinct: u64,
}

impl Chain {
    /// A chain at its first checkpoint.
    pub fn new(shape: ChainShape, size: u64, seed: u64) -> Chain {
        let chain = Chain {
            shape,
            size,
            seed,
            random: Random::new(seed),
            checkpoint: 0,
            versions: vec![0; size.div_ceil(BLOCK_BYTES) as usize],
            distinct: 0,
        };
        let distinct = size + chain.header_bytes();
        Chain { distinct, ..chain }
    }

    /// Goes to the next checkpoint.
    pub fn advance(&mut self) {
        self.checkpoint += 1;
        let changed = match self.shape.changed {
            ChangedBytes::All => {
                self.versions.fill(self.checkpoint as u8);
                self.size
            }
            ChangedBytes::Runs { long, short } => self.change_runs(long, short),
        };
        self.distinct += changed + self.header_bytes();
    }

    /// Changes runs of blocks; returns how many bytes changed.
    fn change_runs(&mut self, long: u64, short: u64) -> u64 {
        let runs = |percent: u64, bytes: u64| (self.size * percent + bytes * 50) / (bytes * 100);
        let (long, short) = (runs(long, LONG_RUN_BYTES), runs(short, BLOCK_BYTES));
        let version = self.checkpoint as u8;
        let places = (0..(self.size / LONG_RUN_BYTES) as u32).collect();
        let long = self.pick(places, long);
        for run in &long {
            let first = (u64::from(*run) * LONG_RUN_BLOCKS) as usize;
            self.versions[first..][..LONG_RUN_BLOCKS as usize].fill(version);
        }
        let whole = 0..(self.size / BLOCK_BYTES) as u32;
        let places = whole.filter(|block| self.versions[*block as usize] != version);
        let places = places.collect();
        let short = self.pick(places, short);
        for block in &short {
            self.versions[*block as usize] = version;
        }
        long.len() as u64 * LONG_RUN_BYTES + short.len() as u64 * BLOCK_BYTES
    }

    /// `count` of the places, or all if there are fewer, each with the same probability.
    fn pick(&mut self, mut places: Vec<u32>, count: u64) -> Vec<u32> {
        let count = places.len().min(count as usize);
        for i in 0..count {
            let other = i + self.random.below((places.len() - i) as u64) as usize;
            places.swap(i, other);
        }
        places.truncate(count);
        places
    }

    /// The checkpoint that changed each block last.
    pub fn versions(&self) -> &[u8] {
        &self.versions
    }

    /// Different bytes of all checkpoints so far: what an index that knows every byte would store.
    pub fn distinct_bytes(&self) -> u64 {
        self.distinct
    }

    /// Bytes of the header before this checkpoint.
    pub fn header_bytes(&self) -> u64 {
        let headers = self.shape.headers.iter().cycle();
        headers.copied().nth(self.checkpoint).unwrap_or(0)
    }

    /// Writes the header and the checkpoint.
    ///
    /// # Errors
    /// As `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut header = vec![0; self.header_bytes() as usize];
        self.fill(HEADER, self.checkpoint as u8, &mut header);
        out.write_all(&header)?;
        let mut batch = vec![0; BATCH_BLOCKS * BLOCK_BYTES as usize];
        let mut left = self.size;
        for (n, versions) in (0..).zip(self.versions.chunks(BATCH_BLOCKS)) {
            let blocks = batch.chunks_exact_mut(BLOCK_BYTES as usize);
            for (block, (version, bytes)) in
                (n * BATCH_BLOCKS as u64..).zip(versions.iter().zip(blocks))
            {
                self.fill(block, *version, bytes);
            }
            let len = left.min(versions.len() as u64 * BLOCK_BYTES);
            out.write_all(&batch[..len as usize])?;
            left -= len;
        }
        Ok(())
    }

    fn fill(&self, block: u64, version: u8, bytes: &mut [u8]) {
        // The states of neighbours would be those of one sequence, so each begins at a number of it.
        let mut state = Random::new(self.seed);
        state = Random::new(state.next() ^ (block << 8 | u64::from(version)));
        Random::new(state.next()).fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SIZE: u64 = 16 << 20;
    const HEADERS: &[u64] = &[137, 512, 4113];

    fn shape(long: u64, short: u64, headers: &'static [u64]) -> ChainShape {
        ChainShape {
            checkpoints: 3,
            changed: ChangedBytes::Runs { long, short },
            headers,
        }
    }

    /// The checkpoints, and how many different bytes the chain says they have.
    fn written(shape: ChainShape, size: u64, seed: u64) -> (Vec<Vec<u8>>, u64) {
        let mut chain = Chain::new(shape, size, seed);
        let mut all = Vec::new();
        for n in 0..shape.checkpoints {
            if n > 0 {
                chain.advance();
            }
            let mut bytes = Vec::new();
            chain.write(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, chain.header_bytes() + size);
            all.push(bytes);
        }
        (all, chain.distinct_bytes())
    }

    /// Lengths of the runs of changed blocks, in blocks.
    fn changed_runs(a: &[u8], b: &[u8]) -> Vec<usize> {
        let block = BLOCK_BYTES as usize;
        let same = a.chunks(block).zip(b.chunks(block)).map(|(a, b)| a == b);
        let same: Vec<bool> = same.collect();
        let runs = same.split(|same| *same).map(<[bool]>::len);
        runs.filter(|len| *len > 0).collect()
    }

    #[test]
    fn a_fifth_of_the_bytes_changes_half_of_it_in_long_runs() {
        let (all, distinct) = written(shape(10, 10, &[]), SIZE, 1);
        for pair in all.windows(2) {
            let runs = changed_runs(&pair[0], &pair[1]);
            let blocks = runs.iter().sum::<usize>() as f64;
            let share = blocks / (SIZE / BLOCK_BYTES) as f64;
            assert!((share - 0.2).abs() < 0.01, "{share}");
            let long: usize = runs.iter().filter(|len| **len >= 64).sum();
            // Short runs beside a long one make it longer.
            let long = long as f64 / blocks;
            assert!((0.45..0.6).contains(&long), "{long}");
        }
        let expected = SIZE as f64 * 1.4;
        assert!((distinct as f64 - expected).abs() < 0.01 * expected);
    }

    #[test]
    fn runs_have_the_length_that_the_shape_says() {
        let (long, _) = written(shape(20, 0, &[]), SIZE, 1);
        let runs = changed_runs(&long[0], &long[1]);
        assert!(runs.iter().all(|len| len % 64 == 0), "{runs:?}");
        assert_eq!(runs.iter().sum::<usize>(), 13 * 64);
        let (short, _) = written(shape(0, 20, &[]), SIZE, 1);
        let runs = changed_runs(&short[0], &short[1]);
        assert_eq!(runs.iter().sum::<usize>(), 819);
        assert!(runs.len() > 500 && runs.iter().all(|len| *len < 16));
    }

    #[test]
    fn a_header_is_before_each_checkpoint_and_moves_its_bytes() {
        let (plain, _) = written(shape(10, 10, &[]), SIZE, 1);
        let (shifted, distinct) = written(shape(10, 10, HEADERS), SIZE, 1);
        let mut headers = HashSet::new();
        for ((plain, shifted), len) in plain.iter().zip(&shifted).zip(HEADERS) {
            let (header, rest) = shifted.split_at(*len as usize);
            assert!(rest == plain && headers.insert(&header[..137]));
        }
        let (_, without) = written(shape(10, 10, &[]), SIZE, 1);
        assert_eq!(distinct - without, HEADERS.iter().sum::<u64>());
    }

    #[test]
    fn distinct_bytes_are_those_of_all_different_blocks() {
        for shape in [
            shape(10, 10, &[]),
            ChainShape {
                changed: ChangedBytes::All,
                ..shape(0, 0, &[])
            },
        ] {
            let (all, distinct) = written(shape, SIZE, 1);
            let blocks = all.iter().flat_map(|c| c.chunks(BLOCK_BYTES as usize));
            let blocks: HashSet<&[u8]> = blocks.collect();
            assert_eq!(blocks.len() as u64 * BLOCK_BYTES, distinct);
        }
    }

    #[test]
    fn a_seed_gives_the_same_bytes_and_another_one_others() {
        let shape = shape(10, 10, HEADERS);
        let (one, two) = (written(shape, SIZE, 5), written(shape, SIZE, 5));
        assert!(one == two && one.0 != written(shape, SIZE, 6).0);
    }

    #[test]
    fn a_size_need_not_be_whole_blocks() {
        for size in [1, 4095, 5000, LONG_RUN_BYTES + 1] {
            let (all, distinct) = written(shape(10, 10, HEADERS), size, 1);
            assert_eq!(all.len(), 3);
            assert!(distinct >= size && distinct <= 3 * (size + 5000));
        }
    }
}
