//! Looking at the log bytes of a stopped store: whether they are what was written, and whether chunks are counted as often as spans
//! name them. For `fsck`, and for those that make new records.
//!
//! | module | what it owns |
//! |---|---|
//! | `segment_files` | segment files, kept open while they are looked at |
//! | `stored_bytes` | raw bytes and chunks against their checksums; which addresses of a span these cost |
//! | `recount` | counts of chunks, from the spans |
//!
//! Nothing is changed here. Each chunk is read once, however many spans name it.
mod recount;
mod segment_files;
mod stored_bytes;

pub use recount::{Recount, recount};
pub use segment_files::SegmentFiles;
pub use stored_bytes::{BadBytes, StoredBytes};

/// How far bytes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteCheck {
    /// Whether the segment files are there and long enough.
    Lengths,
    /// Every piece is read and compared with its checksum, which takes as long as reading everything does.
    Bytes,
}
