//! One file as this node sees it, shared by all of the node's handles: what is committed, what is being committed, and
//! what is pending above that.
//!
//! ```text
//! read  ->  pending      writes since the last commit began      (this node only)
//!           committing   the layer a commit is publishing now    (this node only, until it is published)
//!           windows      committed extents, as of one generation (a cache of the owners' index)
//!           map          (files with patterns) committed content where no window covers it
//! ```
//!
//! Invariants:
//! - `windows` and `map` hold what is true at `attr.generation`, nothing else: a view of another generation empties them.
//! - `attr.generation` never goes back.
//! - A byte leaves `committing` only after the view includes its commit, so a local reader never sees it vanish.
//! - `commit_lock` (one commit at a time) is taken before `state`, and `state` is never held through a call to another part.
//! - `sync_lock` is taken before `state` and never with `commit_lock` held; requests to other members are made under it.
use super::change_counters::{ChangeCounters, ChangeMark};
use super::commit_plan::CommitAttempt;
use super::drop_notes::DropNotes;
use super::file_map::FileMap;
use super::intervals::{ByteSource, INTERVAL_MEMORY, Intervals, ReadPlan, resolve};
use super::page_fill_gate::PageFillGate;
use super::pending::PendingLayer;
use super::prefetch::last_reads::LastReads;
use super::writeback_errors::WritebackErrors;
use crate::inodes::without_set_ids;
use crate::{Attr, ExtentLayout, Fid, Kind, Member, Time};
use forebay_data::LogId;
use forebay_proto::files::CommitAttr;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Memory of one file this node knows, about, beside the intervals of its layers; bytes.
pub const FILE_MEMORY: u64 = 1024;

/// See the head of this file.
pub struct OpenFile {
    /// Which file.
    pub fid: Fid,
    /// Held through a commit.
    pub commit_lock: Mutex<()>,
    /// Held while what earlier commits left is brought to disk: whoever finds nothing left to do waits until that is done.
    pub sync_lock: Mutex<()>,
    /// Held from asking for the offset of an append until its bytes are pending.
    pub append: Mutex<()>,
    /// Held for moments only.
    pub state: Mutex<FileState>,
    /// The kernel may hold pages of it, read or written through its page cache (see `kernel_pages`).
    pub paged: AtomicBool,
    /// Held while all of them are dropped.
    pub dropping: Mutex<()>,
    /// Dirty pages that this node could not store.
    pub writeback_errors: WritebackErrors,
    /// What its handles read last through the kernel's page cache, where it is filled unasked.
    pub last_reads: Mutex<LastReads>,
}

/// The changing part of an [`OpenFile`].
pub struct FileState {
    /// Attributes as of the last view.
    pub attr: Attr,
    /// Told of every change of what reads return.
    changes: Arc<ChangeCounters>,
    /// Told when a view moved the generation.
    view_moved: Arc<Condvar>,
    /// Where committed bytes are, as of `attr.generation`.
    pub windows: Intervals,
    /// The patterns, as of `attr.generation`.
    pub map: Option<Arc<FileMap>>,
    /// The generation that extents were asked for last.
    pub asked: Option<u64>,
    /// Writes that no commit has taken yet.
    pub pending: PendingLayer,
    /// What a commit has taken. It stays here after an attempt whose outcome is unknown, and is sent again first.
    pub committing: Option<Arc<CommitAttempt>>,
    /// Open handles.
    pub handles: u32,
    /// Those of them by which pages come into the kernel's cache (see `kernel_pages`).
    pub paging_handles: u32,
    /// The size that the kernel has for certain.
    pub told: Option<u64>,
    /// Members whose kernels have to hear of what was published (posix consistency).
    pub unshown: BTreeSet<Member>,
    /// The generation whose pages the kernel may hold.
    pub kernel: Option<u64>,
    /// Whether pages may be put into the kernel's page cache unasked.
    pub fills: PageFillGate,
    /// What is read while pages are dropped beside writes through the page cache.
    pub drops: DropNotes,
    /// Logs of closed handles, sealed when nothing of them is pending.
    pub retired: Vec<LogId>,
    /// Opens whose close was not sent to the owner yet, because a commit of this file has still to succeed.
    pub unreported_closes: Vec<u64>,
    /// Logs and members that hold committed bytes not known to be on disk.
    pub unsynced: UnsyncedParts,
    /// `unsynced` is all there is: no commit of this node is left out because the file was forgotten meanwhile.
    pub sync_state_complete: bool,
    /// The time of a cut since which the kernel has handed over none. It hands times over one after the other, but not in turn with
    /// a cut: it may have read the one that it hands over before the cut, and send it after. So it can be with the first one only.
    pub cut_mtime: Option<Time>,
}

