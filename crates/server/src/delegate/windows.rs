//! Asking the owners where committed bytes are, and caching the answers as windows.
//!
//! An answer is cached only if the file's view is still the one it was asked for, and only if the slice's owner has
//! published nothing newer: so all windows of a file show one generation.
//!
//! The owner of a file with patterns has all of its extents. The patterns are fetched once for each generation and become the
//! file's map; extents are asked for only where the map is stale. Answers about extents take patterns into account, so windows
//! are valid in files with patterns too.
//!
//! The first lookup of a generation asks only for the range that is read: nodes that take turns under a lock each read a little
//! of what another has just written, and then the windows are outdated again. From the second lookup on, more than that range is
//! fetched, and the patterns too.
use super::context::DelegateContext;
use super::intervals::{ByteSource, Intervals};
use super::memory::LayerMemory;
use super::open_file::{FetchedExtents, OpenFile};
use crate::{Error, ExtentLayout, Fid, Member, Result};
use forebay_index::{Extent, MAX_EXTENT, SLICE};
use forebay_proto::files::{ExtentsReply, GetExtents};
use std::ops::Range;
use std::sync::Arc;

/// Most extents in one answer: some 60 KiB on the wire.
pub(super) const MAX_REPLY_EXTENTS: u32 = 4096;
/// The same for the first question about a generation.
const FIRST_REPLY_EXTENTS: u32 = 256;
/// A file's windows are emptied when they reach this many pieces (some 4 MiB of memory).
const MAX_WINDOW_PIECES: usize = 64 << 10;

/// Asks owners for the extents and patterns of files.
pub(super) struct OwnerExtents {
    pub ctx: Arc<DelegateContext>,
    pub memory: Arc<LayerMemory>,
}

