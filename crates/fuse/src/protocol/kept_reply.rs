//! A reply that is sent only once its handler has returned.
//!
//! A thread that is to be slow, or to wait, after its reply must hold nothing then that others need: neither locks nor open counts.
use super::reply::log_refused;
use std::cell::RefCell;
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
    answer();
    KEPT.with_borrow_mut(|kept| {
        kept.unique = None;
        if !kept.bytes.is_empty() {
            send(&|| log_refused(rustix::io::write(device, &kept.bytes)));
        }
    });
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
    fn a_reply_by_another_thread_is_not_kept() {
        let other = |device: &Arc<OwnedFd>| {
            let device = device.clone();
            let reply = move || PendingReply::new(7, &device).give(b"sent");
            std::thread::spawn(reply).join().unwrap();
        };
        assert_eq!(replied(7, other, false), [7, 99]);
    }
}
