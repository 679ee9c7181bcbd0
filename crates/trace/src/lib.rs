//! Traces of parallel I/O: what they are, where they come from, what they show, and how they are replayed.
//!
//! - [`Trace`] and [`Op`]: who did what to which bytes, when.
//! - [`Recording`] and [`Call`]: every operation of a job, opens and closes too, and what was lost of them.
//! - [`load()`] and [`open`]: readers for DXT exports ([`csv`]) and for Forebay's own [`format`](mod@format).
//! - [`record`]: what writes a recording while it happens, and what joins those of several nodes.
//! - [`workload`]: generators for the shapes that the papers measure.
//! - [`Stats`]: counts, sizes, shapes, sharing.
//! - [`patterns`]: what an index of the calls would hold, for whatever finds patterns.
//! - [`plot`]: offsets over time, as SVG and as a page.
//! - [`replay`]: a trace against real files, every byte read checked against the [`Model`], with [`content`] that
//!   follows from file, offset and write.
//!
//! What this crate must not know: servers, mounts, the index. It sees a [`replay::Target`].

mod action;
pub mod content;
pub mod csv;
mod error;
pub mod format;
mod limits;
mod load;
mod model;
mod op;
pub mod patterns;
pub mod plot;
mod ranges;
pub mod record;
mod recording;
pub mod replay;
mod stats;
pub mod workload;

pub use action::Action;
pub use error::{Error, Result};
pub use load::{load, open};
pub use model::{Model, OriginPiece};
pub use op::{Kind, NO_OFFSET, Op, Trace};
pub use ranges::Ranges;
pub use recording::{Call, Process, Recording, TraceFile, TruncatedEnd};
pub use stats::{FileStats, KindStats, Stats};
