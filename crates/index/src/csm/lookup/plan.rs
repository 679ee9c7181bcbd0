//! Plans which blocks of one source a piece of requests needs.
//!
//! Invariant: planned blocks ascend, each once; a request's blocks are the last one that starts at or before it, if that can
//! reach it, and all that start within it.
use super::RangeRequest;
use super::source_cursor::{BlockOrigin, PlannedBlock, SourceCursor};
use crate::csm::record::{Key, RECORD, Record};
use crate::csm::scan::Source;
use crate::csm::search::{from_hint, interpolate};
use crate::csm::sorted::SortedRun;
use crate::csm::table::{BlockMap, Table, WantedBlock};
use crate::csm::tree::{Leaf, Tree};
use forebay_storage::Result;
use std::sync::Arc;

/// What a planned block costs in memory beside its bytes.
const BLOCK_OVERHEAD_BYTES: usize = 64;

/// See the head of this file.
pub enum Plan<'a> {
    /// Records that are in memory as they are, and the first at or above the start of the last request.
    Run(&'a [Record], usize),
    /// Blocks in memory.
    Tree(TreePlan<'a>),
    /// Blocks of table files.
    Disk(DiskPlan<'a>),
}

/// Blocks of a tree.
pub struct TreePlan<'a> {
    tree: &'a Tree,
    /// The blocks, and how many requests each is for.
    blocks: Vec<(Leaf<'a>, u32)>,
}

/// Blocks of table files.
pub struct DiskPlan<'a> {
    run: &'a SortedRun,
    /// The last table that starts at or before the last request.
    start: usize,
    /// The table whose places are at hand; `usize::MAX` for none.
    loaded: usize,
    places: Arc<BlockMap>,
    groups: Vec<Group<'a>>,
    /// The range of the block planned last, of those in `groups`.
    last: Option<(Key, Key)>,
    /// The run has no record above the first of these keys and below the second.
    gap: (Key, Key),
}

/// Planned blocks of one table.
struct Group<'a> {
    number: usize,
    table: &'a Table,
    places: Arc<BlockMap>,
    wants: Vec<WantedBlock>,
}

impl<'a> Plan<'a> {
    /// Nothing planned.
    pub fn new(source: &'a Source) -> Plan<'a> {
        match source {
            Source::Run(run) => Plan::Run(run, 0),
            Source::Tree(tree) => Plan::Tree(TreePlan {
                tree,
                blocks: Vec::new(),
            }),
            Source::Disk(run) => Plan::Disk(DiskPlan {
                run,
                start: 0,
                loaded: usize::MAX,
                places: Arc::default(),
                groups: Vec::new(),
                last: None,
                gap: (Key::MIN, Key::MIN),
            }),
        }
    }

    /// Forgets what was planned.
    pub fn clear(&mut self) {
        match self {
            Plan::Run(..) => {}
            Plan::Tree(plan) => plan.blocks.clear(),
            Plan::Disk(plan) => {
                plan.groups.clear();
                plan.last = None;
            }
        }
    }

    /// Plans the blocks for a request, which starts at or after those before; returns the bytes that this adds. Stops once these
    /// are `most` or more.
    ///
    /// # Errors
    /// Those of reading metadata regions.
    pub fn add(&mut self, request: &RangeRequest, most: usize) -> Result<usize> {
        match self {
            // Nothing to fetch; but who asks for few bytes does not want all records of a long run.
            Plan::Run(run, at) => {
                *at = from_hint(*at, run.len(), |i| run[i].key < request.at);
                let many = run.get(at.saturating_add(most / RECORD));
                let large = many.is_some_and(|record| record.key < request.end);
                Ok(if large { most } else { 0 })
            }
            Plan::Tree(plan) => Ok(plan.add(request, most)),
            Plan::Disk(plan) => plan.add(request, most),
        }
    }

    /// Fetches what was planned.
    ///
    /// # Errors
    /// Those of reading table files.
    pub fn fetch(&mut self) -> Result<()> {
        if let Plan::Disk(plan) = self {
            for group in &mut plan.groups {
                group.table.fetch(&mut group.wants)?;
            }
        }
        Ok(())
    }

    /// The cursor through what was fetched, if there is anything.
    pub fn cursor(&self) -> Option<SourceCursor<'_>> {
        let cursor = match self {
            Plan::Run([], _) => return None,
            Plan::Run(run, _) => SourceCursor::of_run(run),
            Plan::Tree(plan) if plan.blocks.is_empty() => return None,
            Plan::Disk(plan) if plan.groups.is_empty() => return None,
            Plan::Tree(plan) => {
                let step = |(block, requests): &(Leaf<'a>, u32)| PlannedBlock {
                    first: block.first,
                    last: block.last,
                    bytes: block.bytes,
                    requests: *requests,
                    home: BlockOrigin::Memory,
                };
                SourceCursor::of_blocks(plan.blocks.iter().map(step).collect())
            }
            Plan::Disk(plan) => {
                let steps = plan.groups.iter().flat_map(Group::steps);
                SourceCursor::of_blocks(steps.collect())
            }
        };
        Some(cursor)
    }
}

