//! Checks the log bytes of a stopped store: whether bytes match their checksums and fingerprints, and whether each chunk's count is the number of
//! runs of spans and bases that name it. Used by `fsck`, rebuild and repair. Changes nothing.
//!
//! | module | what it owns |
//! |---|---|
//! | `segment_files` | segment files, kept open during the check |
//! | `stored_bytes` | checks raw bytes and chunks against their checksums; says which addresses of a span are damaged |
//! | `wrong_fingerprints` | chunks whose fingerprint is not that of their bytes |
//! | `recount` | counts of chunks, from the spans and the holds of bases |
//!
//! The bytes of a chunk are read the same few times however many spans name it: for checksums, to be decoded, and for fingerprints.
mod recount;
mod segment_files;
mod stored_bytes;
mod wrong_fingerprints;

pub use recount::{Recount, recount};
pub use segment_files::SegmentFiles;
pub use stored_bytes::{BadBytes, StoredBytes};

/// How thoroughly bytes are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteCheck {
    /// Whether the segment files are there and long enough.
    Lengths,
    /// Every piece is read and compared with its checksum; this reads all data.
    Bytes,
}
