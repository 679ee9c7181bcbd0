//! Whether the store has room for the dirty pages that the kernel may keep of a mount.
//!
//! The kernel keeps up to a fixed amount of them, and takes writes up to there without asking. A store with much
//! more room than that can store whatever was taken. A store with less is *tight*: each write is then admitted by the mount
//! (`write_admission`).
//!
//! Invariant: when the store becomes tight, it has room for all that the kernel may keep.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The store becomes tight when its room is less than this many times the most that the kernel keeps. It stays tight until there is room
/// for one time more.
const TIGHT: u64 = 2;
/// A store with room for fewer at its start has the kernel keep nothing.
const LEAST_AT_START: u64 = 4;
/// The store's room is looked at whenever this share of the most that the kernel keeps has arrived.
const SPACE_CHECK_FRACTION: u64 = 16;

/// See the head of this file. Sizes in bytes.
#[derive(Default)]
pub(crate) struct DirtyPageBudget {
    /// Most that the kernel keeps.
    most_kept: OnceLock<u64>,
    /// Since the store's room was looked at.
    arrived: AtomicU64,
    tight: AtomicBool,
}

impl DirtyPageBudget {
    /// Most that the kernel keeps, told once before the first request.
    pub fn set_most_kept(&self, bytes: u64) {
        let _ = self.most_kept.set(bytes);
    }

    fn most_kept(&self) -> u64 {
        self.most_kept.get().copied().unwrap_or(0)
    }

    /// Whether the kernel may keep dirty pages of a store with `free` bytes of room.
    pub(super) fn is_enough(&self, free: u64) -> bool {
        free >= self.most_kept().saturating_mul(LEAST_AT_START)
    }

    pub(super) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::SeqCst)
    }

    /// Whether it is time to look at the store's room, with `len` bytes more.
    pub(super) fn is_due(&self, len: u64) -> bool {
        let arrived = self.arrived.fetch_add(len, Ordering::Relaxed) + len;
        self.is_tight() || arrived >= self.most_kept() / SPACE_CHECK_FRACTION
    }

    /// Notes that the store has `free` bytes of room. Whether it has become tight.
    pub(super) fn becomes_tight(&self, free: u64) -> bool {
        self.arrived.store(0, Ordering::Relaxed);
        let times = match self.is_tight() {
            true => TIGHT + 1,
            false => TIGHT,
        };
        let tight = free < self.most_kept().saturating_mul(times);
        !self.tight.swap(tight, Ordering::SeqCst) && tight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_tight_before_there_is_no_room_for_what_the_kernel_keeps() {
        let room = DirtyPageBudget::default();
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
        let room = DirtyPageBudget::default();
        room.set_most_kept(1600);
        assert!(!room.is_due(99) && room.is_due(1));
        room.becomes_tight(1 << 30);
        assert!(!room.is_due(50));
        room.becomes_tight(0);
        assert!(room.is_due(1));
    }
}
