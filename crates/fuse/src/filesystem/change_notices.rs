//! Answers to changes, held back until no kernel keeps what the change made old: this node's, and in posix consistency those of
//! the nodes that have the file open.
//!
//! Invariant: the threads that answer requests do not wait here. An answer that has to wait does so on a thread of its own.
use super::file_handle::handle;
use super::waiter::spawn_waiter;
use crate::attempt::attempt;
use crate::conversions::fid;
use crate::kernel_caches::KernelCaches;
use crate::protocol::{INodeNo, ReplyWrite, WriteRequest};
use forebay_server::delegate::{AfterWrite, Delegate};
use rustix::io::Errno;
use std::sync::Arc;

/// See the head of this file.
pub(super) struct ChangeNotices {
    pub delegate: Arc<Delegate>,
    pub caches: Arc<KernelCaches>,
}

impl ChangeNotices {
    /// Gives `answer` to `reply` once the kernels of other nodes have heard of the change, if they have to.
    pub fn answer<T: Send + 'static>(
        &self,
        ino: INodeNo,
        answer: Result<T, Errno>,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        self.answer_after(ino, answer, false, reply);
    }

    /// The same; `waits`: the reply itself waits for something.
    fn answer_after<T: Send + 'static>(
        &self,
        ino: INodeNo,
        answer: Result<T, Errno>,
        waits: bool,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let unshown = answer.is_ok() && self.delegate.kernel_pages.has_unshown(fid(ino));
        if !unshown && !waits {
            return reply(answer);
        }
        let delegate = self.delegate.clone();
        spawn_waiter("change", "to show a change", move || {
            let shown = attempt("show a change", ino, || match unshown {
                true => delegate.kernel_pages.show_elsewhere(fid(ino)),
                false => Ok(()),
            });
            reply(shown.and(answer));
        });
    }

    /// Answers a write, which went to the offset in `answer`: after pages that it made old are gone, here and elsewhere, if there
    /// are any.
    pub fn answer_write(
        &self,
        ino: INodeNo,
        write: &WriteRequest<'_>,
        answer: Result<u64, Errno>,
        reply: ReplyWrite,
    ) {
        let (handle, len) = (handle(write.fh), write.data.len());
        let after = match &answer {
            Ok(placed) if write.direct => self
                .delegate
                .kernel_pages
                .after_direct_write(handle, write.offset, *placed)
                .unwrap_or_default(),
            _ => AfterWrite::default(),
        };
        let (delegate, caches) = (self.delegate.clone(), self.caches.clone());
        let renew = move |placed| -> std::io::Result<()> {
            if after.drop_pages {
                caches.drop_pages(ino, placed, len)?;
            }
            // If the owner does not answer, nobody here can read what others appended: the append itself has succeeded.
            if after.look_again && delegate.kernel_pages.look_again(handle).is_ok() {
                caches.tell_size(&delegate, ino)?;
            }
            Ok(())
        };
        let waits = after != AfterWrite::default();
        let delegate = self.delegate.clone();
        self.answer_after(ino, answer, waits, move |answer| {
            let renewed = answer.and_then(|placed| {
                renew(placed).map_err(|error| {
                    tracing::error!(inode = ino.0, %error, "the kernel keeps pages from before a direct write");
                    Errno::IO
                })
            });
            reply.answer(renewed, |reply, ()| {
                reply.written(len as u32);
                delegate.kernel_pages.size_is_uncertain(fid(ino));
            });
        });
    }
}
