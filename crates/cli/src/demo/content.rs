//! The content of the demo's checkpoints. A fifth of the blocks of each later checkpoint differ from the first one's; the others are
//! the same.
use forebay_trace::content::Content;

/// Blocks change as a whole; bytes.
const BLOCK_BYTES: u64 = 256 << 10;
/// One block in this many is new in each later checkpoint.
pub const CHANGED_OF: u64 = 5;

/// The content of one checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointContent {
    /// Of the first one.
    pub seed: u64,
    /// Its number; the first is 0.
    pub checkpoint: u64,
}

impl CheckpointContent {
    /// Fills `bytes`, which stand at `offset`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        for (at, part) in self.blocks(offset, bytes.len()) {
            let start = (at - offset) as usize;
            self.of(at).fill(at, &mut bytes[start..start + part]);
        }
    }

    /// Where in the file the first byte is that is not what stands there.
    pub fn first_wrong(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        self.blocks(offset, bytes.len()).find_map(|(at, part)| {
            let start = (at - offset) as usize;
            let verified = self.of(at).verify(at, &bytes[start..start + part]);
            verified.err().map(|(wrong, _)| at + wrong as u64)
        })
    }

    /// The content of the block at `at`.
    fn of(self, at: u64) -> Content {
        let is_new =
            self.checkpoint > 0 && (at / BLOCK_BYTES) % CHANGED_OF == self.checkpoint % CHANGED_OF;
        let number = if is_new { self.checkpoint } else { 0 };
        Content::new(number as u32, self.seed)
    }

    /// The parts of a record that lie in one block each: where, and how long.
    fn blocks(self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let end = offset + len as u64;
        let part_end = move |at: u64| (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let first = (offset < end).then_some(offset);
        let starts = std::iter::successors(first, move |at| {
            Some(part_end(*at)).filter(|next| *next < end)
        });
        starts.map(move |at| (at, (part_end(at).min(end) - at) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_checkpoint_differs_in_a_fifth_of_its_blocks_and_any_part_can_be_verified() {
        let len = 20 * BLOCK_BYTES as usize;
        let content = |checkpoint| CheckpointContent {
            seed: 7,
            checkpoint,
        };
        let filled = |checkpoint| {
            let mut bytes = vec![0; len];
            content(checkpoint).fill(0, &mut bytes);
            bytes
        };
        let (first, second) = (filled(0), filled(1));
        let block = BLOCK_BYTES as usize;
        let pairs = first.chunks(block).zip(second.chunks(block));
        let changed: Vec<usize> = (0..)
            .zip(pairs)
            .filter(|(_, (a, b))| a != b)
            .map(|(i, _)| i)
            .collect();
        assert_eq!(changed, [1, 6, 11, 16]);
        let part = block - 5..3 * block + 9;
        let at = part.start as u64;
        assert_eq!(content(1).first_wrong(at, &second[part.clone()]), None);
        assert_eq!(content(1).first_wrong(at, &first[part]), Some(BLOCK_BYTES));
        let mut small = [0; 9];
        content(1).fill(at, &mut small);
        assert_eq!(small, second[at as usize..at as usize + 9]);
    }
}