impl OwnerExtents {
    /// Asks for the first of these ranges, and for the others as long as `asked` has fewer than `most` pieces. What is
    /// learned goes to the windows, and what lies from the first range to the end of the last also to `asked`, which is
    /// of `generation` and the caller's own: the windows may be emptied at any moment, also by this very answer, and a
    /// caller that relied on them might never finish. Afterwards `asked` has at least the first byte of the first range, or a map that it had not
    /// before. `Replan` if the file has moved on.
    pub fn ask_extents(
        &self,
        file: &OpenFile,
        missing: &[Range<u64>],
        generation: u64,
        most: usize,
        asked: &mut FetchedExtents,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
            return Ok(());
        };
        let wanted = first.start..last.end;
        let (narrow, wants_map, map) = {
            let mut state = file.state.lock();
            let narrow = state.asked.replace(generation) != Some(generation);
            (narrow, state.wants_map(asked), state.lowest(asked))
        };
        if wants_map && !narrow {
            return self.ask_map(file, generation, asked);
        }
        let limit = if narrow {
            FIRST_REPLY_EXTENTS
        } else {
            MAX_REPLY_EXTENTS
        };
        // Up to where the answers of this call reach.
        let mut reach = 0;
        for range in missing {
            let stale = map.as_ref().and_then(|map| map.stale_range_at(range.start));
            let stale = stale.unwrap_or(0..u64::MAX);
            let mut from = range.start.max(reach);
            if reach <= range.start && !narrow {
                // Small reads come in rows: start at the round offset before, and take what the answer holds behind.
                let round = (range.start / MAX_EXTENT * MAX_EXTENT).max(stale.start);
                let known = file.state.lock().windows.segment(round).0.is_some();
                from = if known { range.start } else { round };
            }
            while from < range.end {
                let end = (from / SLICE + 1).saturating_mul(SLICE).min(stale.end);
                let owner = self.extent_owner(file, from);
                let (extents, more) = self.ask_owner(file, owner, from..end, limit, generation)?;
                let covered = match extents.last() {
                    Some(last) if more => last.end(),
                    _ => end,
                };
                fill(file, from..covered, &extents, generation)?;
                self.memory.layer_grew(extents.len() + 1, false);
                let own = from.max(wanted.start)..covered.min(wanted.end);
                put(&mut asked.pieces, own, &extents);
                reach = covered;
                // Where there are more than few, the patterns say it quicker.
                let enough = asked.pieces.len() >= most || (wants_map && more);
                if reach > wanted.start && enough {
                    return Ok(());
                }
                // Many small extents lie between the round offset and the range: they are left out.
                from = reach.max(range.start);
            }
        }
        Ok(())
    }

    /// Looks for the first extent at or after `from` in all slices at once, and remembers, also in `asked`, that there is
    /// nothing before it. Of a file with patterns: asks for those, or looks up to where the map is stale.
    pub fn ask_ahead(
        &self,
        file: &OpenFile,
        from: u64,
        size: u64,
        generation: u64,
        asked: &mut FetchedExtents,
    ) -> Result<()> {
        let (layout, wants_map, map) = {
            let state = file.state.lock();
            let layout = state.attr.layout;
            (layout, state.wants_map(asked), state.lowest(asked))
        };
        if wants_map {
            return self.ask_map(file, generation, asked);
        }
        let stale = map.and_then(|map| map.stale_range_at(from));
        let end = stale.map_or(size, |stale| stale.end.min(size));
        let mut first = end;
        for member in self.extent_members(file.fid, layout) {
            let (extents, _) = self.ask_owner(file, member, from..end, 1, generation)?;
            first = extents.first().map_or(first, |e| first.min(e.offset));
        }
        put(&mut asked.pieces, from..first, &[]);
        fill(file, from..first, &[], generation)
    }

    /// The members that have extents of a file of this layout.
    pub fn extent_members(&self, fid: Fid, layout: ExtentLayout) -> Range<Member> {
        match layout {
            ExtentLayout::Patterned => fid.owner()..fid.owner() + 1,
            ExtentLayout::OwnerOnly | ExtentLayout::BySlice => 0..self.ctx.members(),
        }
    }

    /// The member that has the extents there.
    fn extent_owner(&self, file: &OpenFile, offset: u64) -> Member {
        let owner = file.fid.owner();
        match file.state.lock().attr.layout {
            ExtentLayout::Patterned => owner,
            ExtentLayout::OwnerOnly | ExtentLayout::BySlice => {
                self.ctx.slices().member(owner, offset)
            }
        }
    }

    fn ask_owner(
        &self,
        file: &OpenFile,
        member: Member,
        range: Range<u64>,
        limit: u32,
        generation: u64,
    ) -> Result<(Vec<Extent>, bool)> {
        let reply = self.ask_member(file.fid, member, range, limit)?;
        if reply.published > generation {
            Err(Error::Replan)
        } else {
            Ok((reply.extents, reply.more))
        }
    }

    /// Extents, as that member answers them.
    pub fn ask_member(
        &self,
        fid: Fid,
        member: Member,
        range: Range<u64>,
        limit: u32,
    ) -> Result<ExtentsReply> {
        let request = GetExtents {
            fid,
            start: range.start,
            end: range.end,
            limit,
        };
        self.ctx.call(member, request)
    }
}

/// Caches an answer: these extents, and holes between them.
fn fill(file: &OpenFile, range: Range<u64>, extents: &[Extent], generation: u64) -> Result<()> {
    let mut state = file.state.lock();
    if state.attr.generation != generation {
        return Err(Error::Replan);
    }
    if state.windows.len() + extents.len() > MAX_WINDOW_PIECES {
        state.windows.clear();
    }
    put(&mut state.windows, range, extents);
    Ok(())
}

/// What an answer says of `range`, which it covers.
fn put(intervals: &mut Intervals, range: Range<u64>, extents: &[Extent]) {
    let mut at = range.start;
    for e in extents.iter().filter_map(|e| e.clip(&range)) {
        intervals.insert(at..e.offset, ByteSource::Hole, |_, _| ());
        let source = ByteSource::log(e.member, e.log, e.addr);
        intervals.insert(e.offset..e.end(), source, |_, _| ());
        at = e.end();
    }
    intervals.insert(at..range.end, ByteSource::Hole, |_, _| ());
}
