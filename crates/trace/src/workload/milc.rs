//! MILC saving its lattice in three ways (Pattern PLFS, section 3.2.1 and figure 16): the same data, one shared file.
//!
//! - `Serial` (A): sites in the order of the whole lattice, x fastest, so each rank writes many small pieces of fixed
//!   size, one row of x at a time, in a 2-d strided pattern (x and y are split among the ranks; strides vary at each
//!   step of z and t).
//! - `Contiguous` (B): each rank writes one contiguous part of the file, in pieces of a buffer's size.
//! - `Headed` (C): as B, and before it each rank writes a header of its own at the beginning of the file.

use super::{CallRange, Layout};

/// Which of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MilcLayout {
    /// (A) in lattice order.
    Serial,
    /// (B) rank by rank.
    Contiguous,
    /// (C) rank by rank, after headers.
    Headed,
}

/// See the module. Each rank has a block of `local` sites of a lattice of `grid_x * grid_y` such blocks.
#[derive(Debug, Clone)]
pub struct Milc {
    /// Ranks along x.
    pub grid_x: u32,
    /// Ranks along y.
    pub grid_y: u32,
    /// A rank's sites along x, y, z and t.
    pub local: [u64; 4],
    /// Bytes of a site: four matrices of 3 x 3 complex floats are 288.
    pub site: u64,
    /// Most bytes of a call in B and C.
    pub buffer: u64,
    /// Bytes of a rank's header in C.
    pub header: u64,
    /// Which of the three.
    pub layout: MilcLayout,
}

impl Default for Milc {
    /// 16 ranks with 4^3 x 8 sites each, in lattice order.
    fn default() -> Milc {
        Milc {
            grid_x: 4,
            grid_y: 4,
            local: [4, 4, 4, 8],
            site: 288,
            buffer: 64 << 10,
            header: 96,
            layout: MilcLayout::Serial,
        }
    }
}

impl Milc {
    /// Bytes of one rank, without header.
    fn part(&self) -> u64 {
        self.local.iter().product::<u64>() * self.site
    }

    fn row_of_sites(&self, rank: u32, index: u64) -> CallRange {
        let [lx, ly, lz, _] = self.local;
        let (gx, gy) = (u64::from(self.grid_x), u64::from(self.grid_y));
        let (rx, ry) = (u64::from(rank) % gx, u64::from(rank) / gx);
        let (y, z, t) = (index % ly, index / ly % lz, index / ly / lz);
        let row = (t * lz + z) * ly * gy + ry * ly + y;
        let site = row * lx * gx + rx * lx;
        CallRange {
            file: 0,
            offset: site * self.site,
            len: lx * self.site,
        }
    }

    fn piece_of_part(&self, rank: u32, index: u64, start: u64) -> CallRange {
        let at = index * self.buffer;
        let offset = start + u64::from(rank) * self.part() + at;
        CallRange {
            file: 0,
            offset,
            len: self.buffer.min(self.part() - at),
        }
    }
}

impl Layout for Milc {
    fn ranks(&self) -> u32 {
        self.grid_x * self.grid_y
    }

    fn files(&self) -> Vec<String> {
        vec!["milc".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        match self.layout {
            MilcLayout::Serial => self.local[1..].iter().product(),
            MilcLayout::Contiguous => self.part().div_ceil(self.buffer),
            MilcLayout::Headed => 1 + self.part().div_ceil(self.buffer),
        }
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        match (self.layout, index) {
            (MilcLayout::Serial, _) => self.row_of_sites(rank, index),
            (MilcLayout::Contiguous, _) => self.piece_of_part(rank, index, 0),
            (MilcLayout::Headed, 0) => CallRange {
                file: 0,
                offset: u64::from(rank) * self.header,
                len: self.header,
            },
            (MilcLayout::Headed, _) => {
                self.piece_of_part(rank, index - 1, u64::from(self.ranks()) * self.header)
            }
        }
    }
}
