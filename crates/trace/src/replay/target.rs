//! The target of a replay.

use std::io;

/// A place with files, seen from several nodes: mounts, library clients, or plain directories.
///
/// The replay asks no more than commit consistency: what a handle wrote must be visible to handles that are opened,
/// on any node, after the writer's `fsync` or `close` returned. Names are plain file names.
pub trait Target: Sync {
    /// An open file.
    type Handle: Send;

    /// Number of nodes, at least 1.
    fn nodes(&self) -> u32;

    /// Creates the file, empty; one that is there is emptied.
    ///
    /// # Errors
    /// What the file system says; so for all calls.
    fn create(&self, node: u32, name: &str) -> io::Result<Self::Handle>;

    /// Opens the file for reading and writing.
    ///
    /// # Errors
    /// As above.
    fn open(&self, node: u32, name: &str) -> io::Result<Self::Handle>;

    /// Reads up to `buf.len()` bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// As above.
    fn read(&self, handle: &mut Self::Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `buf`.
    ///
    /// # Errors
    /// As above.
    fn write(&self, handle: &mut Self::Handle, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Sets the file's size.
    ///
    /// # Errors
    /// As above.
    fn set_len(&self, handle: &mut Self::Handle, len: u64) -> io::Result<()>;

    /// The file's size.
    ///
    /// # Errors
    /// As above.
    fn len(&self, handle: &mut Self::Handle) -> io::Result<u64>;

    /// Publishes what this handle wrote.
    ///
    /// # Errors
    /// As above.
    fn fsync(&self, handle: &mut Self::Handle) -> io::Result<()>;

    /// Publishes and closes.
    ///
    /// # Errors
    /// As above; the handle is gone.
    fn close(&self, handle: Self::Handle) -> io::Result<()>;
}
