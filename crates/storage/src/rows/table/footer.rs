//! The last 64 bytes of a table file: where everything is, and whether it is ours.
//!
//! ```text
//!  0                8        12       16               24
//!  +----------------+--------+--------+----------------+
//!  | magic 8 bytes  | version| format | entries u64    |
//!  +----------------+--------+--------+----------------+
//!  24               32               40       44       48       52       56       60       64
//!  +----------------+----------------+--------+--------+--------+--------+--------+--------+
//!  | filter at u64  | index at u64   | filter | index  | filter | index  | deletes| crc u32|
//!  |                |                | len u32| len u32| crc u32| crc u32| u32    |        |
//!  +----------------+----------------+--------+--------+--------+--------+--------+--------+
//! ```
//! - `index`: the metadata region, which the module `index` draws.
//! - `format`: the layout of the blocks, [`FORMAT`](crate::rows::block::FORMAT).
//! - `deletes`: how many entries are deletes, saturating.
//! - `crc`: CRC32C of bytes 0..60. Later versions keep magic, version and crc in place.
use crate::wal::header::newer;
use crate::{Error, Result, TableFooter};
use std::path::Path;

/// Bytes of a footer.
pub const LENGTH: usize = TableFooter::LENGTH;
const MAGIC: [u8; 8] = *b"FBYTBL\r\n";
/// Version written, and the newest read. In version 1 blocks had no frames; in version 2 no [provenance](crate::Provenance) stood before the footer.
pub const VERSION: u32 = 3;

/// A footer's fields. Offsets and lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footer {
    /// Block format.
    pub format: u32,
    /// Number of entries.
    pub entries: u64,
    /// Where the filter starts.
    pub filter_at: u64,
    /// Where the metadata region starts.
    pub index_at: u64,
    /// Length of the filter.
    pub filter_len: u32,
    /// Length of the metadata region.
    pub index_len: u32,
    /// CRC32C of the filter.
    pub filter_crc: u32,
    /// CRC32C of the metadata region.
    pub index_crc: u32,
    /// Number of deletes.
    pub deletes: u32,
}

impl Footer {
    /// The footer's bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let words = [
            (8, VERSION),
            (12, self.format),
            (40, self.filter_len),
            (44, self.index_len),
            (48, self.filter_crc),
            (52, self.index_crc),
            (56, self.deletes),
        ];
        let longs = [
            (16, self.entries),
            (24, self.filter_at),
            (32, self.index_at),
        ];
        TableFooter::encode(MAGIC, &words, &longs)
    }

    /// Reads and checks the footer of a file of `file_len` bytes.
    ///
    /// # Errors
    /// [`Error::Format`] for a newer version, [`Error::Corrupt`] for anything else that does not fit.
    pub fn decode(bytes: &[u8], file_len: u64, path: &Path) -> Result<Footer> {
        let offset = file_len.saturating_sub(LENGTH as u64);
        let corrupt =
            |expected, found| Error::corrupt(path, "table footer", offset, expected, found);
        let fields = TableFooter::check(bytes, MAGIC);
        let fields = fields.map_err(|(expected, found)| corrupt(expected, found))?;
        newer(fields.version(), VERSION, path)?;
        let footer = Footer {
            format: fields.word(12),
            entries: fields.long(16),
            filter_at: fields.long(24),
            index_at: fields.long(32),
            filter_len: fields.word(40),
            index_len: fields.word(44),
            filter_crc: fields.word(48),
            index_crc: fields.word(52),
            deletes: fields.word(56),
        };
        let end = |at: u64, len: u32| at.checked_add(u64::from(len)).is_some_and(|e| e <= offset);
        if !end(footer.filter_at, footer.filter_len) || !end(footer.index_at, footer.index_len) {
            let sum = fields.word(60);
            return Err(corrupt(sum, sum));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footers_come_back_and_damage_is_seen() {
        let footer = Footer {
            format: 1,
            entries: 5,
            filter_at: 10,
            index_at: 20,
            filter_len: 10,
            index_len: 30,
            filter_crc: 1,
            index_crc: 2,
            deletes: 3,
        };
        let bytes = footer.encode();
        let path = Path::new("t");
        assert_eq!(Footer::decode(&bytes, 114, path).unwrap(), footer);
        assert!(
            Footer::decode(&bytes, 100, path).is_err(),
            "regions behind the end"
        );
        for i in 0..LENGTH {
            let mut bad = bytes;
            bad[i] ^= 1;
            assert!(
                matches!(Footer::decode(&bad, 114, path), Err(Error::Corrupt { .. })),
                "byte {i}"
            );
        }
        let mut newer = bytes;
        newer[8] = 9;
        let sum = forebay_checksum::crc32c(&newer[..60]);
        newer[60..].copy_from_slice(&sum.to_le_bytes());
        assert!(
            Footer::decode(&newer, 114, path)
                .unwrap_err()
                .to_string()
                .contains("use the forebay release")
        );
    }
}
