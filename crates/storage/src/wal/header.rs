//! The first 32 bytes of a log file and of the manifest.
//!
//! ```text
//!  0                8        12       16               24       28       32
//!  +----------------+--------+--------+----------------+--------+--------+
//!  | magic 8 bytes  | version| zero   | number u64     | zero   | crc u32|
//!  +----------------+--------+--------+----------------+--------+--------+
//! ```
//! - `magic`: what kind of file this is.
//! - `version`: of the format; a newer one is refused with advice. Every future version keeps the
//!   magic, the version and the checksum where they are, so that a newer version is not taken for damage.
//! - `number`: the number in the file's name, so that a file under a wrong name is noticed.
//! - `crc`: CRC32C of bytes 0..28.
use crate::encoding::{u32_at, u64_at};
use crate::{Error, Result};
use std::path::Path;

/// Bytes of a file header.
pub const LENGTH: usize = 32;

/// Which kind of file, and the newest version this program knows.
#[derive(Debug, Clone, Copy)]
pub struct FileKind {
    /// First eight bytes.
    pub magic: [u8; 8],
    /// Version written, and the newest read.
    pub version: u32,
    /// The oldest version read.
    pub oldest: u32,
}

/// The header of file `number`.
pub fn encode(kind: FileKind, number: u64) -> [u8; LENGTH] {
    let mut out = [0; LENGTH];
    out[..8].copy_from_slice(&kind.magic);
    out[8..12].copy_from_slice(&kind.version.to_le_bytes());
    out[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = forebay_checksum::crc32c(&out[..28]);
    out[28..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Checks a header of a file that should have this number.
///
/// # Errors
/// [`Error::Format`] for a whole header of another kind, number or a newer version;
/// [`Error::Corrupt`] for anything else that is not a header.
pub fn check(kind: FileKind, number: u64, bytes: &[u8], path: &Path) -> Result<()> {
    let found = read(kind, bytes, path)?;
    if found != number {
        let reason = format!("is file number {found}, under a wrong name; rename it back");
        return Err(Error::format(path, reason));
    }
    Ok(())
}

/// The number in a header.
///
/// # Errors
/// As [`check`], but for the number.
pub fn read(kind: FileKind, bytes: &[u8], path: &Path) -> Result<u64> {
    let corrupt = |expected, found| Error::corrupt(path, "file header", 0, expected, found);
    let Some(head) = bytes.get(..LENGTH) else {
        return Err(corrupt(0, forebay_checksum::crc32c(bytes)));
    };
    let (expected, found) = (u32_at(head, 28), forebay_checksum::crc32c(&head[..28]));
    if expected != found {
        return Err(corrupt(expected, found));
    }
    if head[..8] != kind.magic {
        let reason = "not the file its name says; restore it from a copy";
        return Err(Error::format(path, reason));
    }
    let version = u32_at(head, 8);
    newer(version, kind.version, path)?;
    if version < kind.oldest {
        let reason = format!(
            "format version {version} is older than this program's {}; copy the files out with the forebay release that wrote it",
            kind.oldest
        );
        return Err(Error::format(path, reason));
    }
    Ok(u64_at(head, 16))
}

/// Refuses a version from the future, and says what to do.
pub fn newer(found: u32, known: u32, path: &Path) -> Result<()> {
    if found <= known {
        return Ok(());
    }
    let reason = format!(
        "format version {found} is newer than this program's {known}; use the forebay release that wrote it, or a later one"
    );
    Err(Error::format(path, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: FileKind = FileKind {
        magic: *b"FBYTEST\0",
        version: 2,
        oldest: 2,
    };

    #[test]
    fn good_newer_foreign_and_damaged_headers() {
        let path = Path::new("f");
        let good = encode(KIND, 7);
        assert!(check(KIND, 7, &good, path).is_ok());
        assert!(matches!(
            check(KIND, 8, &good, path),
            Err(Error::Format { .. })
        ));
        let older = encode(FileKind { version: 1, ..KIND }, 7);
        assert!(
            check(KIND, 7, &older, path)
                .unwrap_err()
                .to_string()
                .contains("copy the files out")
        );
        let newer = encode(FileKind { version: 3, ..KIND }, 7);
        assert!(
            check(KIND, 7, &newer, path)
                .unwrap_err()
                .to_string()
                .contains("use the forebay release")
        );
        let foreign = encode(
            FileKind {
                magic: *b"ABCDEFGH",
                ..KIND
            },
            7,
        );
        assert!(matches!(
            check(KIND, 7, &foreign, path),
            Err(Error::Format { .. })
        ));
        for i in 0..LENGTH {
            let mut bad = good;
            bad[i] ^= 4;
            assert!(
                matches!(check(KIND, 7, &bad, path), Err(Error::Corrupt { .. })),
                "byte {i}"
            );
        }
        assert!(matches!(
            check(KIND, 7, &good[..20], path),
            Err(Error::Corrupt { .. })
        ));
    }
}
