//! Files and their bytes: the extents of all members against sizes, byte counts and spans.
//!
//! An inode counts the bytes of its extents and patterns.
//! - It counts more than is found: bytes are lost, and where they were is not known. So every hole of the file is `EIO`.
//! - It counts fewer, or an extent is newer than the inode, or lost batches may have written to the file: the inode may be an old
//!   version. So holes are `EIO` too, and the file is made one byte longer, which is `EIO` as well: a reader gets an error, not the
//!   end of the file, where more bytes may have been lost.
use super::NewStore;
use super::collect::CollectedRecords;
use super::losses::LossReport;
use super::names::RebuiltNames;
use crate::files::check::{PatternGaps, holders_record, pattern_gaps, recount_patterns};
use crate::{ExtentLayout, Fid, Kind, LOST_LOG, Member, Result, keys};
use forebay_index::{Change, Extent};
use forebay_proto::placement::SliceMap;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// Lost bytes that are marked in one file, at most: what lies after them is cut off. An extent a MiB.
const MAX_LOST_BYTES: u64 = 16 << 40;
/// Gaps between the patterns of a file that are told apart.
const MAX_PATTERN_GAPS: usize = 1 << 20;

/// See the head of this file.
pub struct ContentRebuild<'a> {
    collected: &'a CollectedRecords,
    map: SliceMap,
    decided: HashMap<Fid, Vec<usize>>,
    /// How many bytes lost batches may have placed in files.
    unplaced: BTreeMap<Fid, u64>,
}

/// Extents by offset, none over another.
#[derive(Default)]
struct FileExtents(BTreeMap<u64, Extent>);

impl FileExtents {
    fn cut(&mut self, range: Range<u64>) {
        let before = self.0.range(..range.start).next_back().map(|(_, e)| *e);
        let over = self.0.range(range.clone()).map(|(_, e)| *e);
        let touched: Vec<Extent> = before.into_iter().chain(over).collect();
        for extent in touched.iter().filter(|e| e.end() > range.start) {
            self.0.remove(&extent.offset);
            for part in [0..range.start, range.end..u64::MAX] {
                if let Some(part) = extent.clip(&part) {
                    self.0.insert(part.offset, part);
                }
            }
        }
    }

    fn put(&mut self, extent: Extent) {
        self.cut(extent.offset..extent.end());
        self.0.insert(extent.offset, extent);
    }

    fn bytes(&self) -> u64 {
        self.0.values().map(|e| e.len).sum()
    }

    fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, e)| e.end())
    }

    fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), 0);
        for extent in self.0.values() {
            if extent.offset > at {
                gaps.push(at..extent.offset);
            }
            at = extent.end();
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }
}

