//! The most recently used shapes, newest first. Most lists use few shapes, so their indexes here are short codes.

use crate::shape::Shape;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShapeCache(Vec<Shape>);

impl ShapeCache {
    /// Shapes remembered.
    pub(crate) const SIZE: u64 = 8;

    pub(crate) fn place(&self, shape: Shape) -> Option<u64> {
        self.0.iter().position(|&s| s == shape).map(|at| at as u64)
    }

    pub(crate) fn get(&self, place: u64) -> Option<Shape> {
        self.0.get(usize::try_from(place).ok()?).copied()
    }

    /// `shape` is the newest now.
    pub(crate) fn used(&mut self, shape: Shape) {
        let at = self.0.iter().position(|&s| s == shape).unwrap_or_else(|| {
            self.0.truncate(Self::SIZE as usize - 1);
            self.0.push(shape);
            self.0.len() - 1
        });
        self.0[..=at].rotate_right(1);
    }
}
