//! Pattern PLFS as it was published (He et al., HPDC'13): the baseline to compare with.
//!
//! Its limits are kept: a window of six differences, one level, adjacent repeats only, offsets, lengths and addresses each for
//! themselves. Only what is plainly an error in the printed text is set right: Algorithm 3 counts slots from 0.
//!
//! | type | in the paper |
//! |---|---|
//! | `Unit` | pattern unit, Figure 7; found by Algorithm 1 |
//! | [`Local`] | local entry, Figures 6 and 9; looked up by Algorithm 2 |
//! | [`Global`] | global entry, Figures 10 to 12; looked up by Algorithm 3 |

mod global;
mod local;
mod unit;

pub use global::{Global, merge};
pub use local::{Local, entries};

/// Where a byte is, as Algorithms 2 and 3 answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLocation {
    /// The log (chunk id).
    pub log: u64,
    /// Address there.
    pub addr: u64,
    /// Bytes from there on.
    pub len: u64,
}
