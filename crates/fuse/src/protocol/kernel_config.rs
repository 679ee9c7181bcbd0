//! The first request (`INIT`) and its answer, byte by byte.
//!
//! ```text
//! init     | major 4 | minor 4 | most readahead 4 | flags 4 | flags 4 | 0 44 |
//! answer   | major 4 | minor 4 | readahead 4 | flags 4 | background 2 | congestion 2 | most of a write 4 | time unit 4 |
//!          | most pages 2 | 0 2 | flags 4 | 0 28 |                                                          64 bytes
//! ```
use super::names::InitFlags;

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
    pub(super) fn new(offered: InitFlags, always: InitFlags, most_readahead: u32) -> KernelConfig {
        KernelConfig {
            offered,
            taken: offered & always,
            readahead: most_readahead,
            background: 16,
            max_write: 128 << 10,
        }
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

    pub(super) fn answer(&self, out: &mut Vec<u8>) {
        let flags = self.taken.bits();
        let page = rustix::param::page_size() as u32;
        let pages = self.max_write.max(self.readahead).div_ceil(page);
        let put4 = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_ne_bytes());
        let put2 = |out: &mut Vec<u8>, n: u16| out.extend_from_slice(&n.to_ne_bytes());
        put4(out, MAJOR);
        put4(out, MINOR);
        put4(out, self.readahead);
        put4(out, flags as u32);
        put2(out, self.background);
        put2(out, (u32::from(self.background) * 3 / 4) as u16);
        put4(out, self.max_write);
        put4(out, 1);
        put2(out, u16::try_from(pages).unwrap_or(u16::MAX));
        put2(out, 0);
        put4(out, (flags >> 32) as u32);
        out.resize(64, 0);
    }
}
