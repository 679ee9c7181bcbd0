//! Online folding of (offset, length) into nested loops: nested loop recognition after Ketterlin and Clauss.
//!
//! ```text
//! element -> [ cursor of the open loop ]  goes on as expected: one addition
//!            [ run: 1, 2, 3... ]          one length, one stride
//!                 | closed: a leaf or a loop
//!                 v
//!            [ stack of terms ]           repeat at the top? then it becomes the open loop
//! ```
//!
//! What the stack sees is closed, so a row of 16 is never folded with the first 8 elements of the next. An open loop over leaves
//! that is left in the middle of an iteration keeps what it has: the last iteration of a loop may be cut. One over rows
//! gives it back (`retreat`).
//!
//! # Invariants
//! 1. Terms of the stack, then the open loop, then the run are all elements so far, in order, each once.
//! 2. Inside a term the log has no gap: an element's address is the term's plus the lengths before it.
//! 3. Memory is bounded by [`SPILL`] terms: more leave at the bottom as a finished [`Pattern`].

mod prediction;
mod refold;
mod retreat;

use crate::cursor::{Cursor, ExpectedRun};
use crate::shape::{Arena, Shape, Steps};
use crate::stack::{Repeat, Stack, Term, WINDOW};
use crate::{Element, Error, Pattern, Result};

/// Terms that make a finished pattern.
pub(crate) const SPILL: usize = 4096;
/// Items of bodies that make one.
const SPILL_ITEMS: usize = 4 * SPILL;
/// Offsets, lengths and addresses are below, so that sums and codes fit 64 bits.
const LIMIT_BITS: u32 = 60;

/// What the newest elements are part of.
#[derive(Debug, Clone, Copy, Default)]
enum FoldState {
    #[default]
    Empty,
    One(Element),
    /// A run of `u64::MAX - expected.left + 2` elements.
    Run(Element),
    /// The open loop.
    Loop(OpenRepeat),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRepeat {
    pub(crate) start: u64,
    addr: u64,
    pub(crate) stride: i64,
    pub(crate) items: (u32, u32),
    /// Elements it had when it was opened.
    had: u64,
}

/// Finds patterns in a stream of extents, online, in bounded memory.
///
/// ```
/// # use forebay_pattern::Folder;
/// let mut folder = Folder::new();
/// for i in 0..1_000_000 {
///     folder.push(i * 8192, 4096)?;
/// }
/// let pattern = folder.finish().pop().unwrap_or_default();
/// assert_eq!((pattern.terms(), pattern.elements()), (1, 1_000_000));
/// # Ok::<(), forebay_pattern::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Folder {
    /// What comes next if the open loop or run goes on; `left` is 0 if there is none.
    expected: ExpectedRun,
    /// Log address behind the newest element.
    addr: u64,
    joins: bool,
    /// Joins what follows it, if `joins`. Empty: none.
    held: Element,
    mode: FoldState,
    cursor: Cursor,
    stack: Stack,
    arena: Arena,
    done: Vec<Pattern>,
}

/// Whether an element lies where folding can reckon with it.
#[inline]
fn check(e: &Element) -> Result<()> {
    let &Element { offset, len, addr } = e;
    match (offset | len | addr) >> LIMIT_BITS {
        0 => Ok(()),
        _ => Err(Error::TooFar { offset, len, addr }),
    }
}

impl Folder {
    /// A folder that keeps elements as they come: for requests.
    pub fn new() -> Folder {
        Folder::default()
    }

    /// A folder that joins an element to the one before if it follows it in file and log, and leaves out empty ones: for an
    /// index, which need not tell how bytes were cut into writes.
    pub fn joining() -> Folder {
        Folder {
            joins: true,
            ..Folder::default()
        }
    }

