//! Holds back the reply to a change, or to an open, until the kernels that cache the old state have been invalidated: this node's, and in
//! posix consistency those of the nodes that have the file open; and until no older bytes are on their way into this node's page cache.
//!
//! Invariant: the threads that answer requests do not wait here. An answer that has to wait does so on a thread of its own.
use super::context::MountContext;
use super::file_handle::handle;
use super::task_threads::spawn_task;
use crate::attempt::attempt;
use crate::protocol::{Answer, FopenFlags, Reply, WriteFlags, WriteRequest};
use forebay_server::Fid;
use forebay_server::delegate::{DirectWriteFollowUp, StalePages};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long the answer to a write waits for a page to be dropped that may be locked until it is answered.
const LOCKED_PAGE_WAIT: Duration = Duration::from_millis(100);

/// See the head of this file.
pub(super) struct HeldReplies {
    pub ctx: Arc<MountContext>,
}

impl HeldReplies {
    /// Gives `answer` to `reply` once the kernels of other nodes have heard of the change, if they have to, and pages of this node's
    /// kernel that are being filled are there.
    pub fn answer<T: Answer + Send + 'static>(
        &self,
        fid: Fid,
        answer: Result<T, Errno>,
        reply: Reply<T>,
    ) {
        let filling = answer.is_ok() && self.ctx.delegate.kernel_pages.is_filling(fid);
        let ctx = self.ctx.clone();
        self.answer_after(fid, answer, filling, move |answer| {
            let filled = || match filling {
                true => attempt("wait for pages", fid, || {
                    ctx.delegate.kernel_pages.wait_for_fills(fid)
                }),
                false => Ok(()),
            };
            reply.answer(answer.and_then(|answer| filled().map(|()| answer)));
        });
    }

    /// The same of an open: after pages of before are gone, if there may be any. `how`: what the kernel may do with the file's pages.
    pub fn answer_opened<T: Answer + Send + 'static>(
        &self,
        fid: Fid,
        mut answer: Result<T, Errno>,
        stale: Option<StalePages>,
        how: fn(&mut T) -> &mut FopenFlags,
        reply: Reply<T>,
    ) {
        let (Some(stale), Ok(opened)) = (stale, &mut answer) else {
            return self.answer(fid, answer, reply);
        };
        let ctx = self.ctx.clone();
        let dropped = ctx.caches.drop_all_pages_at_once(&ctx.delegate, fid);
        if let Some(dropped) = dropped {
            has_dropped(&ctx, stale, dropped, how(opened));
            return self.answer(fid, answer, reply);
        }
        self.answer_after(fid, answer, true, move |mut answer| {
            if let Ok(opened) = &mut answer {
                let dropped = ctx.caches.drop_all_pages(&ctx.delegate, fid);
                has_dropped(&ctx, stale, dropped, how(opened));
            }
            reply.answer(answer);
        });
    }

    /// The same; `waits`: the reply itself waits for something.
    fn answer_after<T: Send + 'static>(
        &self,
        fid: Fid,
        answer: Result<T, Errno>,
        waits: bool,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let unshown = answer.is_ok() && self.ctx.delegate.kernel_pages.has_unshown(fid);
        if !unshown && !waits {
            return reply(answer);
        }
        let ctx = self.ctx.clone();
        spawn_task("to show a change", move || {
            let shown = attempt("show a change", fid, || match unshown {
                true => ctx.delegate.kernel_pages.show_elsewhere(fid),
                false => Ok(()),
            });
            reply(shown.and(answer));
        });
    }

    /// Pages that could not be written must not be read as if they were stored, nor be counted in the size once nobody writes any more.
    /// The kernel waits for their answer first.
    fn drop_lost(&self, fid: Fid, offset: u64, len: usize) {
        let ctx = self.ctx.clone();
        spawn_task("to drop lost pages", move || {
            if let Err(error) = ctx.caches.drop_pages(&ctx.delegate, fid, offset, len) {
                tracing::debug!(inode = fid.0, %error, "the kernel shows pages that are not stored until the file is closed");
            }
            ctx.refresh_at_last_close(fid);
        });
    }

    /// Answers a write, which went to the offset in `answer`: after pages that it made old are gone, here and elsewhere, if there
    /// are any.
    pub fn answer_write(
        &self,
        fid: Fid,
        write: &WriteRequest<'_>,
        answer: Result<u64, Errno>,
        reply: Reply<u32>,
    ) {
        let (handle, len) = (handle(write.fh), write.data.len());
        let pages = &self.ctx.delegate.kernel_pages;
        let after = match &answer {
            Ok(placed) if write.direct => pages
                .after_direct_write(handle, write.offset, *placed)
                .unwrap_or_default(),
            _ => DirectWriteFollowUp::default(),
        };
        let through_pages = !write.direct && !write.how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let outdated = through_pages
            && answer.is_ok()
            && !self.ctx.policy.write_back.is_on()
            && pages.is_outdated_by(handle, write.offset, len);
        if write.how.contains(WriteFlags::FUSE_WRITE_CACHE) && self.ctx.policy.write_back.is_on() {
            self.ctx.dirty_bytes_arrived(len);
            if answer.is_err() {
                self.drop_lost(fid, write.offset, len);
            }
        }
        let ctx = self.ctx.clone();
        let refresh = move |placed| -> std::io::Result<()> {
            if after.drop_pages {
                ctx.caches.drop_pages(&ctx.delegate, fid, placed, len)?;
            }
            if outdated {
                drop_outdated(&ctx, fid, placed, len)?;
            }
            // If the owner does not answer, nobody here can read what others appended: the append itself has succeeded.
            if after.refetch_view && ctx.delegate.kernel_pages.refetch_view(handle).is_ok() {
                ctx.caches.tell_size(&ctx.delegate, fid)?;
            }
            Ok(())
        };
        let waits = outdated || after != DirectWriteFollowUp::default();
        let ctx = self.ctx.clone();
        self.answer_after(fid, answer, waits, move |answer| {
            let refreshed = answer.and_then(|placed| {
                refresh(placed).map_err(|error| {
                    tracing::error!(inode = fid.0, %error, "the kernel keeps pages from before a direct write");
                    Errno::IO
                })
            });
            reply.answer(refreshed.map(|()| len as u32));
            if refreshed.is_ok() && !ctx.policy.write_back.is_on() {
                ctx.delegate.kernel_pages.size_is_uncertain(fid);
            }
        });
    }
}