impl Group<'_> {
    fn steps(&self) -> impl Iterator<Item = PlannedBlock<'_>> {
        self.wants.iter().map(|want| {
            let block = want.block as usize;
            let bytes = want.raw.as_ref().map_or(&[][..], |raw| raw.bytes());
            // Looked at here, where nothing waits for it: the processor gets the bytes of many blocks from memory at once.
            std::hint::black_box(bytes.first().copied());
            PlannedBlock {
                first: self.places.first(block),
                last: self.places.last(block),
                bytes,
                requests: want.requests,
                home: BlockOrigin::Table(self.table, block),
            }
        })
    }
}

/// Whether the request needs no other blocks than the one with these keys, which was planned last.
fn inside(request: &RangeRequest, first: Key, last: Key) -> bool {
    first <= request.at && request.end <= last
}

impl TreePlan<'_> {
    fn add(&mut self, request: &RangeRequest, most: usize) -> usize {
        let last = self.blocks.last_mut();
        let behind = match last {
            Some((block, requests)) if inside(request, block.first, block.last) => {
                *requests += 1;
                return 0;
            }
            Some((block, requests)) => {
                *requests += u32::from(request.at <= block.last);
                Some(block.first)
            }
            None => None,
        };
        let mut bytes = 0;
        for block in self.tree.reach(request.far, request.at, request.end) {
            if behind.is_none_or(|behind| block.first > behind) {
                bytes += block.bytes.len() + BLOCK_OVERHEAD_BYTES;
                self.blocks.push((block, 1));
                if bytes >= most {
                    break;
                }
            }
        }
        bytes
    }
}

impl DiskPlan<'_> {
    fn add(&mut self, request: &RangeRequest, most: usize) -> Result<usize> {
        if self.gap.0 < request.far && request.end <= self.gap.1 {
            return Ok(0);
        }
        let mut behind = None;
        if let Some((first, last)) = self.last
            && let Some(group) = self.groups.last_mut()
            && let Some(want) = group.wants.last_mut()
        {
            if inside(request, first, last) {
                want.requests += 1;
                return Ok(0);
            }
            want.requests += u32::from(request.at <= last);
            behind = Some((group.number, want.block as usize));
        }
        let tables = &self.run.tables;
        // The last table that starts at or before the request; mostly that of the last request, or the next.
        let firsts = &self.run.firsts[..];
        let starts = |t: usize| firsts[t] <= request.at;
        let mut near = self.start + 1;
        if let ([first, ..], [.., last]) = (firsts, firsts)
            && near < firsts.len()
            && starts(near)
            && first.fid == last.fid
        {
            near = interpolate(request.at.offset, first.offset, last.offset, firsts.len());
        }
        let above = from_hint(near, tables.len(), starts);
        self.start = above.saturating_sub(1);
        let mut bytes = 0;
        let mut gap = (Key::MIN, Key::MAX);
        for (number, table) in tables.iter().enumerate().skip(self.start) {
            if table.meta().first >= request.end {
                gap.1 = table.meta().first;
                break;
            }
            if table.meta().last < request.far {
                gap.0 = table.meta().last;
                continue;
            }
            if self.loaded != number {
                self.places = table.places()?;
                self.loaded = number;
            }
            let places = &self.places;
            // Mostly the block after the one planned last, so this and that one start before the request.
            let hint = behind.map_or(0, |(t, b)| if t == number { b + 2 } else { 1 });
            let above = places.upper_bound(request.at, hint);
            for i in above.saturating_sub(1)..places.len() {
                let first = places.first(i);
                if first >= request.end {
                    gap.1 = first;
                    self.gap = gap;
                    return Ok(bytes);
                }
                let last = places.last(i);
                if last < request.far {
                    gap.0 = last;
                    continue;
                }
                // Of this block on, until one that starts after the request, there is no gap.
                gap.0 = Key::MAX;
                if behind.is_some_and(|b| (number, i) <= b) {
                    continue;
                }
                bytes += (places.end(i) - places.offset(i)) as usize + BLOCK_OVERHEAD_BYTES;
                self.last = Some((first, last));
                want(&mut self.groups, number, table, places, i);
                if bytes >= most {
                    return Ok(bytes);
                }
            }
        }
        self.gap = gap;
        Ok(bytes)
    }
}

/// Plans a block of the table of this number.
fn want<'a>(
    groups: &mut Vec<Group<'a>>,
    number: usize,
    table: &'a Table,
    places: &Arc<BlockMap>,
    block: usize,
) {
    if let Some(group) = groups.last_mut()
        && group.number == number
    {
        return group.wants.push(WantedBlock::one(block as u32));
    }
    groups.push(Group {
        number,
        table,
        places: places.clone(),
        wants: vec![WantedBlock::one(block as u32)],
    });
}
