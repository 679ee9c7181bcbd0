//! Admission of writes while the store is tight (`dirty_page_budget`).
//!
//! While it is tight, the kernel is given no attributes to keep, so it asks for a file's attributes before each write. The reply
//! waits until everything written to the file before has arrived at this node. So at most one write of a program is not accounted
//! for, and a write that the store cannot take is known before the next one.
use super::context::MountContext;
use super::file_handle::{READ, handle, has};
use super::task_threads::spawn_task;
use crate::attempt::attempt;
use crate::protocol::{FileHandle, Reply};
use forebay_server::{Attr, Fid};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl MountContext {
    /// Bytes have arrived that the kernel had kept.
    pub(super) fn dirty_bytes_arrived(self: &Arc<MountContext>, len: usize) {
        if self.policy.write_back.budget.is_due(len as u64) {
            self.check_free_space();
        }
    }

    fn check_free_space(self: &Arc<MountContext>) {
        let Ok(free) = self.delegate.write_back.room() else {
            return;
        };
        if !self.policy.write_back.budget.becomes_tight(free) {
            return;
        }
        tracing::info!(
            free,
            "the store has little room: the kernel asks before it takes a write"
        );
        let ctx = self.clone();
        spawn_task(
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
        self.check_free_space();
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
        if !self.policy.write_back.budget.is_tight() {
            return answer();
        }
        let ctx = self.clone();
        spawn_task("to count what was written", move || {
            // A program that seeks to the end asks with the kernel's lock of the file held.
            if let Err(error) = ctx.write_back_and_drop_pages(fid) {
                tracing::warn!(inode = fid.0, %error, "bytes that the kernel keeps are not counted");
            }
            answer();
        });
    }
}