    /// Adds an extent whose bytes follow those of the one before in the log (at address 0, if it is the first).
    ///
    /// # Errors
    /// `TooFar`: offset, length or address of 2^60 or more. The extent is not added.
    #[inline]
    pub fn push(&mut self, offset: u64, len: u64) -> Result<()> {
        let addr = if self.joins {
            self.held.addr + self.held.len
        } else {
            self.addr
        };
        self.push_at(offset, len, addr)
    }

    /// Adds an extent whose bytes are at `addr` of the log.
    ///
    /// # Errors
    /// `TooFar`: offset, length or address of 2^60 or more. The extent is not added.
    #[inline]
    pub fn push_at(&mut self, offset: u64, len: u64, addr: u64) -> Result<()> {
        let element = Element { offset, len, addr };
        check(&element)?;
        if !self.joins {
            self.take(element);
        } else if self.held.end() == offset && self.held.addr + self.held.len == addr {
            self.held.len += len;
        } else if len > 0 {
            let held = std::mem::replace(&mut self.held, element);
            if held.len > 0 {
                self.take(held);
            }
        }
        Ok(())
    }

    /// Patterns that left the stack. A caller that streams takes them now and then.
    pub fn finished(&mut self) -> Vec<Pattern> {
        std::mem::take(&mut self.done)
    }

    /// Closes all and returns the patterns not yet taken; the folder starts anew behind the last address.
    pub fn finish(&mut self) -> Vec<Pattern> {
        self.flush();
        self.settle();
        if !self.stack.terms.is_empty() {
            self.spill(self.stack.terms.len());
        }
        std::mem::take(&mut self.done)
    }

    /// Bytes of memory held, finished patterns left out.
    pub fn memory(&self) -> usize {
        self.stack.memory() + self.arena.memory() + self.cursor.memory()
    }

    fn flush(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held.len > 0 {
            self.take(held);
            // An empty one must not be joined to.
            self.held.addr = self.addr;
        }
    }

    #[inline]
    fn take(&mut self, e: Element) {
        if self.goes_on(&e) && e.addr == self.addr {
            self.addr += e.len;
            self.step();
        } else {
            self.turn(e);
        }
    }

    #[inline]
    fn goes_on(&self, e: &Element) -> bool {
        let expected = &self.expected;
        (e.offset == expected.offset) & (e.len == expected.len) && expected.left > 0
    }

    #[inline]
    fn step(&mut self) {
        self.expected.advance();
        if self.expected.left == 0 {
            self.expected = self.cursor.next(&self.arena);
        }
    }

    /// An element that is not what was expected.
    #[inline(never)]
    fn turn(&mut self, e: Element) {
        self.skip_to(e.addr);
        self.addr += e.len;
        self.accept(e);
    }

    fn skip_to(&mut self, addr: u64) {
        if addr != self.addr {
            self.settle();
            self.addr = addr;
        }
    }

    fn accept(&mut self, e: Element) {
        if self.goes_on(&e) {
            return self.step();
        }
        match self.mode {
            FoldState::Empty => self.mode = FoldState::One(e),
            FoldState::One(first) if first.len == e.len => {
                self.mode = FoldState::Run(first);
                let stride = e.offset.wrapping_sub(first.offset);
                self.expected = ExpectedRun {
                    offset: e.offset.wrapping_add(stride),
                    len: e.len,
                    stride,
                    left: u64::MAX,
                };
            }
            mode => {
                if let FoldState::Loop(open) = mode
                    && self.retreat(open, &e)
                {
                    return self.accept(e);
                }
                let second = self.close_newest();
                if let Some(second) = second {
                    self.accept(second);
                }
                self.accept(e);
            }
        }
    }