/// What an fsync has to reach.
#[derive(Debug, Default, Clone)]
pub struct UnsyncedParts {
    /// Logs of this member.
    pub logs: BTreeSet<LogId>,
    /// Members whose index was changed.
    pub members: BTreeSet<u16>,
}

impl UnsyncedParts {
    /// Adds what is not on disk either.
    pub fn add(&mut self, other: UnsyncedParts) {
        self.logs.extend(other.logs);
        self.members.extend(other.members);
    }

    /// Whether everything is on disk.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.members.is_empty()
    }
}

impl OpenFile {
    /// A file as its owner described it, with nothing pending. `sync_state_complete`: see [`FileState::sync_state_complete`].
    pub fn new(attr: Attr, changes: Arc<ChangeCounters>, sync_state_complete: bool) -> OpenFile {
        let fid = attr.fid;
        let state = FileState {
            attr,
            changes,
            view_moved: Arc::default(),
            windows: Intervals::default(),
            map: None,
            asked: None,
            pending: PendingLayer::default(),
            committing: None,
            handles: 0,
            paging_handles: 0,
            told: None,
            unshown: BTreeSet::new(),
            kernel: None,
            fills: PageFillGate::default(),
            drops: DropNotes::default(),
            retired: Vec::new(),
            unreported_closes: Vec::new(),
            unsynced: UnsyncedParts::default(),
            sync_state_complete,
            cut_mtime: None,
        };
        OpenFile {
            fid,
            commit_lock: Mutex::new(()),
            sync_lock: Mutex::new(()),
            append: Mutex::new(()),
            state: Mutex::new(state),
            // From before this node knew it, maybe.
            paged: AtomicBool::new(true),
            dropping: Mutex::new(()),
            writeback_errors: WritebackErrors::default(),
            last_reads: Mutex::default(),
        }
    }

    /// Bytes of it go into the kernel's page cache from now on.
    pub fn enters_page_cache(&self) {
        if !self.paged.load(Ordering::SeqCst) {
            self.paged.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until this node has a newer view than of generation `seen`, at most until then. Whether it has.
    pub fn wait_newer(&self, seen: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        let moved = state.view_moved.clone();
        while state.attr.generation <= seen && !moved.wait_until(&mut state, until).timed_out() {}
        state.attr.generation > seen
    }
}

/// Pages of a file in this node's kernel that are older than what it has just been shown: to be dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalePages {
    pub(super) fid: Fid,
    pub(super) generation: u64,
}

/// What one call fetched for its view, held by the call itself: windows and map may be emptied at any moment.
#[derive(Debug, Default)]
pub struct FetchedExtents {
    /// Committed extents and holes.
    pub pieces: Intervals,
    /// The patterns.
    pub map: Option<Arc<FileMap>>,
}

impl FileState {
    /// Takes a newer view; an older one (answers overtake each other) changes nothing. True if the generation moved.
    pub fn observe(&mut self, attr: &Attr) -> bool {
        let moved = attr.generation > self.attr.generation;
        if moved {
            self.empty();
        }
        if attr.generation >= self.attr.generation {
            self.replace_view(attr);
        }
        moved
    }

    /// Takes this view; the windows are left as they are, and must fit it.
    pub fn replace_view(&mut self, attr: &Attr) {
        let view = |attr: &Attr| (attr.generation, attr.size);
        let changes = view(&self.attr) != view(attr);
        self.attr = attr.clone();
        if changes {
            self.content_changes();
        }
        self.view_moved.notify_all();
    }

    /// What reads of the file return on this node is being changed.
    pub fn content_changes(&self) {
        self.changes.advance(self.attr.fid);
    }

    /// By this it can be told later whether bytes that are read from now on are still what reads return.
    pub fn change_mark(&self) -> ChangeMark {
        self.changes.mark(self.attr.fid)
    }

    /// The kernel's pages, if they may be older than the view.
    pub fn stale_pages(&self, fid: Fid) -> Option<StalePages> {
        (self.kernel != Some(self.attr.generation)).then(|| self.pages(fid))
    }

    /// The kernel's pages, to be dropped in favour of those of the view.
    pub fn pages(&self, fid: Fid) -> StalePages {
        let generation = self.attr.generation;
        StalePages { fid, generation }
    }

    /// The size as this node sees it, bytes.
    pub fn size(&self) -> u64 {
        self.attr.size.max(self.unpublished_end())
    }

    /// The layers that are not published yet, lower first.
    pub fn unpublished(&self) -> impl Iterator<Item = &PendingLayer> {
        let committing = self.committing.as_ref().map(|a| &a.layer);
        committing.into_iter().chain([&self.pending])
    }

