//! Room in the store for the pages that the kernel keeps.
//!
//! The kernel keeps so many written bytes of a mount and no more, and takes writes up to there without asking. While the store has much more
//! room than that, whatever was taken can be stored. With less the store is *tight*: the mount has the kernel keep no attributes of
//! files then, so that it asks for those of a file before it takes a write to it, and answers once everything written to the
//! file before has arrived. So a program's one write at most is not counted, and what the store cannot take is known before the next.
//!
//! Invariant: when the store becomes tight, it has room for all that the kernel may keep.
use super::context::MountContext;
use super::file_handle::{READ, handle, has};
use super::waiter::spawn_waiter;
use crate::attempt::attempt;
use crate::protocol::{FileHandle, Reply};
use forebay_server::{Attr, Fid};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The store is tight with room for fewer than so many times the most that the kernel keeps, and no more from one time more on.
const TIGHT: u64 = 2;
/// A store with room for fewer at its start has the kernel keep nothing.
const LEAST_AT_START: u64 = 4;
/// The store's room is looked at whenever this share of the most that the kernel keeps has arrived.
const LOOK_SHARE: u64 = 16;

/// See the head of this file. Sizes in bytes.
#[derive(Default)]
pub(crate) struct DirtyRoom {
    /// Most that the kernel keeps.
    most_kept: OnceLock<u64>,
    /// Since the store's room was looked at.
    arrived: AtomicU64,
    tight: AtomicBool,
}

impl DirtyRoom {
    /// Most that the kernel keeps, told once before the first request.
    pub fn set_most_kept(&self, bytes: u64) {
        let _ = self.most_kept.set(bytes);
    }

    fn most_kept(&self) -> u64 {
        self.most_kept.get().copied().unwrap_or(0)
    }

    /// Whether a store with so much room may have the kernel keep written pages.
    pub(super) fn is_enough(&self, free: u64) -> bool {
        free >= self.most_kept().saturating_mul(LEAST_AT_START)
    }

    pub(super) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::SeqCst)
    }

    /// Whether it is time to look at the store's room, with `len` bytes more.
    fn is_due(&self, len: u64) -> bool {
        let arrived = self.arrived.fetch_add(len, Ordering::Relaxed) + len;
        self.is_tight() || arrived >= self.most_kept() / LOOK_SHARE
    }

    /// The store has so much room. Whether that has made it tight.
    fn becomes_tight(&self, free: u64) -> bool {
        self.arrived.store(0, Ordering::Relaxed);
        let times = match self.is_tight() {
            true => TIGHT + 1,
            false => TIGHT,
        };
        let tight = free < self.most_kept().saturating_mul(times);
        !self.tight.swap(tight, Ordering::SeqCst) && tight
    }
}

impl MountContext {
    /// Bytes have arrived that the kernel had kept.
    pub(super) fn kept_bytes_arrived(self: &Arc<MountContext>, len: usize) {
        if self.policy.write_back.room.is_due(len as u64) {
            self.look_at_room();
        }
    }

    fn look_at_room(self: &Arc<MountContext>) {
        let Ok(free) = self.delegate.write_back.room() else {
            return;
        };
        if !self.policy.write_back.room.becomes_tight(free) {
            return;
        }
        tracing::info!(
            free,
            "the store has little room: the kernel asks before it takes a write"
        );
        let ctx = self.clone();
        spawn_waiter(
            "to have the kernel ask before it takes a write",
            move || {
                for inode in ctx.handles.written() {
                    if let Err(error) = ctx.caches.forget_attributes(Fid(inode)) {
                        tracing::debug!(inode, %error, "the kernel asks before a write a moment later");
                    }
                }
            },
        );
    }

    /// Answers a request for the attributes of a file by which the kernel asks, through the file that a program writes to, before it takes the
    /// write. (Through a file that is open for reading too, a read may ask.)
    ///
    /// `ENOSPC` if the file is open for writing alone, pages of it were lost for want of room, and there still is none: else a program
    /// that only writes would never hear of it.
    pub(super) fn answer_before_write(
        self: &Arc<MountContext>,
        fid: Fid,
        fh: FileHandle,
        reply: Reply<(Attr, Duration)>,
    ) {
        self.look_at_room();
        let ctx = self.clone();
        let answer = move || {
            let refused = ctx.refused.load(Ordering::SeqCst);
            let answer = attempt("getattr", fid, || {
                if refused {
                    return Err(Errno::NOTCONN.into());
                }
                if !has(fh, READ) {
                    ctx.delegate.write_back.may_write_more(handle(fh))?;
                }
                ctx.delegate.names.getattr(fid)
            });
            let answer = answer.map(|attr| ctx.with_blocks(attr));
            reply.answer(answer.map(|attr| ctx.policy.shown(attr)));
        };
        if !self.policy.write_back.room.is_tight() {
            return answer();
        }
        let ctx = self.clone();
        spawn_waiter("to count what was written", move || {
            // A program that seeks to the end asks with the kernel's lock of the file held.
            if let Err(error) = ctx.launder(fid) {
                tracing::warn!(inode = fid.0, %error, "bytes that the kernel keeps are not counted");
            }
            answer();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_tight_before_there_is_no_room_for_what_the_kernel_keeps() {
        let room = DirtyRoom::default();
        room.set_most_kept(100);
        assert!(room.is_enough(400) && !room.is_enough(399));
        assert!(!room.becomes_tight(200) && !room.is_tight());
        assert!(room.becomes_tight(199) && room.is_tight());
        // Told once, and not over before there is more.
        assert!(!room.becomes_tight(10) && !room.becomes_tight(299) && room.is_tight());
        assert!(!room.becomes_tight(300) && !room.is_tight());
        assert!(room.becomes_tight(0));
    }

    #[test]
    fn room_is_looked_at_as_bytes_arrive_and_always_while_it_is_tight() {
        let room = DirtyRoom::default();
        room.set_most_kept(1600);
        assert!(!room.is_due(99) && room.is_due(1));
        room.becomes_tight(1 << 30);
        assert!(!room.is_due(50));
        room.becomes_tight(0);
        assert!(room.is_due(1));
    }
}
