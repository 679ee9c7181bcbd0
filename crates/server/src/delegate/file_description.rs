//! The layout of a file's committed bytes, as `forebay stat` shows it: its patterns as they are kept, and its extents as the
//! patterns they would fold to.
use super::intervals::ByteSource;
use super::locate::ByteLocator;
use super::open_file::OpenFile;
use super::stored_bytes::FileStorage;
use crate::{ExtentLayout, Fid, Member, Result};
use forebay_pattern::{Folder, Pattern, Patterns, Segment};
use forebay_proto::files::MemberSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Rows shown of each kind.
const MAX_ROWS: usize = 64;
/// Pieces that are single bytes' ranges are rows of their own if they are no more than this.
const MAX_SINGLE_ROWS: usize = 16;
/// Characters shown of a pattern.
const MAX_ROW_TEXT: usize = 300;
/// Extents that are read, at most.
const MAX_EXTENTS: u64 = 1 << 18;

/// Where the committed bytes of a file are. Sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDescription {
    /// Where its extents are kept.
    pub layout: ExtentLayout,
    /// Who owns its attributes, and its patterns.
    pub owner: Member,
    /// Length.
    pub size: u64,
    /// Bytes stored for it.
    pub stored: u64,
    /// Bytes that this node has written and not committed yet.
    pub pending: u64,
    /// Moves with every change.
    pub generation: u64,
    /// The codec hint, as its attribute shows it; `None`: nobody said anything.
    pub codec: Option<String>,
    /// How its bytes are stored.
    pub storage: FileStorage,
    /// What is kept as patterns. What was replaced since counts too.
    pub patterns: PatternRows,
    /// Bytes that the patterns take, encoded.
    pub encoded: u64,
    /// Ranges that truncates and punched holes took out of patterns.
    pub holes: u64,
    /// What the index has.
    pub extents: PatternRows,
    /// Not all extents were looked at.
    pub more_extents: bool,
}

/// Rows of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternRows {
    /// Extents that all of them stand for.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Logs that have those.
    pub logs: u64,
    /// By offset.
    pub rows: Vec<PatternRow>,
    /// How many there are beside these.
    pub left_out: u64,
}

/// Extents that have a pattern, or some that have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternRow {
    /// Such as `at 0 B: 512 x [256 Ki x 4 KiB stride 2 MiB] stride 4 KiB`.
    pub text: String,
    /// Whose logs have the bytes.
    pub members: MemberSet,
    /// How many logs those are.
    pub logs: u64,
    /// Extents.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl PatternRow {
    fn new(
        text: String,
        sources: impl IntoIterator<Item = forebay_pattern::LogSource>,
        extents: u64,
        bytes: u64,
    ) -> PatternRow {
        let sources: BTreeSet<_> = sources.into_iter().collect();
        let mut text = text;
        if let Some((end, _)) = text.char_indices().nth(MAX_ROW_TEXT) {
            text.truncate(end);
            text.push_str(" ...");
        }
        PatternRow {
            text,
            members: MemberSet::of(sources.iter().map(|s| s.member)),
            logs: sources.len() as u64,
            extents,
            bytes,
        }
    }
}

impl PatternRows {
    fn of(patterns: &Patterns) -> PatternRows {
        let mut rows = Vec::new();
        for global in &patterns.globals {
            let place = global.bounds().0;
            let (extents, bytes) = (global.elements(), global.bytes());
            let row = PatternRow::new(global.to_string(), global.sources(), extents, bytes);
            rows.push((place, row));
        }
        let mut single = Vec::new();
        for segment in &patterns.segments {
            for term in segment.pattern.each_term() {
                let (extents, bytes) = (term.elements(), term.bytes());
                let row = PatternRow::new(term.to_string(), [segment.source], extents, bytes);
                let rows = if extents > 1 { &mut rows } else { &mut single };
                rows.push((term.bounds().0, row));
            }
        }
        if single.len() > MAX_SINGLE_ROWS {
            let count = single.len() as u64;
            let bytes = single.iter().map(|(_, row)| row.bytes).sum();
            let place = single.iter().map(|s| s.0).min().unwrap_or_default();
            let of_single = patterns.segments.iter().filter(|s| {
                let mut terms = s.pattern.each_term();
                terms.any(|term| term.elements() == 1)
            });
            let sources = of_single.map(|s| s.source);
            let text = format!("{count} single pieces");
            rows.push((place, PatternRow::new(text, sources, count, bytes)));
        } else {
            rows.append(&mut single);
        }
        // What stands for most is shown.
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.extents));
        let left_out = rows.len().saturating_sub(MAX_ROWS) as u64;
        let sum = |of: fn(&PatternRow) -> u64| rows.iter().map(|(_, row)| of(row)).sum();
        let (extents, bytes) = (sum(|row| row.extents), sum(|row| row.bytes));
        rows.truncate(MAX_ROWS);
        rows.sort_by_key(|(place, _)| *place);
        PatternRows {
            extents,
            bytes,
            logs: patterns.sources().len() as u64,
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            left_out,
        }
    }
}

