//! A reply that is sent only once its handler has returned.
//!
//! A thread that is to be slow, or to wait, after its reply must hold nothing then that others need: neither locks nor open counts.
use super::reply::log_refused;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

thread_local! {
    /// The reply that this thread keeps for a while.
    static KEPT: RefCell<KeptReply> = const { RefCell::new(KeptReply { unique: None, bytes: Vec::new() }) };
}

/// A reply that is sent later.
struct KeptReply {
    /// Of the request.
    unique: Option<u64>,
    /// Empty until there is a reply.
    bytes: Vec<u8>,
}

/// Runs `answer`, and keeps back what this thread replies to the request `unique` meanwhile; then `send` gets it, unless another
/// thread replies to that one.
pub(super) fn keep_reply(
    unique: u64,
    device: &OwnedFd,
    answer: impl FnOnce(),
    send: impl FnOnce(&dyn Fn()),
) {
    KEPT.with_borrow_mut(|kept| {
        kept.bytes.clear();
        kept.unique = Some(unique);
    });
    let on_panic = SendOnPanic(device);
    answer();
    std::mem::forget(on_panic);
    KEPT.with_borrow_mut(|kept| {
        kept.unique = None;
        if kept.bytes.is_empty() {
            return;
        }
        // What is logged takes locks, and `send` may run what it is given in a policy in which none may be held.
        let sent = Cell::new(None);
        send(&|| sent.set(Some(rustix::io::write(device, &kept.bytes))));
        if let Some(sent) = sent.take() {
            log_refused(sent);
        }
    });
}

/// Sends what is kept if the handler panics after its reply.
struct SendOnPanic<'a>(&'a OwnedFd);

impl Drop for SendOnPanic<'_> {
    fn drop(&mut self) {
        KEPT.with_borrow_mut(|kept| {
            kept.unique = None;
            if !kept.bytes.is_empty() {
                log_refused(rustix::io::write(self.0, &kept.bytes));
                kept.bytes.clear();
            }
        });
    }
}

/// Keeps the reply `parts` if it is the one to be kept; whether it is.
pub(super) fn is_kept(unique: u64, parts: &[&[u8]]) -> bool {
    KEPT.with_borrow_mut(|kept| {
        // If the handler panics, nobody sends what is kept.
        let is_it = kept.unique == Some(unique) && !std::thread::panicking();
        if is_it {
            parts.iter().for_each(|part| kept.bytes.extend(*part));
        }
        is_it
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use super::*;
    use crate::protocol::reply::PendingReply;
    use rustix::io::Errno;
    use std::io::Read;
    use std::sync::Arc;

    /// The numbers of the requests that were replied to, in order.
    fn replied(kept: u64, answer: impl FnOnce(&Arc<OwnedFd>), sends: bool) -> Vec<u64> {
        let (mut read, write) = std::io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(write));
        keep_reply(
            kept,
            &device,
            || answer(&device),
            |send| {
                if sends {
                    send();
                }
            },
        );
        PendingReply::new(99, &device).give(&[]);
        drop(device);
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            let len = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
            numbers.push(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()));
            bytes.drain(..len);
        }
        numbers
    }

    #[test]
    fn one_reply_is_kept_until_all_else_is_done_and_others_are_not() {
        let both = |device: &Arc<OwnedFd>| {
            PendingReply::new(7, device).give(b"kept");
            PendingReply::new(8, device).error(Errno::IO);
        };
        assert_eq!(replied(7, both, true), [8, 7, 99]);
        // What is not sent does not come with a later one.
        assert_eq!(replied(7, both, false), [8, 99]);
        assert_eq!(replied(7, |_| (), true), [99]);
    }

    #[test]
    fn a_handler_that_panics_after_its_reply_has_replied() {
        let panics = |device: &Arc<OwnedFd>| {
            PendingReply::new(7, device).give(b"kept");
            panic!("after the reply");
        };
        let (mut read, write) = std::io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(write));
        let handle = || keep_reply(7, &device, || panics(&device), |send| send());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(handle));
        assert!(panicked.is_err());
        drop(device);
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes[8], bytes.len()), (7, 16 + 4));
    }

    #[test]
    fn a_reply_by_another_thread_is_not_kept() {
        let other = |device: &Arc<OwnedFd>| {
            let device = device.clone();
            let reply = move || PendingReply::new(7, &device).give(b"sent");
            std::thread::spawn(reply).join().unwrap();
        };
        assert_eq!(replied(7, other, false), [7, 99]);
    }
}
