//! The patterns of a file: global patterns and segments, encoded one after the other, each in its [frame](crate::frame).

use crate::frame::{SEGMENT, take};
use crate::{Error, GlobalPattern, LogSource, PatternMap, Segment};
use std::collections::BTreeSet;

/// A part of encoded patterns that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameLoss {
    /// Its first byte.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// Why.
    pub why: Error,
}

/// The patterns of a file.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// Of many logs.
    pub globals: Vec<GlobalPattern>,
    /// Of one log each.
    pub segments: Vec<Segment>,
}

impl Patterns {
    /// Joins segments of many logs to global patterns: see [`crate::merge()`].
    pub fn merged(segments: Vec<Segment>) -> Patterns {
        let (globals, segments) = crate::merge(segments);
        Patterns { globals, segments }
    }

    /// All of them, one after the other.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.globals.iter().for_each(|g| g.encode(&mut out));
        self.segments.iter().for_each(|s| s.encode(&mut out));
        out
    }

    /// The logs that their bytes are in.
    pub fn sources(&self) -> BTreeSet<LogSource> {
        let globals = self.globals.iter().flat_map(GlobalPattern::sources);
        globals
            .chain(self.segments.iter().map(|s| s.source))
            .collect()
    }

    /// The map to read by.
    pub fn map(self) -> PatternMap {
        PatternMap::new(self.globals, self.segments)
    }
}

/// All patterns that can be read from `bytes`, and what cannot.
///
/// What is wrong is stepped over. Where not even a length can be read, all that follows is lost.
pub fn decode_all(bytes: &[u8]) -> (Patterns, Vec<FrameLoss>) {
    let (mut found, mut lost) = (Patterns::default(), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let one = take(&mut rest, at).and_then(|(kind, inside)| {
            let malformed = |what| Error::Malformed { at, what };
            match kind {
                SEGMENT => {
                    let segment = Segment::inside(inside);
                    found.segments.push(segment.map_err(malformed)?);
                }
                _ => {
                    let global = GlobalPattern::inside(inside);
                    found.globals.push(global.map_err(malformed)?);
                }
            }
            Ok(())
        });
        if let Err(why) = one {
            let len = bytes.len() - rest.len() - at;
            lost.push(FrameLoss { at, len, why });
        }
    }
    (found, lost)
}