    /// The end of the file that those layers make; 0 if they say nothing.
    pub fn unpublished_end(&self) -> u64 {
        self.unpublished().map(PendingLayer::end).max().unwrap_or(0)
    }

    /// Their bytes in logs.
    pub fn unpublished_bytes(&self) -> u64 {
        self.unpublished().map(|l| l.intervals.bytes()).sum()
    }

    /// Their intervals.
    pub fn unpublished_intervals(&self) -> usize {
        self.unpublished().map(|l| l.intervals.len()).sum()
    }

    /// The kernel is about to hear of this size, and may take it or not.
    pub fn forget_other_kernel_size(&mut self, size: u64) {
        self.told = self.told.filter(|told| *told == size);
    }

    /// The attributes as this node sees them.
    pub fn shown(&self) -> Attr {
        self.show(self.attr.clone())
    }

    /// `attr` of this file, with this node's pending writes applied.
    pub fn show(&self, mut attr: Attr) -> Attr {
        if attr.kind != Kind::File {
            return attr;
        }
        for layer in self.unpublished() {
            attr.size = attr.size.max(layer.end());
            attr.bytes += layer.intervals.bytes();
            if let Some(mtime) = layer.attr.mtime {
                attr.ctime = attr.ctime.max(mtime);
                attr.mtime = mtime;
            }
            if layer.attr.clear_setid {
                attr.mode = without_set_ids(attr.mode);
            }
        }
        attr
    }

    /// Forgets what is known of committed bytes.
    pub fn empty(&mut self) {
        self.windows.clear();
        self.map = None;
    }

    /// Pieces that what is known of committed bytes is worth, in memory.
    pub fn cached(&self) -> usize {
        let map = self.map.as_ref().map_or(0, |map| map.memory());
        self.windows.len() + map.div_ceil(INTERVAL_MEMORY as usize)
    }

    /// Where the first bytes of `range` are, `most` pieces of them. What the layers do not know is missing: [`FileState::lowest`]
    /// may know it. `asked`: answers for the view of now that the caller holds, below the windows.
    pub fn plan(&self, range: Range<u64>, asked: &FetchedExtents, most: usize) -> ReadPlan {
        let mut plan = ReadPlan::default();
        let layers = self.layers(asked).into_iter().flatten();
        let layers: Vec<&Intervals> = layers.filter(|layer| !layer.is_empty()).collect();
        resolve(&layers, range, most, &mut plan);
        self.fill_behind_end(&mut plan);
        plan
    }

    /// Nothing is committed behind the end of the view: what is missing there is a hole, and nobody need be asked.
    fn fill_behind_end(&self, plan: &mut ReadPlan) {
        let size = self.attr.size;
        if plan.missing.last().is_none_or(|last| last.end <= size) {
            return;
        }
        for missing in &mut plan.missing {
            if missing.end > size {
                let hole = missing.start.max(size)..missing.end;
                missing.end = missing.end.min(size).max(missing.start);
                plan.found.push((hole, ByteSource::Hole));
            }
        }
        plan.missing.retain(|missing| !missing.is_empty());
        plan.found.sort_unstable_by_key(|(range, _)| range.start);
    }

    /// The lowest layer.
    pub fn lowest(&self, asked: &FetchedExtents) -> Option<Arc<FileMap>> {
        self.map.as_ref().or(asked.map.as_ref()).cloned()
    }

    /// Whether the lowest layer is wanted, but not there.
    pub fn wants_map(&self, asked: &FetchedExtents) -> bool {
        self.attr.layout == ExtentLayout::Patterned && self.map.is_none() && asked.map.is_none()
    }

    /// From the top.
    fn layers<'a>(&'a self, asked: &'a FetchedExtents) -> [Option<&'a Intervals>; 4] {
        [
            Some(&self.pending.intervals),
            self.committing.as_ref().map(|a| &a.layer.intervals),
            Some(&self.windows),
            Some(&asked.pieces),
        ]
    }

    /// Whether the byte at `at` is a hole (`None`: not known here), and up to where that holds at least. `asked`: as for a plan.
    pub fn hole_at(&self, at: u64, asked: &FetchedExtents) -> (Option<bool>, u64) {
        let mut until = u64::MAX;
        for layer in self.layers(asked).into_iter().flatten() {
            match layer.segment(at) {
                (Some(source), end) => return (Some(source == ByteSource::Hole), until.min(end)),
                (None, next) => until = until.min(next),
            }
        }
        let Some(map) = self.lowest(asked) else {
            return (None, until);
        };
        let (hole, end) = map.hole_at(at);
        (hole, until.min(end))
    }

