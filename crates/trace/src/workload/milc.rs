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
    /// (B) rank by rank, at most `buffer` bytes a call.
    Contiguous { buffer: u64 },
    /// (C) the same after a header of each rank, in bytes.
    Headed { buffer: u64, header: u64 },
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
    /// Which of the three.
    pub layout: MilcLayout,
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
        CallRange::shared(site * self.site, lx * self.site)
    }

    fn piece_of_part(&self, rank: u32, index: u64, buffer: u64, start: u64) -> CallRange {
        let at = index * buffer;
        let offset = start + u64::from(rank) * self.part() + at;
        CallRange::shared(offset, buffer.min(self.part() - at))
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
            MilcLayout::Contiguous { buffer } => self.part().div_ceil(buffer),
            MilcLayout::Headed { buffer, .. } => 1 + self.part().div_ceil(buffer),
        }
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        match (self.layout, index) {
            (MilcLayout::Serial, _) => self.row_of_sites(rank, index),
            (MilcLayout::Contiguous { buffer }, _) => self.piece_of_part(rank, index, buffer, 0),
            (MilcLayout::Headed { header, .. }, 0) => {
                CallRange::shared(u64::from(rank) * header, header)
            }
            (MilcLayout::Headed { buffer, header }, _) => {
                self.piece_of_part(rank, index - 1, buffer, u64::from(self.ranks()) * header)
            }
        }
    }
}
