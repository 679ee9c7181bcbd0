//! The 64 bytes at the end of a table file, whichever engine's: fields of four and eight bytes, of which three are the same in all.
//!
//! ```text
//!  0                8        12                                         60       64
//!  +----------------+--------+------------------------------------------+--------+
//!  | magic 8 bytes  | version| the engine's own                         | crc u32|
//!  +----------------+--------+------------------------------------------+--------+
//! ```
//! Little-endian. `crc`: CRC32C of bytes 0..60. Later versions keep magic, version and crc in place.
use crate::encoding::{u32_at, u64_at};

/// See the head of this file.
#[derive(Debug, Clone, Copy)]
pub struct TableFooter([u8; TableFooter::LENGTH]);

impl TableFooter {
    /// Bytes of a footer.
    pub const LENGTH: usize = 64;
    const CRC: usize = 60;

    /// Of these fields and their places. The version stands at 8.
    pub fn encode(
        magic: [u8; 8],
        words: &[(usize, u32)],
        longs: &[(usize, u64)],
    ) -> [u8; TableFooter::LENGTH] {
        let mut out = [0; TableFooter::LENGTH];
        out[..8].copy_from_slice(&magic);
        for (at, word) in words {
            out[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, long) in longs {
            out[*at..at + 8].copy_from_slice(&long.to_le_bytes());
        }
        let sum = forebay_checksum::crc32c(&out[..TableFooter::CRC]);
        out[TableFooter::CRC..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Of these bytes, if they are as many, and magic and checksum are right.
    ///
    /// # Errors
    /// The checksum that stands there, and the one that the bytes have.
    pub fn check(bytes: &[u8], magic: [u8; 8]) -> Result<TableFooter, (u32, u32)> {
        let Ok(bytes) = <&[u8; TableFooter::LENGTH]>::try_from(bytes) else {
            return Err((0, forebay_checksum::crc32c(bytes)));
        };
        let expected = u32_at(bytes, TableFooter::CRC);
        let found = forebay_checksum::crc32c(&bytes[..TableFooter::CRC]);
        match bytes[..8] == magic && expected == found {
            true => Ok(TableFooter(*bytes)),
            false => Err((expected, found)),
        }
    }

    /// The version.
    pub fn version(&self) -> u32 {
        self.word(8)
    }

    /// Four bytes, at a place of the footer.
    pub fn word(&self, at: usize) -> u32 {
        u32_at(&self.0, at)
    }

    /// Eight bytes, at a place of the footer.
    pub fn long(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }
}
