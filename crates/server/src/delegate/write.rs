//! Writing: append to the handle's own log, then name the bytes in the file's pending layer.
//!
//! The bytes are in the log before anything names them, and the log is appended to outside the file's lock. Two writes
//! that overlap in time may land in either order; each byte then comes whole from one of them.
use super::close_finisher::CloseFinisher;
use super::commit::LayerCommitter;
use super::context::DelegateContext;
use super::handles::{Handle, OpenHandle};
use super::intervals::ByteSource;
use super::memory::LayerMemory;
use super::open_file::OpenFile;
use super::opens::OpenClient;
use super::pending::write_end;
use crate::{Caller, Result};
use forebay_data::span::PIECE_BYTES;
use forebay_data::{AppendOptions, LogId};
use forebay_proto::files::ReserveAppend;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

/// More separate pending pieces than this in one file are published early.
const MAX_PENDING_PIECES: usize = 64 << 10;
/// Replaced pending bytes are freed in lots of this many pieces.
const MAX_DROPPED: usize = 1024;
/// A write waits for this share of the deadline of requests for space that this node knows to be on its way back: 2 s by default.
const SPACE_WAIT_SHARE: u32 = 5;
/// And for this share if only other members may have some of it: 40 ms by default.
const UNKNOWN_SPACE_WAIT_SHARE: u32 = 250;

/// Who has a write made: that decides where it goes, and what it changes beside the bytes.
#[derive(Debug, Clone, Copy)]
pub enum WriteOrigin {
    /// A program: append handles ignore the offset. The file's time is that of now, and the caller may cost it its set-id bits.
    Program(Caller),
    /// The same from a kernel that has chosen the offset, of append handles too.
    Placed(Caller),
    /// The same, and hands over the time of the write by itself.
    PlacedAndTimed(Caller),
    /// Dirty pages of such a kernel: it hands over the time of the program's write by itself, and has seen to set-id bits.
    Writeback,
}

impl WriteOrigin {
    fn caller(self) -> Option<Caller> {
        match self {
            WriteOrigin::Program(caller)
            | WriteOrigin::Placed(caller)
            | WriteOrigin::PlacedAndTimed(caller) => Some(caller),
            WriteOrigin::Writeback => None,
        }
    }

    /// Whether the file gets the time of now.
    fn is_now(self) -> bool {
        matches!(self, WriteOrigin::Program(_) | WriteOrigin::Placed(_))
    }
}

/// Bytes on their way into a log.
struct PendingAppend<'a> {
    log: LogId,
    data: &'a [u8],
    /// They are pages of the kernel's cache.
    aligned: bool,
    /// Where in the file they go, if that is known.
    offset: Option<u64>,
}

/// Writes to this node's logs and files' pending layers.
///
/// Invariant: bytes are in a log before a layer names them; what no layer names any more is freed.
pub struct LayerWriter {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) committer: Arc<LayerCommitter>,
    pub(super) memory: Arc<LayerMemory>,
    pub(super) opens: Arc<OpenClient>,
    pub(super) finisher: Arc<CloseFinisher>,
    /// Held by the one write of dirty pages that waits for room.
    pub(super) waits_for_pages: Mutex<()>,
}

