//! Folds extents into nested loops, online. (Words: `lib.rs`.)
//!
//! | module | what |
//! |---|---|
//! | this one | [`Folder`]: the interface; for an index it first joins extents that follow each other |
//! | `recognizer`, `undo_iteration` | the open loop: recognises it, extends it, and ends it |
//! | `closed` | the stack of closed terms: finds repeats at its top, and emits finished patterns |
//! | `refold` | folds a whole pattern again, a row at a time |
//! | `prediction` | views of the open loop, for prediction |

mod closed;
mod prediction;
mod recognizer;
mod refold;
mod undo_iteration;

use crate::{Element, Error, Pattern, Result};
use recognizer::LoopRecognizer;

/// Offsets, lengths and addresses have at most this many bits, so that sums and codes fit 64 bits.
const LIMIT_BITS: u32 = 60;

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
    joins: bool,
    /// If `joins`: the newest element, which the next one may extend. Empty: none.
    held: Element,
    pub(crate) loops: LoopRecognizer,
}

/// Checks that an element's numbers are within [`LIMIT_BITS`].
#[inline]
fn check(e: &Element) -> Result<()> {
    let &Element { offset, len, addr } = e;
    match (offset | len | addr) >> LIMIT_BITS {
        0 => Ok(()),
        _ => Err(Error::TooFar { offset, len, addr }),
    }
}

impl Folder {
    /// A folder that keeps each element as it is; for requests.
    pub fn new() -> Folder {
        Folder::default()
    }

    /// A folder that joins consecutive elements (in file and log) and drops empty ones; for an index, which need not tell single
    /// writes apart.
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
            self.loops.addr
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
            self.loops.take(element);
        } else if self.held.end() == offset && self.held.addr + self.held.len == addr {
            self.held.len += len;
        } else if len > 0 {
            let held = std::mem::replace(&mut self.held, element);
            if held.len > 0 {
                self.loops.take(held);
            }
        }
        Ok(())
    }

    /// Takes the finished patterns. A caller that streams does this now and then.
    pub fn finished(&mut self) -> Vec<Pattern> {
        self.loops.closed.take_finished()
    }

    /// Closes all terms and returns the patterns not yet taken. The folder can be used on, from the last address.
    pub fn finish(&mut self) -> Vec<Pattern> {
        let held = std::mem::take(&mut self.held);
        if held.len > 0 {
            self.loops.take(held);
            // `held` is empty now; its end must stay the last log address.
            self.held.addr = self.loops.addr;
        }
        self.loops.close_all();
        self.loops.closed.finish();
        self.finished()
    }

    /// Bytes of memory held, without finished patterns.
    pub fn memory(&self) -> usize {
        self.loops.memory()
    }
}
