//! What a folder knows of its open loop, for prediction.

use super::{FoldState, Folder};
use crate::Element;
use crate::cursor::{Cursor, ExpectedRun};
use crate::predict::OpenLoop;
use crate::shape::{Arena, Shape};
use crate::stack::Term;

impl Folder {
    /// What comes next if the open loop or run goes on. `None` if there is none.
    pub(crate) fn ahead(&self) -> Option<(ExpectedRun, Cursor)> {
        (self.expected.left > 0).then(|| (self.expected, self.cursor.clone()))
    }

    /// The open loop or run, and its elements so far.
    pub(crate) fn open_loop(&self) -> Option<(OpenLoop, u64)> {
        match self.mode {
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
        match self.mode {
            FoldState::One(e) => Some(e),
            _ => None,
        }
    }

    fn run_elements(&self) -> u64 {
        (u64::MAX - self.expected.left).saturating_add(2)
    }

    /// Iterations of the open loop, or elements of the open run; 0 if there is none.
    pub(crate) fn seen(&self) -> u64 {
        match (self.mode, self.open_loop()) {
            (FoldState::Loop(open), Some((_, elements))) => {
                elements / self.arena.sums(open.items).0
            }
            (_, Some((_, elements))) => elements,
            _ => 0,
        }
    }

    /// The newest closed term.
    pub(crate) fn top(&self) -> Option<&Term> {
        self.stack.terms.last()
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }
}