impl LayerWriter {
    /// All or nothing. Where the bytes went.
    pub(super) fn write(
        &self,
        open: &OpenHandle,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Result<u64> {
        if data.is_empty() {
            return Ok(offset);
        }
        let appends = open.flags.append && matches!(origin, WriteOrigin::Program(_));
        if !appends {
            write_end(offset, data.len())?;
        }
        let file = &open.file;
        let log = self.log_of(open)?;
        let appending = appends.then(|| file.append.lock());
        // The kernel sends the last page of a growing file short, so the log's end may be unaligned.
        let aligned =
            matches!(origin, WriteOrigin::Writeback) && offset.is_multiple_of(PIECE_BYTES);
        let append = PendingAppend {
            log,
            data,
            aligned,
            offset: (!appends).then_some(offset),
        };
        let addr = self.append_to(file, &append, origin)?;
        let placed = match appending.is_some() {
            true => self.ask_append(open, data.len()),
            false => Ok(offset),
        };
        let range = match placed.and_then(|at| Ok(at..write_end(at, data.len())?)) {
            Ok(range) => range,
            Err(e) => {
                self.committer
                    .free_bytes(&[(log, addr..addr + data.len() as u64)]);
                return Err(e);
            }
        };
        let now = origin.is_now().then(|| self.ctx.now());
        let (crowded, grown, dropped) = {
            let mut state = file.state.lock();
            let caller = origin.caller();
            let setid = caller.is_some_and(|c| c.uid != 0) && state.attr.mode & 0o6000 != 0;
            state.told = None;
            if appends {
                // Written past the page cache: pages that the kernel has for other handles may be old.
                state.kernel = None;
            }
            state.content_changes();
            let pending = &mut state.pending;
            let before = pending.intervals.len();
            let source = ByteSource::log(self.ctx.member(), log, addr);
            pending.put(range.clone(), source);
            pending.extend_to(range.end);
            if let Some(now) = now {
                pending.touch(now);
            }
            pending.attr.clear_setid |= setid;
            let dropped = match pending.dropped.len() >= MAX_DROPPED {
                true => std::mem::take(&mut pending.dropped),
                false => Vec::new(),
            };
            let now = pending.intervals.len();
            (
                now > MAX_PENDING_PIECES,
                now.saturating_sub(before),
                dropped,
            )
        };
        drop(appending);
        self.committer.free_bytes(&dropped);
        self.ctx.counters.count_write(data.len());
        if self.ctx.posix {
            self.committer.publish(file)?;
            return Ok(range.start);
        }
        if grown > 0 {
            self.memory.layer_grew(grown, true);
        }
        if crowded {
            self.committer.publish_early(file);
        }
        Ok(range.start)
    }

    /// `settles`: where there is no room, wait for what settling makes.
    fn append_once(&self, append: &PendingAppend<'_>, settles: bool) -> Result<u64> {
        let options = AppendOptions {
            settles,
            aligned: append.aligned,
            offset: append.offset,
        };
        let data = &self.ctx.node.data;
        data.append_with(append.log, append.data, options)
    }

    /// Appends. If there is no space, what is on its way back is waited for, because the program deleted or replaced it
    /// already: on a disk that space would be there. For that, pending layers are published early, this file's first: the
    /// committed bytes that they replace are freed then. What settling makes is waited for, too.
    fn append_to(
        &self,
        file: &OpenFile,
        append: &PendingAppend<'_>,
        origin: WriteOrigin,
    ) -> Result<u64> {
        match self.append_once(append, false) {
            Err(e) if e.errno() == Errno::NOSPC => {}
            done => return done,
        }
        // A kernel sends many dirty pages at once: if all waited, nobody would be left to answer the removal that they wait for.
        let waits_for_pages = match origin {
            WriteOrigin::Writeback => match self.waits_for_pages.try_lock() {
                Some(turn) => Some(turn),
                None => {
                    self.reclaim_now();
                    // Settling waits for nobody.
                    return self.append_once(append, true);
                }
            },
            WriteOrigin::Program(_) | WriteOrigin::Placed(_) | WriteOrigin::PlacedAndTimed(_) => {
                None
            }
        };
        let appended = self.append_when_freed(file, append);
        drop(waits_for_pages);
        appended
    }

    /// The same after a first try.
    fn append_when_freed(&self, file: &OpenFile, pending: &PendingAppend<'_>) -> Result<u64> {
        let append = || match self.append_once(pending, false) {
            Err(e) if e.errno() == Errno::NOSPC => Ok(Err(e)),
            Err(e) => Err(e),
            Ok(addr) => Ok(Ok(addr)),
        };
        let efforts: [&dyn Fn(); 4] = [
            &|| {},
            &|| {
                self.finisher.finish_deferred();
            },
            &|| {
                let _commit = file.commit_lock.lock();
                self.publish_for_room(file);
            },
            &|| self.publish_all_for_room(),
        ];
        for effort in efforts {
            if let Ok(addr) = append()? {
                return Ok(addr);
            }
            effort();
            self.reclaim_now();
        }
        match self.append_once(pending, true) {
            Err(e) if e.errno() == Errno::NOSPC => {}
            done => return done,
        }
        let (freed, deadline) = (
            self.ctx.node.data.space_freed(),
            self.ctx.node.peers.deadline(),
        );
        let until = Instant::now() + deadline / SPACE_WAIT_SHARE;
        let mut unknown_until = None;
        loop {
            let seen = freed.epoch();
            let full = match append()? {
                Ok(addr) => return Ok(addr),
                Err(full) => full,
            };
            // Of other members it is not known whether they will free bytes of ours: that is waited for less long.
            let until = match self.reclaim_now() {
                true => until,
                false if self.ctx.members() > 1 => *unknown_until
                    .get_or_insert_with(|| Instant::now() + deadline / UNKNOWN_SPACE_WAIT_SHARE),
                // All of it may have come back just now.
                false => return self.append_once(pending, false),
            };
            if Instant::now() >= until || !freed.wait(seen, until) {
                return Err(full);
            }
        }
    }

    /// With the commit lock of the file held: publishes what is pending in it. If that fails, the write that needs the room will say so.
    fn publish_for_room(&self, file: &OpenFile) {
        let sync = self.ctx.always_sync;
        if let Err(e) = self.committer.publish_locked(file, None, sync) {
            tracing::debug!(fid = file.fid.0, error = %e, "a commit for want of room failed; the writes stay pending");
        }
    }

    /// Publishes what is pending in any file. One that is being published just now is left to that.
    fn publish_all_for_room(&self) {
        for file in self.ctx.table.all_open() {
            if let Some(_commit) = file.commit_lock.try_lock() {
                self.publish_for_room(&file);
            }
        }
    }

    /// Frees now what this node would free later. `false` if there was nothing.
    fn reclaim_now(&self) -> bool {
        let mut found = false;
        for file in self.ctx.table.all_known() {
            let dropped = std::mem::take(&mut file.state.lock().pending.dropped);
            found |= !dropped.is_empty();
            self.committer.free_bytes(&dropped);
        }
        found |= !matches!(self.ctx.node.files.pending(), Ok(0));
        // What fails here is reported by the background threads, which try again.
        let _ = self.ctx.node.files.drain();
        found
    }

    /// The handle's log, made at its first write, and anew once the file's codec hint was changed.
    fn log_of(&self, open: &OpenHandle) -> Result<LogId> {
        let hint = open.file.state.lock().attr.codec.unwrap_or_default();
        let fid = open.file.fid;
        let make = || {
            let series = self.ctx.file_series.of(fid);
            self.ctx.node.data.create_log_in(fid, hint, series)
        };
        open.logs.lock().for_hint(hint, make)
    }

    /// Where the next append goes, as the owner says.
    fn ask_append(&self, open: &OpenHandle, len: usize) -> Result<u64> {
        let fid = open.file.fid;
        let pending_end = open.file.state.lock().unpublished_end();
        let request = ReserveAppend {
            fid,
            len: len as u64,
            pending_end,
        };
        self.ctx.call(fid.owner(), request)
    }

    /// For benchmarks of the index alone: as a write of `len` bytes, which would be at `addr` of the handle's log, but are nowhere. The
    /// file cannot be read.
    ///
    /// # Errors
    /// As a write.
    #[doc(hidden)]
    pub fn write_unbacked(&self, handle: Handle, offset: u64, len: u64, addr: u64) -> Result<()> {
        let open = self.ctx.table.get_writable(handle)?;
        let end = write_end(offset, len as usize)?;
        let log = self.log_of(&open)?;
        let crowded = {
            let mut state = open.file.state.lock();
            let pending = &mut state.pending;
            let source = ByteSource::log(self.ctx.member(), log, addr);
            pending.put(offset..end, source);
            pending.extend_to(end);
            pending.touch(self.ctx.now());
            pending.dropped.clear();
            pending.intervals.len() > MAX_PENDING_PIECES
        };
        match crowded {
            true => self.committer.publish(&open.file),
            false => Ok(()),
        }
    }
}
