//! Names and headers of segment files: `NNNNNNNN.seg`, the number in hexadecimal.
//!
//! ```text
//! 0     8  magic "FBSEGMNT"
//! 8     4  version = 1, little-endian as all below
//! 12    2  member that owns the file: a file copied into another store is refused
//! 14    2  zero
//! 16    4  segment number: a renamed file is refused
//! 20    4  CRC32C of bytes 0..20
//! 24       zero to byte 4096, so that data starts on a page
//! 4096     log bytes, at the offsets that span records name
//! ```
use forebay_proto::{Member, Result};
use forebay_storage::{Error as StorageError, File, IoContext};
use std::path::Path;

/// Size of the header: where the first log byte lies.
pub const HEADER_BYTES: u64 = 4096;
const MAGIC: &[u8; 8] = b"FBSEGMNT";
const VERSION: u32 = 1;

/// File name of a segment.
pub fn name(number: u32) -> String {
    format!("{number:08x}.seg")
}

/// Number in a file name, if it is one of a segment.
pub fn number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg").filter(|d| d.len() == 8)?;
    u32::from_str_radix(digits, 16)
        .ok()
        .filter(|n| self::name(*n) == name)
}

/// The header of a new file.
pub fn header(member: Member, number: u32) -> Vec<u8> {
    let mut h = Vec::with_capacity(HEADER_BYTES as usize);
    h.extend_from_slice(MAGIC);
    h.extend_from_slice(&VERSION.to_le_bytes());
    h.extend_from_slice(&member.to_le_bytes());
    h.extend_from_slice(&[0, 0]);
    h.extend_from_slice(&number.to_le_bytes());
    let crc = forebay_checksum::crc32c(&h);
    h.extend_from_slice(&crc.to_le_bytes());
    h.resize(HEADER_BYTES as usize, 0);
    h
}

/// Checks the header of a segment file.
///
/// # Errors
/// `Format` for a file of another member, number or a newer version; `Corrupt` if it is damaged.
pub fn check_header(file: &dyn File, path: &Path, member: Member, number: u32) -> Result<()> {
    let mut h = [0; 24];
    let n = file.read_at(&mut h, 0).context("read", path)?;
    let format = |reason: String| Err(StorageError::format(path, reason).into());
    let at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    let (expected, found) = (at(20), forebay_checksum::crc32c(&h[..20]));
    if n < h.len() || expected != found || &h[..8] != MAGIC {
        let what = "segment header";
        return Err(StorageError::corrupt(path, what, 0, expected, found).into());
    }
    if at(8) > VERSION {
        return format(format!(
            "segment of version {}; this program reads up to {VERSION}: use a newer one",
            at(8)
        ));
    }
    let owner = u16::from_le_bytes([h[12], h[13]]);
    if owner != member || at(16) != number {
        return format(format!(
            "segment {} of member {owner}, not {number} of member {member}; put it back",
            at(16)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::{Io, OsIo};

    #[test]
    fn names_read_back() {
        assert_eq!(number(&name(0x1f)), Some(0x1f));
        assert_eq!(name(0x1f), "0000001f.seg");
        for bad in [
            "1f.seg",
            "0000001F.seg",
            "0000001f",
            "+000001f.seg",
            "xxxxxxxx.seg",
        ] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_foreign_or_damaged_header_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name(5));
        let file = OsIo.create(&path).unwrap();
        file.write_at(&header(2, 5), 0).unwrap();
        check_header(&*file, &path, 2, 5).unwrap();
        assert!(
            check_header(&*file, &path, 3, 5)
                .unwrap_err()
                .to_string()
                .contains("member 2")
        );
        assert!(check_header(&*file, &path, 2, 6).is_err());
        file.write_at(b"X", 3).unwrap();
        assert!(matches!(
            check_header(&*file, &path, 2, 5),
            Err(forebay_proto::Error::Storage(StorageError::Corrupt { .. }))
        ));
    }
}
