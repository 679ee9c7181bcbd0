//! MPI-Tile-IO: a dense two-dimensional data set in row order; each rank has one tile, each call is one of its rows.
//!
//! ```text
//! row 0   | tile 0,0 | tile 1,0 | ...        rank = y * tiles_x + x
//! row 1   | tile 0,0 | tile 1,0 | ...
//! ```

use super::{CallRange, Layout};

/// See the module.
#[derive(Debug, Clone)]
pub struct Tile {
    /// Tiles side by side in a row.
    pub tiles_x: u32,
    /// Tiles below each other.
    pub tiles_y: u32,
    /// Elements in a tile's row.
    pub width: u64,
    /// Rows of a tile.
    pub height: u64,
    /// Bytes of an element.
    pub element: u64,
}

impl Layout for Tile {
    fn ranks(&self) -> u32 {
        self.tiles_x * self.tiles_y
    }

    fn files(&self) -> Vec<String> {
        vec!["tile".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.height
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let (x, y) = (
            u64::from(rank % self.tiles_x),
            u64::from(rank / self.tiles_x),
        );
        let row = y * self.height + index;
        let element = row * u64::from(self.tiles_x) * self.width + x * self.width;
        CallRange::shared(element * self.element, self.width * self.element)
    }
}
