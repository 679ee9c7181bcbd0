//! An element: one extent of one log.

/// Bytes of a file and where they are in a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Element {
    /// First byte of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Log address of the first byte.
    pub addr: u64,
}

impl Element {
    /// The offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
