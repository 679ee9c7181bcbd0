//! Where reference points are.
//!
//! A reference point is a value that is coded against zero, so that decoding can begin there. The paper appends `R` of them to
//! the file, one each `N / R` values. Every piece must decode alone, so a piece begins with one, and further ones divide it evenly.
use crate::container::{MAX_CONTAINER_LEN, PIECE_LEN, PieceEdges};
use crate::cost::Bandwidths;
use crate::element::ElementLayout;

/// Points are at multiples of this many values, so that codes, two a byte, begin with a byte there.
const ALIGNMENT: usize = 8;
/// The least values from one point to the next.
const MIN_SPACING: usize = 16;

/// How many reference points a container has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReferencePoints {
    /// So many in a container of the greatest length, never fewer than one a piece; shorter ones have them as far apart.
    Count(u64),
    /// What the paper's model finds best at these bandwidths.
    Best(Bandwidths),
}

impl ReferencePoints {
    /// Values from one point to the next, in a container of so many raw bytes.
    pub(super) fn spacing(self, layout: &ElementLayout, raw_len: usize) -> usize {
        let of_bytes = |bytes: usize| bytes.min(MAX_CONTAINER_LEN) / layout.element.width();
        let (elements, points) = match self {
            ReferencePoints::Count(points) => (of_bytes(MAX_CONTAINER_LEN), points),
            ReferencePoints::Best(store) => {
                let elements = of_bytes(raw_len);
                (elements, store.best_points(elements as u64, raw_len as u64))
            }
        };
        let wanted = elements / usize::try_from(points).unwrap_or(usize::MAX).max(1);
        let in_piece = PieceEdges::of(layout, PIECE_LEN).elements;
        let parts = in_piece.div_ceil(wanted.max(MIN_SPACING));
        in_piece.div_ceil(parts).next_multiple_of(ALIGNMENT)
    }
}

/// Whether values from one point to the next can be so many.
pub(super) fn is_spacing(spacing: usize) -> bool {
    (ALIGNMENT..=PIECE_LEN).contains(&spacing) && spacing.is_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementType;

    fn spacing(points: ReferencePoints, element: ElementType, len: usize) -> usize {
        let layout = ElementLayout {
            element,
            stride: 1,
            phase: 0,
            row: 0,
        };
        points.spacing(&layout, len)
    }

    #[test]
    fn the_papers_formula_gives_two_points_a_piece_of_f32_on_an_even_store() {
        let best = ReferencePoints::Best(Bandwidths::both(1e9));
        assert_eq!(spacing(best, ElementType::F32, 1 << 20), 512);
    }

    #[test]
    fn a_piece_has_a_point_at_least() {
        assert_eq!(
            spacing(ReferencePoints::Count(1), ElementType::F32, 1 << 20),
            1024
        );
        assert_eq!(
            spacing(ReferencePoints::Count(0), ElementType::F64, 1 << 20),
            512
        );
    }

    #[test]
    fn a_number_of_points_is_of_a_whole_container_whatever_the_length() {
        let points = ReferencePoints::Count(1024);
        for len in [4096, 100_000, 1 << 20] {
            assert_eq!(spacing(points, ElementType::F32, len), 256, "{len}");
        }
    }

    #[test]
    fn every_number_of_points_gives_a_spacing_that_is_accepted() {
        for element in ElementType::ALL {
            for len in [0, 1, 100, 4096, 5000, 1 << 20] {
                for points in [0, 1, 2, 3, 700, 5000, u64::MAX] {
                    let found = spacing(ReferencePoints::Count(points), element, len);
                    assert!(is_spacing(found), "{found} of {points} in {len}");
                }
            }
        }
    }
}
