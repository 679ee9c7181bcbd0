//! The first request (`INIT`) and its answer, byte by byte.
//!
//! ```text
//! init     | major 4 | minor 4 | most readahead 4 | flags 4 | flags 4 | 0 44 |
//! answer   | major 4 | minor 4 | readahead 4 | flags 4 | background 2 | congestion 2 | most of a write 4 | time unit 4 |
//!          | most pages 2 | 0 2 | flags 4 | 0 28 |                                                          64 bytes
//! ```
use super::reply::{Answer, ReplyFields};
use super::types::InitFlags;

pub(super) const MAJOR: u32 = 7;
/// The kernel's structures are those of this version.
const MINOR: u32 = 40;
/// Bytes of the longest head and arguments of a write, generously.
pub(super) const ARGUMENTS: usize = 4096;

/// What the kernel offers and the mount takes.
pub(crate) struct KernelConfig {
    offered: InitFlags,
    taken: InitFlags,
    /// Bytes to read ahead; at first, and at most, as far as the kernel goes.
    pub readahead: u32,
    /// Requests of readahead and direct I/O in flight at once.
    pub background: u16,
    /// Bytes of one write; the kernel may allow less.
    pub max_write: u32,
}

impl KernelConfig {
    /// `always` is taken of what is `offered`; `most_readahead`: bytes, as far as the kernel goes.
    pub fn new(offered: InitFlags, always: InitFlags, most_readahead: u32) -> KernelConfig {
        KernelConfig {
            offered,
            taken: offered & always,
            readahead: most_readahead,
            background: 16,
            max_write: 128 << 10,
        }
    }

    /// Whether the kernel can do all of these.
    pub fn offers(&self, features: InitFlags) -> bool {
        self.offered.contains(features)
    }

    /// Asks for these, all of them or none.
    ///
    /// # Errors
    /// Those that the kernel lacks.
    pub fn add_capabilities(&mut self, wanted: InitFlags) -> Result<(), InitFlags> {
        if !self.offered.contains(wanted) {
            return Err(wanted.difference(self.offered));
        }
        self.taken |= wanted;
        Ok(())
    }

    /// Whether all of these are taken.
    #[cfg(test)]
    pub fn takes(&self, flags: InitFlags) -> bool {
        self.taken.contains(flags)
    }
}

impl Answer for &KernelConfig {
    fn encode(&self, fields: ReplyFields) -> ReplyFields {
        let flags = self.taken.bits();
        let page = rustix::param::page_size() as u32;
        let pages = self.max_write.max(self.readahead).div_ceil(page);
        fields
            .n4(MAJOR)
            .n4(MINOR)
            .n4(self.readahead)
            .n4(flags as u32)
            .n2(self.background)
            .n2((u32::from(self.background) * 3 / 4) as u16)
            .n4(self.max_write)
            .n4(1)
            .n2(u16::try_from(pages).unwrap_or(u16::MAX))
            .n2(0)
            .n4((flags >> 32) as u32)
            .zeros_to(64)
    }
}