/// Pages of before an open are gone, or the kernel drops them itself.
fn has_dropped(
    ctx: &MountContext,
    stale: StalePages,
    dropped: io::Result<bool>,
    how: &mut FopenFlags,
) {
    match dropped {
        Ok(_) => ctx.delegate.kernel_pages.dropped_pages(stale),
        Err(_) => how.remove(FopenFlags::FOPEN_KEEP_CACHE),
    }
}

/// Drops pages that were read before a write through the page cache had taken place, which is not answered yet.
///
/// The kernel has unlocked the pages that the write covers, but its last one may be locked until it is answered, if it covers that in
/// part. Then it was not read since, so it is not waited for for long.
fn drop_outdated(ctx: &Arc<MountContext>, fid: Fid, offset: u64, len: usize) -> io::Result<()> {
    let page = rustix::param::page_size() as u64;
    let end = offset + len as u64;
    let last = (end - 1) / page * page;
    if last >= offset && end.is_multiple_of(page) {
        return ctx.caches.drop_written(fid, offset, len);
    }
    let before = last.saturating_sub(offset);
    ctx.caches.drop_written(fid, offset, before as usize)?;
    let (done, dropped) = sync_channel(1);
    let dropping = ctx.clone();
    spawn_task("to drop a page", move || {
        let _under_way = dropping.delegate.kernel_pages.begin_drop_of_write(fid);
        // The one that waits may have given up.
        let _ = done.send(dropping.caches.drop_written(fid, last, 1));
    });
    match dropped.recv_timeout(LOCKED_PAGE_WAIT) {
        Ok(dropped) => dropped,
        Err(_) => {
            ctx.delegate.kernel_pages.drop_goes_on(fid);
            Ok(())
        }
    }
}
