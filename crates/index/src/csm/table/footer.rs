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
use forebay_storage::{Error, Result};
use std::path::Path;

/// Bytes of a footer.
pub const LENGTH: usize = 64;
const MAGIC: [u8; 8] = *b"FBYIDX\r\n";
/// Version written, and the newest read.
const VERSION: u32 = 1;

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

fn u32_at(bytes: &[u8; LENGTH], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8; LENGTH], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

impl Footer {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut out = [0; LENGTH];
        out[..8].copy_from_slice(&MAGIC);
        let words = [
            (8, VERSION),
            (12, self.blocks),
            (32, self.region_len),
            (36, self.region_crc),
        ];
        for (at, word) in words {
            out[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [(16, self.records), (24, self.region_at)] {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the footer of the file `path` of `length` bytes from its last bytes.
    ///
    /// # Errors
    /// `Format`: cut short, foreign, or of a newer version. `Corrupt`: damaged.
    pub fn decode(bytes: &[u8], length: u64, path: &Path) -> Result<Footer> {
        let format = |reason: String| {
            let path = path.to_path_buf();
            Err(Error::Format { path, reason })
        };
        let Ok(bytes) = <&[u8; LENGTH]>::try_from(bytes) else {
            return format(format!(
                "it has {length} bytes, too few for a table of the index: it was cut short; run `forebay fsck`"
            ));
        };
        if bytes[..8] != MAGIC {
            return format(String::from(
                "it does not end as a table of the index does: it was cut short, or is something else; run `forebay fsck`",
            ));
        }
        let (expected, found) = (u32_at(bytes, 60), crc32c::crc32c(&bytes[..60]));
        let corrupt = || Error::Corrupt {
            path: path.to_path_buf(),
            what: "footer",
            offset: length - LENGTH as u64,
            expected,
            found,
        };
        if expected != found {
            return Err(corrupt());
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return format(format!(
                "it has version {version}, this program knows {VERSION}; use a newer Forebay"
            ));
        }
        let footer = Footer {
            blocks: u32_at(bytes, 12),
            records: u64_at(bytes, 16),
            region_at: u64_at(bytes, 24),
            region_len: u32_at(bytes, 32),
            region_crc: u32_at(bytes, 36),
        };
        let end = footer.region_at.checked_add(footer.region_len.into());
        if end.and_then(|end| end.checked_add(LENGTH as u64)) != Some(length) {
            return Err(corrupt());
        }
        Ok(footer)
    }
}
