//! Publishing pending writes: flush the layer's bytes, stage its changes at the other slice owners, then commit at the file's owner.
//!
//! ```text
//! pending -> committing -> flush logs -> StageChanges (other members) -> Commit (owner) -> windows, at the new generation
//!    ^                                                                      |
//!    +---- refused: put back under newer writes ----------------------------+---- no answer: stays, sent again as it was
//! ```
//! When it is refused, the staged parts are dropped at the slice owners.
//!
//! Why a commit without an answer is sent again as it was, before anything else: it may have happened. Under the same
//! token the owner answers as the first time. Under a new one it would publish the same log bytes twice, and the first
//! extents' bytes would be freed while the second still names them.
use super::commit_plan::{CommitAttempt, CommitPlanner, FileCut};
use super::context::{DelegateContext, ViewRetry};
use super::intervals::ByteSource;
use super::open_file::{FileState, OpenFile};
use super::pending::MAX_FILE_SIZE;
use crate::{Caller, Error, ExtentLayout, Result};
use forebay_data::{LogId, LogRange};
use forebay_index::Change;
use forebay_proto::files::{self, CommitReply, CommitSummary, DropStaged, StageChanges};
use forebay_proto::placement::CommitPart;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// How often a commit is planned because the file changes meanwhile.
const PLAN_TRIES: u32 = 64;
/// The pieces of a larger layer do not become windows: they would take more memory than they save questions.
const MAX_WINDOW_PIECES: usize = 4096;

/// Why a commit did not happen.
enum CommitFailure {
    /// It did not happen and never will.
    Refused(Error),
    /// It may have happened.
    Unknown(Error),
}

/// Publishes the pending layers of this node's files.
///
/// Invariant: one commit of a file at a time, under its commit lock; a commit whose outcome is unknown is sent again before any other.
pub(super) struct LayerCommitter {
    pub ctx: Arc<DelegateContext>,
    /// Commits fold rows of writes to patterns.
    pub patterns: bool,
    /// After a power cut members must agree: what one of them does waits until what it relies on is on disk.
    pub ordered: bool,
}

impl LayerCommitter {
    /// Publishes everything pending.
    pub fn publish(&self, file: &OpenFile) -> Result<()> {
        let _commit = file.commit_lock.lock();
        self.publish_locked(file, None, self.ctx.always_sync)
    }

    /// The same; the commit is on disk when it returns.
    pub fn publish_synced(&self, file: &OpenFile) -> Result<()> {
        let _commit = file.commit_lock.lock();
        self.publish_locked(file, None, true)
    }

    /// Publishes everything pending, before any commit asks for it: if that fails, the writes stay pending, and the next commit says so.
    pub fn publish_early(&self, file: &OpenFile) {
        if let Err(e) = self.publish(file) {
            tracing::warn!(fid = file.fid.0, error = %e, "an early commit failed; the writes stay pending");
        }
    }

    /// Publishes everything pending, the new size and its time as one commit. `caller`: whose set-id bits rule applies, if any.
    pub fn cut_at(&self, file: &Arc<OpenFile>, cut: FileCut, caller: Option<Caller>) -> Result<()> {
        if cut.size > MAX_FILE_SIZE {
            return Err(Errno::FBIG.into());
        }
        let _commit = file.commit_lock.lock();
        {
            let mut state = file.state.lock();
            let setid = state.attr.mode & 0o6000 != 0 && caller.is_some_and(|c| c.uid != 0);
            state.pending.attr.clear_setid |= setid;
        }
        self.publish_locked(file, Some(cut), self.ctx.always_sync)
    }

    /// With the commit lock held: publishes everything pending, and with `cut` makes the file exactly that long, as one commit. Planned
    /// again while it turns out to be planned for what the file was before: shorter, or of another layout.
    pub fn publish_locked(&self, file: &OpenFile, cut: Option<FileCut>, sync: bool) -> Result<()> {
        for _ in 0..PLAN_TRIES {
            match self.publish_planned(file, cut, sync) {
                Err(Error::Replan) => self.ctx.refresh(file)?,
                result => return result,
            }
        }
        tracing::error!(
            fid = file.fid.0,
            "a commit found the file changed each time it was planned"
        );
        Err(Errno::IO.into())
    }

