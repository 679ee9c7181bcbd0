//! Generators: the shapes that the papers measure, as calls in the order in which ranks in step would make them.
//!
//! A [`Layout`] says which bytes each call of each rank touches; it is pure, and any call can be asked for alone. A
//! [`Workload`] lays phases over it: all ranks write, then readers read back, as many as wrote or another number.

mod btio;
mod ior;
mod milc;
mod nested;
mod pagoda;
mod random;
mod spec;
#[cfg(test)]
mod tests;
mod tile;

pub use btio::{Btio, BtioCell};
pub use random::Shuffle;
pub use spec::{KINDS, parse};

use crate::{Kind, Op, Trace};

/// Bytes that one call touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRange {
    /// Index into the layout's files.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl CallRange {
    /// In the file that all ranks share.
    fn shared(offset: u64, len: u64) -> CallRange {
        CallRange {
            file: 0,
            offset,
            len,
        }
    }
}

/// Which bytes each call of each rank touches.
pub trait Layout: Send + Sync {
    /// Number of ranks.
    fn ranks(&self) -> u32;
    /// Names of the files.
    fn files(&self) -> Vec<String>;
    /// Number of calls of `rank`.
    fn calls(&self, rank: u32) -> u64;
    /// Call number `index` of `rank`; `index` is below `calls(rank)`.
    fn access(&self, rank: u32, index: u64) -> CallRange;
}

/// A layout, written and read.
pub struct Workload {
    /// What to call it in reports.
    pub name: String,
    /// Where the bytes are.
    pub layout: Box<dyn Layout>,
    /// Whether all ranks write it first.
    pub write: bool,
    /// How many ranks read it back: 0 none, as many as wrote: each its own calls; another number: calls dealt out.
    pub readers: u32,
}

/// A call takes this long on the workloads' clock, nanoseconds.
const STEP: u64 = 1000;

impl Workload {
    /// The calls in order. In step `i` every rank makes its call `i`; all of a step start together.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        let writes = self
            .write
            .then(|| self.phase(Kind::Write, 0))
            .into_iter()
            .flatten();
        let start = if self.write { self.steps() * STEP } else { 0 };
        let reads = (self.readers > 0)
            .then(|| self.phase(Kind::Read, start))
            .into_iter()
            .flatten();
        writes.chain(reads)
    }

    /// All calls as a trace. Takes 48 bytes of memory for each.
    pub fn trace(&self) -> Trace {
        let layout = &self.layout;
        let ranks = layout.ranks().max(self.readers);
        Trace {
            name: self.name.clone(),
            ranks,
            files: layout.files(),
            ops: self.ops().collect(),
        }
    }

    fn steps(&self) -> u64 {
        let layout = &self.layout;
        (0..layout.ranks())
            .map(|r| layout.calls(r))
            .max()
            .unwrap_or(0)
    }

    fn phase(&self, kind: Kind, start: u64) -> impl Iterator<Item = Op> + '_ {
        let layout = &*self.layout;
        let ranks = layout.ranks();
        let dealt = kind == Kind::Read && self.readers != ranks;
        let calls = (0..self.steps())
            .flat_map(move |index| (0..ranks).map(move |rank| (rank, index)))
            .filter(move |(rank, index)| *index < layout.calls(*rank));
        calls.enumerate().map(move |(number, (rank, index))| {
            let CallRange { file, offset, len } = layout.access(rank, index);
            // Dealt calls: reader `r` takes every call whose number leaves `r`.
            let (rank, step) = if dealt {
                let readers = self.readers as usize;
                ((number % readers) as u32, (number / readers) as u64)
            } else {
                (rank, index)
            };
            let start = start + step * STEP;
            let end = start + STEP;
            let call = Op::untimed(rank, kind, file, offset, len);
            Op { start, end, ..call }
        })
    }
}