    /// Closes what the newest elements are part of. Of a run of two, only the first is closed: the second may be the first of
    /// another run, and is returned.
    fn close_newest(&mut self) -> Option<Element> {
        let mode = std::mem::take(&mut self.mode);
        let expected = std::mem::take(&mut self.expected);
        match mode {
            FoldState::Empty => None,
            FoldState::One(e) => {
                self.close(e.offset, e.addr, Shape::leaf(e.len));
                None
            }
            FoldState::Run(e) => {
                let count = (u64::MAX - expected.left).saturating_add(2);
                if count == 2 {
                    self.close(e.offset, e.addr, Shape::leaf(e.len));
                    return Some(Element {
                        offset: e.offset.wrapping_add(expected.stride),
                        addr: e.addr + e.len,
                        len: e.len,
                    });
                }
                let items = self.arena.push_body([(0, Shape::leaf(e.len))]);
                let shape = self.looped(items, expected.stride as i64, count);
                self.close(e.offset, e.addr, shape);
                None
            }
            FoldState::Loop(open) => {
                let elements = open.had + self.cursor.taken(expected.left);
                let shape = self.looped(Some(open.items), open.stride, elements);
                self.close(open.start, open.addr, shape);
                None
            }
        }
    }

    fn looped(&mut self, items: Option<(u32, u32)>, stride: i64, elements: u64) -> Shape {
        let gap = 0;
        let steps = Steps {
            stride,
            elements,
            gap,
        };
        // Every element lies below 2^63 in file and log, so all bounds and sums fit; spilling keeps the arena small; and the
        // stack refuses repeats of shapes that are too deep.
        #[allow(clippy::expect_used)]
        items
            .and_then(|items| self.arena.add(steps, items))
            .expect("loops of real extents fit")
    }

    fn settle(&mut self) {
        loop {
            match self.mode {
                FoldState::Empty => return,
                _ => {
                    if let Some(second) = self.close_newest() {
                        self.accept(second);
                    }
                }
            }
        }
    }

    fn close(&mut self, start: u64, addr: u64, shape: Shape) {
        let bytes = self.arena.bytes(shape);
        self.stack.push(Term { start, addr, shape }, bytes);
        if let Some(repeat) = self.stack.repeat(&self.arena) {
            self.open(repeat);
        } else if self.arena.items.len() >= SPILL_ITEMS {
            self.spill(self.stack.terms.len());
        } else if self.stack.terms.len() >= SPILL {
            self.spill(SPILL - 2 * WINDOW);
        }
    }

    /// The repeat at the top of the stack becomes the open loop.
    fn open(&mut self, repeat: Repeat) {
        let from = self.stack.terms.len() - repeat.copies * repeat.size;
        let body = &self.stack.terms[from..from + repeat.size];
        let (first, second) = (body[0], self.stack.terms[from + repeat.size]);
        let Some(items) = self
            .arena
            .push_body(body.iter().map(|t| (t.start, t.shape)))
        else {
            return;
        };
        let stride = second.start.wrapping_sub(first.start) as i64;
        let had = repeat.copies as u64 * self.arena.sums(items).0;
        let base = first
            .start
            .wrapping_add((stride as u64).wrapping_mul(repeat.copies as u64));
        self.stack.truncate(from, &self.arena);
        self.expected = self.cursor.start(&self.arena, items, stride, base);
        self.mode = FoldState::Loop(OpenRepeat {
            start: first.start,
            addr: first.addr,
            stride,
            items,
            had,
        });
    }

    /// The lowest `count` terms leave as a finished pattern; the arena keeps what the others need.
    fn spill(&mut self, count: usize) {
        let terms = self.stack.take_bottom(count);
        if !terms.is_empty() {
            self.done.push(Pattern::new(&self.arena, terms));
        }
        if self.arena.loops.is_empty() {
            return self.arena.clear();
        }
        let old = std::mem::take(&mut self.arena);
        let mut seen = Default::default();
        for term in &mut self.stack.terms {
            term.shape = self.arena.copy(&old, term.shape, &mut seen);
        }
    }

    /// Finished patterns are not wanted.
    pub(crate) fn forget_finished(&mut self) {
        self.done.clear();
    }
}