    /// `Replan`: plan again from a new view.
    fn publish_planned(&self, file: &OpenFile, cut: Option<FileCut>, sync: bool) -> Result<()> {
        let stuck = file.state.lock().committing.clone();
        if let Some(attempt) = stuck {
            self.send_attempt(file, &attempt, true, sync)?;
        }
        let idle = {
            // Looked at and taken in one: a log is retired after its last write became pending.
            let mut state = file.state.lock();
            let idle = cut.is_none() && state.pending.is_empty();
            idle.then(|| {
                let dropped = std::mem::take(&mut state.pending.dropped);
                (dropped, std::mem::take(&mut state.retired))
            })
        };
        if let Some((dropped, retired)) = idle {
            self.free_bytes(&dropped);
            self.seal(&retired);
            return Ok(());
        }
        let map = self.ctx.slices();
        let plan = CommitPlanner {
            map,
            owner: file.fid.owner(),
            token: self.ctx.tokens.next()?,
            patterns: self.patterns,
        };
        let (attempt, retired) = {
            // The layer is in one of the two places at every moment that the state is not locked.
            let mut state = file.state.lock();
            let (size, layout) = (state.size(), state.attr.layout);
            let layer = std::mem::take(&mut state.pending);
            let attempt = Arc::new(plan.attempt(layer, cut, size, layout));
            state.committing = Some(attempt.clone());
            state.cut_mtime = cut.map_or(state.cut_mtime, |cut| cut.mtime);
            (attempt, std::mem::take(&mut state.retired))
        };
        self.free_bytes(&attempt.layer.dropped);
        let result = self.send_attempt(file, &attempt, false, sync);
        match &result {
            Ok(()) => self.seal(&retired),
            Err(_) => file.state.lock().retired.extend(retired),
        }
        result
    }

    /// Sends an attempt (`again`: it was sent before) and sees to what it leaves. On `Refused` the layer is pending again,
    /// unless the file is gone; on `Unknown` it stays.
    pub fn send_attempt(
        &self,
        file: &OpenFile,
        attempt: &Arc<CommitAttempt>,
        again: bool,
        sync: bool,
    ) -> Result<()> {
        match self.send(file, attempt, again, sync) {
            Ok(done) => {
                self.wait_for_view(file, &done)?;
                // The first time it may have been published without a sync: an fsync asks every member itself.
                let synced = sync && !again;
                if attempt.records > 0 {
                    let bytes = attempt.patterns.len();
                    self.ctx.counters.folded(attempt.records, bytes);
                }
                move_to_windows(
                    &mut file.state.lock(),
                    attempt,
                    &done,
                    file.fid.owner(),
                    synced,
                );
                file.state.lock().told = None;
                if self.ctx.posix && done.previous != Some(done.seq) {
                    file.state.lock().unshown.extend(done.open_at.iter());
                }
                if let Some(size) = attempt.attr.size {
                    self.free_bytes(&attempt.layer.above(size));
                }
                Ok(())
            }
            Err(CommitFailure::Refused(e)) if e.errno() == Errno::STALE => {
                // Nobody can read these bytes any more, nor ever publish them.
                let mut state = file.state.lock();
                state.committing = None;
                state.content_changes();
                drop(state);
                self.free_bytes(&attempt.layer.above(0));
                Err(e)
            }
            Err(CommitFailure::Refused(e)) => {
                let mut state = file.state.lock();
                let newer = std::mem::take(&mut state.pending);
                (state.committing, state.cut_mtime) = (None, None);
                state.pending = attempt.layer.clone();
                state.pending.dropped.clear();
                state.pending.absorb(newer);
                Err(e)
            }
            Err(CommitFailure::Unknown(e)) => {
                tracing::warn!(fid = file.fid.0, error = %e, "a commit got no answer; it is sent again later");
                Err(e)
            }
        }
    }

    fn send(
        &self,
        file: &OpenFile,
        attempt: &CommitAttempt,
        again: bool,
        sync: bool,
    ) -> Result<CommitSummary, CommitFailure> {
        let (fid, token) = (file.fid, attempt.token);
        // An attempt that was sent before had everything staged, and may have happened: only the owner can tell.
        let failed = if again {
            CommitFailure::Unknown
        } else {
            CommitFailure::Refused
        };
        let parts = if again { &[] } else { &attempt.staged[..] };
        // What another member cuts off must not be gone from its disk while the decision is not on the owner's.
        let cut = |change: &Change| matches!(change, Change::Cut { .. });
        let cuts = |part: &CommitPart| part.changes.iter().any(cut);
        let sync = sync || self.ordered && attempt.staged.iter().any(cuts);
        self.flush_logs(file, attempt, parts, sync)
            .map_err(failed)?;
        for (i, part) in parts.iter().enumerate() {
            let changes = part.changes.clone();
            let request = StageChanges {
                fid,
                token,
                changes,
                sync,
            };
            if let Err(e) = self.ctx.call(part.member, request) {
                self.drop_staged(file, token, &parts[..=i]);
                return Err(CommitFailure::Refused(e));
            }
        }
        let staged = || attempt.staged.iter().map(|part| part.member).collect();
        let request = |sync| files::Commit {
            fid,
            token,
            own: attempt.own.clone(),
            patterns: attempt.patterns.clone(),
            staged: staged(),
            attr: attempt.attr.clone(),
            sync,
        };
        let mut reply = self.ctx.call(fid.owner(), request(sync));
        if matches!(reply, Ok(CommitReply::SyncFirst)) {
            self.flush_logs(file, attempt, parts, true)
                .map_err(failed)?;
            reply = self.ctx.call(fid.owner(), request(true));
        }
        match reply {
            Ok(CommitReply::Committed(committed)) => Ok(committed),
            Ok(CommitReply::SyncFirst) => Err(CommitFailure::Unknown(Error::Peer {
                member: fid.owner(),
                reason: "asked for a sync that had come with the commit".into(),
            })),
            Err(e) if is_refusal(&e) => {
                self.drop_staged(file, token, &attempt.staged);
                Err(CommitFailure::Refused(e))
            }
            Err(e) => Err(CommitFailure::Unknown(e)),
        }
    }

