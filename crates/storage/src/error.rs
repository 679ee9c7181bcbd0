//! What can go wrong in a store: few kinds, each telling the user what to do next.
use std::path::PathBuf;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a call.
    #[error("{what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, #[source] source: std::io::Error },
    /// Bytes on disk are not what was written there.
    #[error("{}: {what} at byte {offset} is damaged (checksum {found:08x}, expected {expected:08x}); run `forebay fsck`", path.display())]
    Corrupt { path: PathBuf, what: &'static str, offset: u64, expected: u32, found: u32 },
    /// A file is of a newer version, or no file of ours.
    #[error("{}: {reason}", path.display())]
    Format { path: PathBuf, reason: String },
    /// No room. Earlier data is intact; deleting works.
    #[error("{}: no space left; free some, earlier data is intact", path.display())]
    NoSpace { path: PathBuf },
    /// An earlier write failed; nothing more is accepted until the store is opened again.
    #[error("{}: closed after a failed write ({reason}); open the store again", path.display())]
    Poisoned { path: PathBuf, reason: String },
}