/// Extents of all logs.
#[derive(Default)]
struct ExtentsByLog {
    /// By log: address, offset, length.
    logs: BTreeMap<forebay_pattern::LogSource, Vec<(u64, u64, u64)>>,
    count: u64,
}

impl ExtentsByLog {
    fn add(&mut self, range: &Range<u64>, source: ByteSource) {
        if let ByteSource::Log { member, log, addr } = source {
            let source = forebay_pattern::LogSource { member, log };
            let extents = self.logs.entry(source).or_default();
            extents.push((addr, range.start, range.end - range.start));
            self.count += 1;
        }
    }

    fn full(&self) -> bool {
        self.count >= MAX_EXTENTS
    }

    /// Folded as a commit of all would be.
    fn folded(self) -> Patterns {
        let mut segments = Vec::new();
        for (source, mut extents) in self.logs {
            extents.sort_unstable();
            let mut folder = Folder::joining();
            for (addr, offset, len) in extents {
                // What lies beyond any pattern is nothing that programs write in rows.
                let _ = folder.push_at(offset, len, addr);
            }
            let segment = |pattern: Pattern| Segment::new(source, 1, pattern);
            segments.extend(folder.finish().into_iter().map(segment));
        }
        Patterns::merged(segments)
    }
}

impl ByteLocator {
    /// Where the committed bytes of a file are. If it changes meanwhile, parts of the answer may be of different moments.
    ///
    /// # Errors
    /// `EISDIR` or `EINVAL` for what is no file, `ESTALE` if it was removed, `EIO` if a member cannot answer.
    pub fn describe(&self, fid: Fid) -> Result<FileDescription> {
        let _at = self.ctx.counters.other();
        let attr = self.ctx.ask_file(fid)?;
        let pending = |file: Arc<OpenFile>| file.state.lock().unpublished_bytes();
        let mut described = FileDescription {
            layout: attr.layout,
            owner: fid.owner(),
            size: attr.size,
            stored: attr.bytes,
            pending: self.ctx.table.find(fid).map_or(0, pending),
            generation: attr.generation,
            codec: attr.codec.map(|hint| hint.to_string()),
            storage: self.storage(fid)?,
            ..FileDescription::default()
        };
        let (mut extents, mut map) = (ExtentsByLog::default(), None);
        let mut ranges: Vec<_> = std::iter::once(0..u64::MAX).collect();
        let owners = &self.reader.extents;
        if attr.layout == ExtentLayout::Patterned {
            let told = owners.ask_patterns(fid)?;
            described.patterns = PatternRows::of(&told.patterns);
            described.encoded = told.encoded as u64;
            described.holes = told.holes.len() as u64;
            ranges.clone_from(&told.residual);
            map = Some(told.map());
        }
        // What the index has beside the patterns.
        let beside = |at, source| map.as_ref().is_none_or(|map| map.in_patterns(at) != source);
        for member in owners.extent_members(fid, attr.layout) {
            for range in &ranges {
                owners.walk_extents(fid, member, range.clone(), &mut |range, source| {
                    if beside(range.start, source) {
                        extents.add(&range, source);
                    }
                    !extents.full()
                })?;
            }
        }
        described.more_extents = extents.full();
        described.extents = PatternRows::of(&extents.folded());
        Ok(described)
    }
}
