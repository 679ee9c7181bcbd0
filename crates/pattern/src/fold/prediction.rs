//! Read-only views of the open loop, for prediction.

use super::recognizer::{FoldState, LoopRecognizer};
use crate::Element;
use crate::cursor::{Cursor, ExpectedRun};
use crate::shape::{LoopItem, Shape};

impl LoopRecognizer {
    /// The next elements if the open loop or run continues. `None`: neither is open.
    pub(crate) fn ahead(&self) -> Option<(ExpectedRun, Cursor)> {
        (self.expected.left > 0).then(|| (self.expected, self.cursor.clone()))
    }

    /// Start, stride and number of elements so far of the open loop or run.
    pub(crate) fn open(&self) -> Option<(u64, i64, u64)> {
        match self.state {
            FoldState::Empty | FoldState::One(_) => None,
            FoldState::Run(first) => {
                let stride = self.expected.stride as i64;
                Some((first.offset, stride, self.run_elements()))
            }
            FoldState::Loop(open) => {
                let taken = self.cursor.taken(self.expected.left);
                Some((open.start, open.stride, open.had + taken))
            }
        }
    }

    /// Whether an iteration of the open loop or run has these items.
    pub(crate) fn has_body(&self, body: &[LoopItem]) -> bool {
        match self.state {
            FoldState::Empty | FoldState::One(_) => false,
            FoldState::Run(first) => {
                matches!(body, [one] if one.shape == Shape::leaf(first.len))
            }
            FoldState::Loop(open) => body == self.closed.arena.items(open.items),
        }
    }

    /// The newest element, if it is in no run or loop yet.
    pub(crate) fn single(&self) -> Option<Element> {
        match self.state {
            FoldState::One(e) => Some(e),
            _ => None,
        }
    }
}
