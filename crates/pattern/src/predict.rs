//! Predicts what a reader asks for next, from the open loop of its requests.
//!
//! The open loop is expected to continue as its iterations did, at every level. A row that has just begun is expected to be as long
//! as the row before it, and as far from the next one. So nothing is predicted past the end of the row that a reader is in.

use crate::cursor::{Cursor, ExpectedRun};
use crate::shape::{Shape, ShapeKind};
use crate::{Folder, Result};

/// A request to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Watches the requests of one reader of one file, in bounded memory, and says what comes next.
///
/// ```
/// # use forebay_pattern::Predictor;
/// let mut reader = Predictor::new();
/// for row in 0..3 {
///     for column in 0..4 {
///         reader.observe(row * 100_000 + column * 5000, 512)?;
///     }
/// }
/// let next: Vec<u64> = reader.predict(5).iter().map(|r| r.offset).collect();
/// assert_eq!(next, [300_000, 305_000, 310_000, 315_000, 400_000]);
/// # Ok::<(), forebay_pattern::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Predictor {
    folder: Folder,
    /// What should come next.
    next: Option<ReadRequest>,
}

impl Predictor {
    /// Of a reader that has asked for nothing yet.
    pub fn new() -> Predictor {
        Predictor::default()
    }

    /// The reader asks for this. Returns whether that was predicted.
    ///
    /// # Errors
    /// `TooFar`: offset or length of 2^60 or more. The request is not counted.
    pub fn observe(&mut self, offset: u64, len: u64) -> Result<bool> {
        self.folder.push(offset, len)?;
        // What left the stack is not wanted.
        drop(self.folder.finished());
        let right = self.next == Some(ReadRequest { offset, len });
        self.next = self.predict(1).first().copied();
        Ok(right)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of::<Predictor>() + self.folder.memory()
    }

    /// The next requests, at most `count`: none if the reader is in no loop.
    pub fn predict(&self, count: usize) -> Vec<ReadRequest> {
        let mut out = Vec::new();
        let arena = &self.folder.loops.closed.arena;
        let (ahead, mut parent) = match self.folder.loops.ahead() {
            Some(ahead) => (Some(ahead), self.parent()),
            None => self.second_row(),
        };
        let Some((mut expected, mut cursor)) = ahead else {
            return out;
        };
        let mut left = parent.as_ref().map_or(u64::MAX, |p| p.left);
        while out.len() < count {
            if left == 0
                && let Some(p) = &mut parent
            {
                p.start = p.start.wrapping_add(p.step);
                left = p.elements;
                expected = cursor.start_shape(arena, p.shape, p.start);
            }
            if expected.left == 0 || expected.offset >> 60 != 0 {
                break;
            }
            out.push(ReadRequest {
                offset: expected.offset,
                len: expected.len,
            });
            left -= 1;
            cursor.advance(&mut expected, arena);
        }
        out
    }

    /// After one element that may be the first of another row like the one below.
    fn second_row(&self) -> (Option<(ExpectedRun, Cursor)>, Option<EnclosingLoop>) {
        let (Some(first), Some(below)) = (
            self.folder.loops.single(),
            self.folder.loops.closed.stack.terms.last(),
        ) else {
            return (None, None);
        };
        let arena = &self.folder.loops.closed.arena;
        let mut cursor = Cursor::default();
        let mut expected = cursor.start_shape(arena, below.shape, first.offset);
        if expected.len != first.len || arena.elements(below.shape) == 1 {
            return (None, None);
        }
        cursor.advance(&mut expected, arena);
        let parent = EnclosingLoop {
            shape: below.shape,
            elements: arena.elements(below.shape),
            left: arena.elements(below.shape) - 1,
            start: first.offset,
            step: first.offset.wrapping_sub(below.start),
        };
        (Some((expected, cursor)), Some(parent))
    }

    /// The closed loop below the open one, if the open one is another like it.
    fn parent(&self) -> Option<EnclosingLoop> {
        let loops = &self.folder.loops;
        let (start, stride, seen) = loops.open()?;
        let arena = &loops.closed.arena;
        let below = loops.closed.stack.terms.last()?;
        let ShapeKind::Loop(id) = below.shape.kind() else {
            return None;
        };
        let l = arena.get(id);
        let same = l.steps.stride == stride && loops.has_body(arena.body(l));
        (same && l.steps.elements >= seen && seen > 0).then(|| EnclosingLoop {
            shape: below.shape,
            elements: l.steps.elements,
            left: l.steps.elements - seen,
            start,
            step: start.wrapping_sub(below.start),
        })
    }
}

/// A row like the one that is open, and where the next ones start.
struct EnclosingLoop {
    shape: Shape,
    elements: u64,
    /// Elements to come in the open row.
    left: u64,
    start: u64,
    step: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offsets(reader: &Predictor, count: usize) -> Vec<u64> {
        reader.predict(count).iter().map(|r| r.offset).collect()
    }

    #[test]
    fn the_row_before_tells_where_a_new_row_ends() {
        let mut reader = Predictor::new();
        for x in (0..8).chain(100..105) {
            reader.observe(x * 10, 4).unwrap();
        }
        assert_eq!(offsets(&reader, 5), [1050, 1060, 1070, 2000, 2010]);
    }

    #[test]
    fn a_row_longer_than_the_one_before_is_no_surprise() {
        let mut reader = Predictor::new();
        for x in (0..4).chain(1000..1030) {
            reader.observe(x * 10, 4).unwrap();
        }
        assert_eq!(offsets(&reader, 2), [10_300, 10_310]);
    }

    #[test]
    fn a_reader_without_a_pattern_is_predicted_nothing_right() {
        let mut reader = Predictor::new();
        let mut seed = 9u64;
        let mut right = 0;
        for _ in 0..10_000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            right += u64::from(reader.observe(seed >> 30, 4096).unwrap());
        }
        assert!(right < 10, "{right}");
        assert!(reader.memory() < 300_000, "{}", reader.memory());
    }

    proptest! {
        #[test]
        fn nests_are_predicted_after_two_iterations(
            counts in proptest::collection::vec(3u64..6, 1..4),
            strides in proptest::collection::vec(1u64..50, 4),
            len in 1u64..100,
        ) {
            let mut all = vec![0u64];
            let mut reach = 1000;
            for (count, stride) in counts.iter().zip(&strides) {
                let step = reach + stride * 7;
                let inner = all;
                all = (0..*count).flat_map(|k| inner.iter().map(move |o| o + k * step)).collect();
                reach = step * count + 1000;
            }
            let rows = all.len();
            let whole = reach + strides[3];
            let mut reader = Predictor::new();
            let mut wrong = 0;
            for k in 0..6u64 {
                for (i, offset) in all.iter().enumerate() {
                    let right = reader.observe(k * whole + offset, len).unwrap();
                    if k >= 4 {
                        prop_assert!(right, "{k} {i}");
                    }
                    wrong += usize::from(!right);
                }
            }
            prop_assert!(wrong <= 3 * rows);
            let next: Vec<u64> = (6..8).flat_map(|k| all.iter().map(move |o| k * whole + o)).collect();
            prop_assert_eq!(offsets(&reader, next.len()), next);
        }
    }
}
