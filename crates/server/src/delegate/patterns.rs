//! Fetches a file's patterns from its owner, and makes its [`FileMap`] of them.
use super::file_map::FileMap;
use super::intervals::{ByteSource, INTERVAL_MEMORY, ReadPlan};
use super::open_file::{FetchedExtents, OpenFile};
use super::windows::{MAX_REPLY_EXTENTS, OwnerExtents};
use crate::{Error, ExtentLayout, Fid, LOST_LOG, Member, Result};
use forebay_data::LogId;
use forebay_pattern::Patterns;
use forebay_proto::files::{ExtentsReply, GetPatterns, PatternHole, PatternsReply};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Pieces gone through at a time.
const WALK_STEP_PIECES: usize = 16 << 10;

/// What an owner said of a file's patterns.
pub(super) struct FilePatterns {
    pub patterns: Patterns,
    /// How many bytes they took.
    pub encoded: usize,
    pub holes: Vec<PatternHole>,
    /// Where something else may be.
    pub residual: Vec<Range<u64>>,
    pub published: u64,
}

impl FilePatterns {
    pub fn map(self) -> FileMap {
        FileMap::new(self.patterns.map(), &self.holes, self.residual)
    }
}

impl OwnerExtents {
    pub fn ask_patterns(&self, fid: Fid) -> Result<FilePatterns> {
        let owner = fid.owner();
        let PatternsReply {
            bytes,
            holes,
            residual,
            published,
        } = self.ctx.call(owner, GetPatterns { fid })?;
        self.ctx.counters.mapped();
        let mut residual: Vec<_> = residual
            .into_iter()
            .map(|(start, end)| start..end)
            .collect();
        let (patterns, lost) = forebay_pattern::decode_all(&bytes);
        if let Some(loss) = lost.first() {
            tracing::warn!(fid = fid.0, owner, error = %loss.why, "patterns that the owner sent cannot be read; it is asked for extents");
            residual = std::iter::once(0..u64::MAX).collect();
        }
        Ok(FilePatterns {
            patterns,
            encoded: bytes.len(),
            holes,
            residual,
            published,
        })
    }

    /// Asks for the map of the file, also for `asked`. `Replan` if the file has moved on.
    pub fn ask_map(
        &self,
        file: &OpenFile,
        generation: u64,
        asked: &mut FetchedExtents,
    ) -> Result<()> {
        let told = self.ask_patterns(file.fid)?;
        if told.published > generation {
            return Err(Error::Replan);
        }
        let mut map = told.map();
        if map.memory() > self.memory.most_pieces / 8 * INTERVAL_MEMORY as usize {
            // Patterns hardly in order: windows of what is read take less.
            map = FileMap::unknown();
        }
        let map = Arc::new(map);
        {
            let mut state = file.state.lock();
            if state.attr.generation != generation {
                return Err(Error::Replan);
            }
            state.map = Some(map.clone());
            // The map says the same in less memory.
            state.windows.clear();
        }
        self.memory
            .layer_grew(map.memory() / INTERVAL_MEMORY as usize, false);
        asked.map = Some(map);
        Ok(())
    }

    /// This member's logs that a file has bytes in, or had. A removed file names none in the index.
    pub fn own_logs(&self, fid: Fid, layout: ExtentLayout) -> Result<BTreeSet<LogId>> {
        let own = self.ctx.member();
        let mut logs = BTreeSet::new();
        let mut ranges: Vec<_> = std::iter::once(0..u64::MAX).collect();
        if layout == ExtentLayout::Patterned {
            let told = self.ask_patterns(fid)?;
            let sources = told.patterns.sources().into_iter();
            logs.extend(sources.filter(|s| s.member == own).map(|s| s.log));
            ranges = told.residual;
        }
        for member in self.extent_members(fid, layout) {
            for range in &ranges {
                let walked = self.walk_extents(fid, member, range.clone(), &mut |_, source| {
                    if let ByteSource::Log { member, log, .. } = source
                        && member == own
                        && log != LOST_LOG
                    {
                        logs.insert(log);
                    }
                    true
                });
                match walked {
                    Err(e) if e.errno() == Errno::STALE => {}
                    walked => walked?,
                }
            }
        }
        Ok(logs)
    }

    /// Goes through what is committed of a file with patterns, in order; holes may be left out. If the file changes meanwhile, that may
    /// be of different moments.
    pub fn walk(
        &self,
        fid: Fid,
        range: Range<u64>,
        each: &mut dyn FnMut(Range<u64>, ByteSource),
    ) -> Result<()> {
        let map = self.ask_patterns(fid)?.map();
        let ask = |gap: Range<u64>, each: &mut dyn FnMut(Range<u64>, ByteSource)| {
            self.walk_extents(fid, fid.owner(), gap, &mut |piece, source| {
                each(piece, source);
                true
            })
        };
        let mut at = range.start;
        while at < range.end {
            let plan = map.fill(ReadPlan::unknown(at..range.end), WALK_STEP_PIECES);
            let mut missing = plan.missing.into_iter().peekable();
            for (piece, source) in plan.found {
                while let Some(gap) = missing.next_if(|gap| gap.start < piece.start) {
                    ask(gap, each)?;
                }
                each(piece, source);
            }
            missing.try_for_each(|gap| ask(gap, each))?;
            at = plan.until;
        }
        Ok(())
    }

    /// The same by asking a member for the extents that it knows of, while `each` says so.
    pub fn walk_extents(
        &self,
        fid: Fid,
        member: Member,
        range: Range<u64>,
        each: &mut dyn FnMut(Range<u64>, ByteSource) -> bool,
    ) -> Result<()> {
        let mut from = range.start;
        while from < range.end {
            let ExtentsReply { extents, more, .. } =
                self.ask_member(fid, member, from..range.end, MAX_REPLY_EXTENTS)?;
            for e in extents.iter().filter_map(|e| e.clip(&range)) {
                if !each(e.offset..e.end(), ByteSource::log(e.member, e.log, e.addr)) {
                    return Ok(());
                }
            }
            from = match extents.last() {
                Some(last) if more => last.end(),
                _ => range.end,
            };
        }
        Ok(())
    }
}