    /// The layer's bytes are in segments; with `sync` on disk, together with the records that find them before the decision is.
    ///
    /// Those records are in this member's store, whose log comes back from a power failure as a beginning of what was
    /// written, never with a gap. So where this member is the owner, the decision behind them brings them along; and where
    /// it gets a staged part, that part is synced before the owner is asked. Else they are synced here.
    fn flush_logs(
        &self,
        file: &OpenFile,
        attempt: &CommitAttempt,
        parts: &[CommitPart],
        sync: bool,
    ) -> Result<()> {
        let data = &self.ctx.node.data;
        let mut logs = attempt.layer.logs().into_iter().peekable();
        if !sync || logs.peek().is_none() {
            return logs.try_for_each(|log| data.flush(log, false));
        }
        logs.try_for_each(|log| data.sync_bytes(log))?;
        let me = self.ctx.member();
        match file.fid.owner() == me || parts.iter().any(|part| part.member == me) {
            true => Ok(()),
            false => data.sync_records(),
        }
    }

    /// Has members drop what they staged. One that cannot be reached asks the owner when it starts again.
    fn drop_staged(&self, file: &OpenFile, token: u64, staged: &[CommitPart]) {
        for part in staged {
            let request = DropStaged {
                fid: file.fid,
                writer: self.ctx.member(),
                token,
            };
            if let Err(e) = self.ctx.call(part.member, request) {
                tracing::debug!(member = part.member, error = %e, "staged changes could not be dropped now");
            }
        }
    }

    /// Until the owner's view includes the commit, the layer must stay above the windows.
    fn wait_for_view(&self, file: &OpenFile, done: &CommitSummary) -> Result<()> {
        let mut retry = ViewRetry::default();
        let seen = |s: &FileState| s.attr.generation.max(done.attr.generation) >= done.seq;
        while !seen(&file.state.lock()) {
            self.ctx.retry_view(file, done.seq - 1, &mut retry)?;
        }
        Ok(())
    }

    /// Seals the logs of closed handles; everything of them is published or freed.
    fn seal(&self, logs: &[LogId]) {
        for log in logs {
            if let Err(e) = self.ctx.node.data.seal(*log) {
                tracing::warn!(log, error = %e, "a log could not be sealed; it is looked through at the next start");
            }
        }
    }

    /// Frees log bytes that nothing names. If a full disk refuses, it is tried again later; after another failure they stay until
    /// the log is looked through at a start.
    pub fn free_bytes(&self, ranges: &[LogRange]) {
        if ranges.is_empty() {
            return;
        }
        match self.ctx.node.data.free(ranges) {
            Ok(()) => {}
            Err(e) if e.errno() == Errno::NOSPC => self.ctx.deferred_closes.keep(ranges),
            Err(e) => tracing::warn!(error = %e, "replaced bytes could not be given back"),
        }
    }
}

/// Errors after which the owner certainly has not committed.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Posix(e) => *e != Errno::IO,
        Error::Replan | Error::Refused(_) => true,
        Error::Storage(e) => e.is_transient(),
        _ => false,
    }
}

/// The commit has happened: its bytes move from the layer to the windows.
fn move_to_windows(
    state: &mut FileState,
    attempt: &CommitAttempt,
    done: &CommitSummary,
    owner: u16,
    sync: bool,
) {
    state.committing = None;
    state.content_changes();
    if !sync {
        let staged = attempt.staged.iter().map(|part| part.member);
        state.unsynced.logs.extend(attempt.layer.logs());
        state.unsynced.members.extend(staged.chain([owner]));
    }
    let before = state.attr.generation;
    let undisturbed = done.previous == Some(before) && done.attr.generation == done.seq;
    if before >= done.seq || !undisturbed {
        // Nothing of the content changed; or a reader has fetched this view, or a later one; or others committed too.
        state.observe(&done.attr);
        return;
    }
    state.replace_view(&done.attr);
    let limit = attempt.attr.size.unwrap_or(u64::MAX);
    if !attempt.patterns.is_empty() || state.attr.layout != ExtentLayout::Patterned {
        // Asked again when it is needed.
        state.map = None;
    }
    if state.attr.layout == ExtentLayout::Patterned
        && attempt.layer.intervals.len() > MAX_WINDOW_PIECES
    {
        state.empty();
    } else {
        let mut map = state.map.take();
        let mut now = |state: &mut FileState, range: Range<u64>, source| {
            if let Some(map) = &mut map {
                Arc::make_mut(map).mark_stale(range.clone());
            }
            state.windows.insert(range, source, |_, _| ());
        };
        for (range, source) in attempt.layer.intervals.get(0..limit) {
            now(state, range, source);
        }
        if let Some(size) = attempt.attr.size {
            now(state, size..u64::MAX, ByteSource::Hole);
        }
        state.map = map;
    }
    if state.kernel == Some(before) {
        state.kernel = Some(done.seq);
    }
}
