//! Plots of traces: which bytes of a file each rank touched, and when.
//!
//! A [`Chart`] is what a [`Selection`] takes out of a recording: a panel for the reads and one for the writes of each file, a mark
//! for each call, from its start to its end and over the bytes it touched. [`Chart::svg`] draws it; [`Chart::page`] makes a page of
//! its own that lets one look closer.
//!
//! [`svg`], [`axis`] and `png` (cargo feature `png`) know nothing of traces: whatever else draws figures uses them too.

pub mod axis;
mod colour;
mod page;
#[cfg(feature = "png")]
pub mod png;
pub mod svg;
#[cfg(test)]
mod tests;
mod timeline;

pub use axis::Axis;

use crate::{Call, Kind, NO_OFFSET, Recording};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// What the horizontal axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Horizontal {
    /// Time since the first call shown.
    #[default]
    Time,
    /// How many calls the rank had made on the file, of the kind.
    Calls,
}

/// What of a trace is shown.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only files whose path ends with this, or whose number it is.
    pub file: Option<String>,
    /// Only reads, or only writes.
    pub kind: Option<Kind>,
    /// Only these ranks.
    pub ranks: Option<RangeInclusive<u32>>,
    /// See [`Horizontal`].
    pub horizontal: Horizontal,
}

/// A call as it is drawn. Horizontal values are nanoseconds or calls, vertical ones bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMark {
    /// Who.
    pub rank: u32,
    /// Where it begins, horizontally.
    pub left: u64,
    /// Where it ends.
    pub right: u64,
    /// The first byte.
    pub low: u64,
    /// Behind the last byte; `low` if there is none.
    pub high: u64,
}

/// The reads or the writes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panel {
    /// The file, by its number.
    pub file: u32,
    /// Its path, or its number where that is not known.
    pub name: String,
    /// Reads or writes.
    pub kind: Kind,
    /// The calls, in order of their start.
    pub marks: Vec<CallMark>,
    /// Bytes of all calls.
    pub bytes: u64,
    /// Ranks that called.
    pub ranks: u64,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chart {
    /// The trace.
    pub name: String,
    /// See [`Horizontal`].
    pub horizontal: Horizontal,
    /// The panels: most bytes first.
    pub panels: Vec<Panel>,
    /// Ranks with a mark, and what they are called.
    pub ranks: BTreeMap<u32, String>,
    /// The part of the trace that the marks lie in: from 0 on the axis of time.
    pub begin: u64,
}

impl Chart {
    /// The successful reads and writes that are selected. No panel if there are none.
    pub fn of(recording: &Recording, selection: &Selection) -> Chart {
        let shown: Vec<&Call> = recording
            .calls
            .iter()
            .filter(|call| selection.has(recording, call))
            .collect();
        let begin = shown.iter().map(|call| call.start).min().unwrap_or(0);
        let mut panels: BTreeMap<(u32, bool), Panel> = BTreeMap::new();
        let mut made: HashMap<(u32, u32, bool), u64> = HashMap::new();
        let mut ranks = BTreeSet::new();
        for call in shown {
            let writes = call.data().is_some_and(|op| op.kind == Kind::Write);
            let panel = panels.entry((call.file, writes)).or_insert_with(|| Panel {
                file: call.file,
                name: file_name(recording, call.file),
                kind: if writes { Kind::Write } else { Kind::Read },
                marks: Vec::new(),
                bytes: 0,
                ranks: 0,
            });
            let (left, right) = match selection.horizontal {
                Horizontal::Time => (call.start - begin, call.end.max(call.start) - begin),
                Horizontal::Calls => {
                    let made = made.entry((call.rank, call.file, writes)).or_default();
                    *made += 1;
                    (*made - 1, *made - 1)
                }
            };
            panel.marks.push(CallMark {
                rank: call.rank,
                left,
                right,
                low: call.offset,
                high: call.offset.saturating_add(call.len),
            });
            panel.bytes = panel.bytes.saturating_add(call.len);
            ranks.insert(call.rank);
        }
        let mut panels: Vec<Panel> = panels.into_values().collect();
        for panel in &mut panels {
            let ranks: BTreeSet<u32> = panel.marks.iter().map(|m| m.rank).collect();
            panel.ranks = ranks.len() as u64;
        }
        panels.sort_by_key(|panel| {
            let first = panel.marks.first().map(|mark| mark.left);
            (Reverse(panel.bytes), first, panel.file)
        });
        let named = |rank| (rank, recording.rank_name(rank));
        Chart {
            name: recording.name.clone(),
            horizontal: selection.horizontal,
            panels,
            ranks: ranks.into_iter().map(named).collect(),
            begin,
        }
    }

    /// The trace's name, or what stands for it.
    fn title(&self) -> &str {
        match self.name.is_empty() {
            true => "Trace",
            false => &self.name,
        }
    }
}

impl Panel {
    /// What its calls are called.
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Read => "reads",
            Kind::Write => "writes",
        }
    }
}

impl Selection {
    fn has(&self, recording: &Recording, call: &Call) -> bool {
        let Some(op) = call.data() else {
            return false;
        };
        let file = || match &self.file {
            None => true,
            Some(wanted) => {
                let file = recording.files.get(call.file as usize);
                let ends = file.is_some_and(|f| {
                    let rest = f.path.strip_suffix(wanted.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
                });
                ends || *wanted == call.file.to_string()
            }
        };
        call.offset != NO_OFFSET
            && self.kind.is_none_or(|wanted| wanted == op.kind)
            && self.ranks.as_ref().is_none_or(|r| r.contains(&call.rank))
            && file()
    }
}

fn file_name(recording: &Recording, file: u32) -> String {
    match recording.files.get(file as usize) {
        Some(known) if !known.path.is_empty() => known.path.clone(),
        _ => format!("file {file}"),
    }
}
