//! The last 64 bytes of a table file: where the metadata region is, and whether the file is ours.
//!
//! ```text
//!  0                8        12       16               24               32       36       40
//!  +----------------+--------+--------+----------------+----------------+--------+--------+
//!  | magic 8 bytes  | version| blocks | records u64    | region at u64  | region | region |
//!  |                | u32    | u32    |                |                | len u32| crc u32|
//!  +----------------+--------+--------+----------------+----------------+--------+--------+
//!  40                                                                   60       64
//!  +--------------------------------------------------------------------+--------+
//!  | zeros                                                              | crc u32|
//!  +--------------------------------------------------------------------+--------+
//! ```
//! Little-endian. `crc`: CRC32C of bytes 0..60. Later versions keep magic, version and crc in place.
//!
//! A copy, with a copy of the region after it, is at the beginning of the file, for a file whose end is damaged or cut off; there `region at` is
//! 64.
use forebay_storage::{Error, Result, TableFooter};
use std::path::Path;

/// Bytes of a footer.
pub const LENGTH: usize = TableFooter::LENGTH;
const MAGIC: [u8; 8] = *b"FBYIDX\r\n";
/// Version written, and the only one read. In version 1 there was no copy at the beginning, in version 2 no provenance at the end.
const VERSION: u32 = 3;

/// A footer's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footer {
    /// Number of blocks.
    pub blocks: u32,
    /// Number of records in all blocks.
    pub records: u64,
    /// Where the metadata region starts, bytes.
    pub region_at: u64,
    /// Its length, bytes.
    pub region_len: u32,
    /// Its CRC32C.
    pub region_crc: u32,
}

impl Footer {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let words = [
            (8, VERSION),
            (12, self.blocks),
            (32, self.region_len),
            (36, self.region_crc),
        ];
        let longs = [(16, self.records), (24, self.region_at)];
        TableFooter::encode(MAGIC, &words, &longs)
    }

    /// Reads the footer of the file `path` of `length` bytes from its last bytes.
    ///
    /// # Errors
    /// `Format`: of another version. `Corrupt`: cut short, foreign, or damaged.
    pub fn decode(bytes: &[u8], length: u64, path: &Path) -> Result<Footer> {
        let offset = length.saturating_sub(LENGTH as u64);
        let footer = Footer::read(bytes, offset, path)?;
        let end = footer.region_at.checked_add(footer.region_len.into());
        match end.is_some_and(|end| end <= offset) {
            true => Ok(footer),
            false => Err(corrupt(path, offset, 0, 0)),
        }
    }

    /// Reads the copy from the first bytes of the file.
    ///
    /// # Errors
    /// As [`decode`](Footer::decode).
    pub fn decode_copy(bytes: &[u8], path: &Path) -> Result<Footer> {
        let footer = Footer::read(bytes, 0, path)?;
        match footer.region_at == LENGTH as u64 {
            true => Ok(footer),
            false => Err(corrupt(path, 0, 0, 0)),
        }
    }

    fn read(bytes: &[u8], offset: u64, path: &Path) -> Result<Footer> {
        let fields = TableFooter::check(bytes, MAGIC);
        let fields = fields.map_err(|(expected, found)| corrupt(path, offset, expected, found))?;
        let version = fields.version();
        if version != VERSION {
            return Err(Error::format(
                path,
                format!(
                    "it has version {version}, this program knows {VERSION}; use a newer Forebay"
                ),
            ));
        }
        Ok(Footer {
            blocks: fields.word(12),
            records: fields.long(16),
            region_at: fields.long(24),
            region_len: fields.word(32),
            region_crc: fields.word(36),
        })
    }
}

fn corrupt(path: &Path, offset: u64, expected: u32, found: u32) -> Error {
    Error::corrupt(path, "footer", offset, expected, found)
}