    /// What is not published yet says nothing any more of the time, or of the set-id bits: they were set explicitly after
    /// it. The caller has the commit lock. An attempt without an answer keeps its token, so if it has happened, this changes
    /// nothing.
    pub fn forget(&mut self, mtime: bool, setid: bool) {
        let forget = |attr: &mut CommitAttr| {
            attr.mtime = attr.mtime.filter(|_| !mtime);
            attr.clear_setid &= !setid;
        };
        forget(&mut self.pending.attr);
        self.cut_mtime = self.cut_mtime.filter(|_| !mtime);
        if let Some(attempt) = &mut self.committing {
            let attempt = Arc::make_mut(attempt);
            forget(&mut attempt.attr);
            forget(&mut attempt.layer.attr);
        }
    }

    /// The time that a kernel hands over; ignored if it is of before a cut.
    pub fn set_kernel_mtime(&mut self, mtime: Time) {
        if self.cut_mtime.take().is_none_or(|cut| cut <= mtime) {
            self.pending.attr.mtime = Some(mtime);
        }
    }

    /// Whether this node has something to publish.
    pub fn dirty(&self) -> bool {
        self.committing.is_some() || !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtentLayout, Lamination};
    use std::time::Duration;

    fn attr(generation: u64, size: u64) -> Attr {
        let zero = Time::default();
        Attr {
            fid: Fid(9),
            kind: Kind::File,
            mode: 0o6755,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            bytes: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            generation,
            lamination: Lamination::None,
            layout: ExtentLayout::OwnerOnly,
            codec: None,
        }
    }

    fn new_file() -> OpenFile {
        OpenFile::new(attr(5, 10), ChangeCounters::new().unwrap(), true)
    }

    #[test]
    fn a_new_view_of_content_or_size_is_a_change_and_one_of_other_attributes_is_none() {
        let file = new_file();
        let mut state = file.state.lock();
        let mark = state.change_mark();
        state.observe(&Attr {
            mode: 0o600,
            ..attr(5, 10)
        });
        assert_eq!(state.change_mark(), mark);
        for newer in [attr(5, 11), attr(6, 11)] {
            let mark = state.change_mark();
            state.observe(&newer);
            assert_ne!(state.change_mark(), mark);
        }
    }

    #[test]
    fn windows_go_with_their_generation_and_an_old_view_changes_nothing() {
        let file = new_file();
        let mut state = file.state.lock();
        state.windows.insert(0..10, ByteSource::Hole, |_, _| ());
        assert!(!state.observe(&attr(5, 10)));
        let plan = |state: &FileState| {
            let plan = state.plan(0..10, &FetchedExtents::default(), 9);
            assert_eq!(plan.until, 10);
            plan.missing.is_empty()
        };
        assert!(plan(&state));
        assert!(!state.observe(&attr(4, 99)));
        assert_eq!(state.size(), 10);
        assert!(state.observe(&attr(6, 20)));
        assert!(!plan(&state));
    }

    #[test]
    fn nobody_is_asked_for_what_lies_behind_the_end_of_the_view() {
        let file = new_file();
        let mut state = file.state.lock();
        let source = ByteSource::log(0, 1, 0);
        state.pending.put(20..30, source);
        let plan = state.plan(0..40, &FetchedExtents::default(), 9);
        assert_eq!(plan.missing, vec![0..10]);
        let holes = [10..20, 30..40].map(|range| (range, ByteSource::Hole));
        let [before, behind] = holes;
        assert_eq!(plan.found, vec![before, (20..30, source), behind]);
        assert_eq!(plan.until, 40);
    }

    #[test]
    fn who_waits_for_a_newer_view_is_woken_by_it_alone() {
        let file = new_file();
        let far = Instant::now() + Duration::from_secs(600);
        assert!(file.wait_newer(4, far), "there is one");
        assert!(!file.wait_newer(5, Instant::now()), "there is none");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| file.wait_newer(6, far));
            for generation in [4, 6, 7] {
                file.state.lock().observe(&attr(generation, 10));
            }
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn pending_writes_show_in_the_attributes() {
        let file = new_file();
        let mut state = file.state.lock();
        state.pending.put(
            8..30,
            ByteSource::Log {
                member: 0,
                log: 1,
                addr: 0,
            },
        );
        state.pending.extend_to(30);
        state.pending.touch(Time { secs: 7, nanos: 0 });
        state.pending.attr.clear_setid = true;
        let shown = state.shown();
        assert_eq!(
            (shown.size, shown.bytes, shown.mtime.secs, shown.mode),
            (30, 22, 7, 0o755)
        );
    }
}
