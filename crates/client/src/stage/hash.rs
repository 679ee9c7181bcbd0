//! A hash that is the same on every node and in every version: names temporary files, journal records and the node of a file.

/// FNV-1a of 64 bits, mixed at the end. Not for adversaries: a record counts only together with the target's own size and time.
#[derive(Debug, Clone, Copy)]
pub struct StableHash(u64);

impl StableHash {
    /// The family's `seed`-th.
    pub fn new(seed: u64) -> StableHash {
        StableHash(0xcbf2_9ce4_8422_2325).number(seed)
    }

    /// Goes on with bytes.
    pub fn add(mut self, bytes: &[u8]) -> StableHash {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    /// Goes on with a number.
    pub fn number(self, number: u64) -> StableHash {
        self.add(&number.to_le_bytes())
    }

    /// The hash.
    pub fn finish(self) -> u64 {
        let mut x = self.0;
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_changes() {
        // Journals of older versions are read by newer ones.
        assert_eq!(
            StableHash::new(0).add(b"forebay").finish(),
            0x8aaa_a0b3_72c7_d958
        );
        assert_eq!(
            StableHash::new(0).add(b"forebay").finish(),
            StableHash::new(0).add(b"fore").add(b"bay").finish()
        );
        assert_ne!(
            StableHash::new(0).add(b"a").finish(),
            StableHash::new(1).add(b"a").finish()
        );
        let buckets = (0..1000u64).map(|n| StableHash::new(2).number(n).finish() % 4);
        let zeros = buckets.filter(|b| *b == 0).count();
        assert!((200..300).contains(&zeros), "{zeros}");
    }
}
