//! Errors of encoded patterns, and of arguments of this crate's calls.

/// An error of this crate. Positions count bytes from the start of what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An offset, length or log address that no file can have.
    #[error(
        "offset {offset}, length {len}, log address {addr}: offsets, lengths and addresses end at 2^60; write nothing beyond it"
    )]
    TooFar {
        /// File offset, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
        /// Log address, bytes.
        addr: u64,
    },
    /// The bytes end inside a segment.
    #[error(
        "pattern segment at byte {at}: cut off, {have} of {need} bytes are there; take it from another copy"
    )]
    Short {
        /// Where it starts.
        at: usize,
        /// Bytes there are.
        have: usize,
        /// Bytes it says it has.
        need: usize,
    },
    /// A newer version wrote it.
    #[error(
        "pattern segment at byte {at}: version {version}, this program reads up to {known}; use a newer one"
    )]
    Newer {
        /// Where it starts.
        at: usize,
        /// Its version.
        version: u8,
        /// The newest version known here.
        known: u8,
    },
    /// The checksum is wrong.
    #[error(
        "pattern segment at byte {at}: checksum {found:08x}, expected {expected:08x}; its bytes were changed, take it from another copy"
    )]
    Checksum {
        /// Where it starts.
        at: usize,
        /// What the segment says.
        expected: u32,
        /// What its bytes have.
        found: u32,
    },
    /// The checksum is right, but the contents make no sense.
    #[error("pattern segment at byte {at}: {what}; it was written wrong, report it")]
    Malformed {
        /// Where it starts.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