impl<'a> ContentRebuild<'a> {
    pub fn new(
        collected: &'a CollectedRecords,
        unplaced: BTreeMap<Fid, u64>,
    ) -> ContentRebuild<'a> {
        let mut decided: HashMap<Fid, Vec<usize>> = HashMap::new();
        for (at, commit) in collected.decided.iter().enumerate() {
            decided.entry(commit.fid).or_default().push(at);
        }
        ContentRebuild {
            collected,
            map: SliceMap {
                members: collected.members.len() as u16,
            },
            decided,
            unplaced,
        }
    }

    /// Writes the extents of all files, and puts right what their inodes say of them.
    pub fn write(
        &mut self,
        names: &mut RebuiltNames,
        targets: &mut [NewStore],
        losses: &mut LossReport,
    ) -> Result<()> {
        let mut sources = Vec::new();
        for m in &self.collected.members {
            // What cannot be read is told with the damage of the store.
            let all = m.index.as_ref().and_then(|index| index.iter().ok());
            let readable = all.map(|all| all.filter_map(|entry| entry.ok()));
            sources.extend(readable.map(Iterator::peekable));
        }
        let mut seen = HashSet::new();
        while let Some(fid) = sources
            .iter_mut()
            .filter_map(|s| s.peek().map(|(fid, _)| *fid))
            .min()
        {
            let mut extents = Vec::new();
            for source in &mut sources {
                while let Some((_, extent)) = source.next_if(|(f, _)| *f == fid) {
                    extents.push(extent);
                }
            }
            seen.insert(Fid(fid));
            self.file(Fid(fid), extents, names, targets, losses)?;
        }
        let files = names
            .inodes
            .iter()
            .filter(|(fid, i)| i.kind == Kind::File && !seen.contains(fid));
        let others: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        for fid in others {
            self.file(fid, Vec::new(), names, targets, losses)?;
        }
        Ok(())
    }

    fn file(
        &self,
        fid: Fid,
        mut extents: Vec<Extent>,
        names: &mut RebuiltNames,
        targets: &mut [NewStore],
        losses: &mut LossReport,
    ) -> Result<()> {
        if !names.inodes.contains_key(&fid) {
            // If its inode's member is whole, it was removed, and its bytes were on their way.
            if !self.collected.is_uncertain(fid) || !super::is_member(fid, targets.len()) {
                return Ok(());
            }
            names.adopt(fid, losses);
        }
        let unknown = names.unknown.contains(&fid);
        let Some(inode) = names.inodes.get_mut(&fid).filter(|i| i.kind == Kind::File) else {
            return Ok(());
        };
        extents.sort_by_key(|e| e.seq);
        let mut laid = FileExtents::default();
        extents.into_iter().for_each(|extent| laid.put(extent));
        for commit in self.decided.get(&fid).into_iter().flatten() {
            let commit = &self.collected.decided[*commit];
            for change in &commit.changes {
                match change {
                    Change::Put(extent) => laid.put(Extent {
                        seq: commit.seq,
                        ..*extent
                    }),
                    Change::Cut { start, end } => laid.cut(*start..*end),
                }
            }
        }
        // Bytes of which it is not known where they lie.
        let missing: Vec<Range<u64>> = laid
            .0
            .values()
            .filter(|extent| extent.log != LOST_LOG)
            .flat_map(|extent| self.collected.missing(extent))
            .collect();
        let mut damaged: u64 = laid.0.values().map(|e| self.collected.damaged(e)).sum();
        let owner = fid.owner();
        let lost_extent = |range: &Range<u64>, seq: u64| Extent {
            offset: range.start,
            len: range.end - range.start,
            member: owner,
            log: LOST_LOG,
            addr: range.start,
            seq,
        };
        let newest = laid.0.values().map(|e| e.seq).max().unwrap_or(0);
        let known_seq = inode.seq;
        inode.seq = inode.seq.max(newest);
        for range in &missing {
            laid.put(lost_extent(range, inode.seq));
        }
        let target = &mut targets[usize::from(owner)];
        // An inode that is made anew, or an older one, does not know of patterns.
        if keys::records_of(&target.store, keys::PATTERNS, fid)
            .next()
            .is_some()
        {
            inode.layout = ExtentLayout::Patterned;
        }
        let patterned = inode.layout == ExtentLayout::Patterned;
        let mut lost: u64 = missing.iter().map(|r| r.end - r.start).sum();
        let (mut pattern_bytes, mut end) = (0, laid.end());
        if patterned {
            // What lies over the patterns is asked for from the new index.
            self.put(fid, &laid, true, std::slice::from_mut(target), owner)?;
            let held = self.patterns(target, fid, 0)?;
            damaged += held
                .extents
                .iter()
                .map(|e| self.collected.damaged(e))
                .sum::<u64>();
            pattern_bytes = held.bytes;
            end = end.max(held.end);
            for range in &held.missing {
                laid.put(lost_extent(range, inode.seq));
                lost += range.end - range.start;
                pattern_bytes -= range.end - range.start;
            }
        }
        let counted = laid.bytes() + pattern_bytes;
        let trusted = self.collected.unpublished.contains(&fid)
            || names.orphans.contains(&fid)
            || !self.collected.any_uncertain();
        let more = !trusted && counted > inode.bytes;
        let unplaced = self.unplaced.get(&fid).copied().unwrap_or(0);
        let older = unknown
            || more
            || unplaced > 0
            || (!trusted && (newest > known_seq || end > inode.size));
        let short = !trusted && counted < inode.bytes;
        if older || short {
            inode.size = inode.size.max(end);
            let mut gaps = match patterned && !more {
                true => self.patterns(target, fid, inode.size)?.gaps,
                // Of patterns that hold more than they should a hole may be lost, and it is not known where.
                false => laid.gaps(inode.size),
            };
            if older {
                gaps.push(inode.size..inode.size.saturating_add(1));
                inode.size = inode.size.saturating_add(1);
            }
            let mut room = MAX_LOST_BYTES;
            for gap in &gaps {
                let len = gap.end - gap.start;
                if len > room {
                    inode.size = gap.start + room;
                    laid.cut(inode.size..u64::MAX);
                    laid.put(lost_extent(&(gap.start..inode.size), inode.seq));
                    lost += room;
                    break;
                }
                room -= len;
                lost += len;
                laid.put(lost_extent(gap, inode.seq));
            }
        }
        if patterned && lost > 0 {
            self.put(fid, &laid, true, std::slice::from_mut(target), owner)?;
            recount_patterns(&target.store, &target.index, &mut target.batch, fid)?;
            target.apply()?;
            pattern_bytes = self.patterns(target, fid, 0)?.bytes;
        }
        inode.bytes = laid.bytes() + pattern_bytes;
        let size = inode.size;
        let holders: HashSet<Member> = match patterned {
            true => HashSet::from([owner]),
            false => laid
                .0
                .values()
                .flat_map(|e| self.holders(owner, e))
                .collect(),
        };
        if !patterned && holders.iter().any(|m| *m != owner) {
            inode.layout = ExtentLayout::BySlice;
            let mut members: Vec<Member> = holders.into_iter().collect();
            members.sort_unstable();
            let (key, value) = holders_record(fid, &members);
            targets[usize::from(owner)].put(keys::DECISIONS, key, value)?;
        }
        if !patterned {
            self.put(fid, &laid, false, targets, owner)?;
        }
        let path = || names.path(fid);
        if unknown {
            losses.lose(
                path(),
                format!("its owner, mode, times and size; {lost} bytes answer EIO"),
            );
        } else if unplaced > 0 {
            losses.lose(
                path(),
                format!("its last changes: {unplaced} bytes were written to it of which no record says where they go; {lost} of {size} bytes answer EIO"),
            );
        } else if older {
            losses.lose(
                path(),
                format!("its last changes; {lost} of {size} bytes answer EIO"),
            );
        } else if lost > 0 {
            losses.lose(path(), format!("{lost} of {size} bytes answer EIO"));
        }
        if damaged > 0 {
            losses.damaged_files += 1;
            losses.lose(
                path(),
                format!("{damaged} of {size} bytes are damaged or missing in segment files"),
            );
        }
        Ok(())
    }

    /// What the patterns of the file hold, by the new records.
    fn patterns(&self, target: &NewStore, fid: Fid, size: u64) -> Result<PatternGaps> {
        let missing = |extent: &Extent| self.collected.missing(extent);
        pattern_gaps(
            &target.store,
            &target.index,
            fid,
            size,
            MAX_PATTERN_GAPS,
            &missing,
        )
    }

    fn holders(&self, owner: Member, extent: &Extent) -> impl Iterator<Item = Member> + use<> {
        let (map, first) = (self.map, extent.offset / forebay_index::SLICE);
        let last = (extent.end() - 1) / forebay_index::SLICE;
        (first..=last)
            .take(usize::from(map.members))
            .map(move |slice| map.member(owner, slice * forebay_index::SLICE))
    }

    /// Puts extents where they belong. `targets` of a file with patterns: the owner's, or all.
    fn put(
        &self,
        fid: Fid,
        laid: &FileExtents,
        patterned: bool,
        targets: &mut [NewStore],
        owner: Member,
    ) -> Result<()> {
        let mut changes: HashMap<usize, Vec<Change>> = HashMap::new();
        for extent in laid.0.values() {
            let mut at = extent.offset;
            while at < extent.end() {
                let slice = (at / forebay_index::SLICE + 1).saturating_mul(forebay_index::SLICE);
                let end = if patterned {
                    extent.end()
                } else {
                    slice.min(extent.end())
                };
                let member = match patterned {
                    true => owner,
                    false => self.map.member(owner, at),
                };
                let target = match targets.len() {
                    1 => 0,
                    _ => usize::from(member),
                };
                let part = extent.clip(&(at..end));
                changes
                    .entry(target)
                    .or_default()
                    .extend(part.map(Change::Put));
                at = end;
            }
        }
        for (target, changes) in changes {
            let target = &mut targets[target];
            target.apply()?;
            for changes in changes.chunks(super::RECORDS_PER_BATCH) {
                target.index.change(&mut target.batch, fid.0, changes)?;
                target.apply()?;
            }
        }
        Ok(())
    }
}
