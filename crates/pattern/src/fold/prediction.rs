//! What is known of the open loop, for prediction.

use super::recognizer::{FoldState, LoopRecognizer};
use crate::Element;
use crate::cursor::{Cursor, ExpectedRun};
use crate::predict::OpenLoop;
use crate::shape::Shape;

impl LoopRecognizer {
    /// What comes next if the open loop or run goes on. `None` if there is none.
    pub(crate) fn ahead(&self) -> Option<(ExpectedRun, Cursor)> {
        (self.expected.left > 0).then(|| (self.expected, self.cursor.clone()))
    }

    /// The open loop or run, and its elements so far.
    pub(crate) fn open_loop(&self) -> Option<(OpenLoop, u64)> {
        match self.state {
            FoldState::Empty | FoldState::One(_) => None,
            FoldState::Run(first) => {
                let open = OpenLoop {
                    start: first.offset,
                    stride: self.expected.stride as i64,
                    items: (0, 0),
                    leaf: Shape::leaf(first.len),
                };
                Some((open, self.run_elements()))
            }
            FoldState::Loop(open) => {
                let taken = self.cursor.taken(self.expected.left);
                Some((open.into(), open.had + taken))
            }
        }
    }

    /// The newest element, if nothing is known of it yet.
    pub(crate) fn single(&self) -> Option<Element> {
        match self.state {
            FoldState::One(e) => Some(e),
            _ => None,
        }
    }

    /// Iterations of the open loop, or elements of the open run; 0 if there is none.
    pub(crate) fn seen(&self) -> u64 {
        match (self.state, self.open_loop()) {
            (FoldState::Loop(open), Some((_, elements))) => {
                elements / self.closed.arena.sums(open.items).0
            }
            (_, Some((_, elements))) => elements,
            _ => 0,
        }
    }
}
