//! Disk space that data leaves to the records (names, extents, the write-ahead log), so that whatever a write accepted can
//! also be published.
//!
//! Members that share a disk share one reserve. A write asks here before its bytes are accepted; the disk's free space is
//! queried only when the amount that the last query allowed is used up. Bytes that are accepted but still in memory count as if
//! they were on the disk.
use forebay_proto::Result;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes granted from one query of the disk, at most: other programs may use the disk too.
const MAX_GRANT: u64 = 16 << 20;
/// The records get at most this share of a small disk.
const RESERVE_SHARE: u64 = 8;

/// See the head of this file. Sizes in bytes.
#[derive(Debug, Default)]
pub struct DiskReserve {
    /// For the records.
    reserved: u64,
    /// Bytes that may be accepted without another query.
    granted: AtomicU64,
    /// Accepted, but in no file yet.
    unwritten: AtomicU64,
}

impl DiskReserve {
    /// Data leaves `reserved` bytes of the disk, or an eighth of a small disk, to the records.
    pub fn new(reserved: u64) -> DiskReserve {
        DiskReserve {
            reserved,
            ..DiskReserve::default()
        }
    }

    /// Bytes that data may use of a disk with `(free, total)` bytes.
    pub fn free(&self, (free, total): (u64, u64)) -> u64 {
        let taken = self.reserved.min(total / RESERVE_SHARE) + self.unwritten.load(Relaxed);
        free.saturating_sub(taken)
    }

    /// Accepts `len` bytes. `false`: the disk is full. If the disk does not say what is free, the write itself fails instead.
    pub fn try_take(&self, len: u64, disk: impl FnOnce() -> Result<(u64, u64)>) -> bool {
        let used = |granted: u64| granted.checked_sub(len);
        let granted = self.granted.fetch_update(Relaxed, Relaxed, used).is_ok();
        if !granted && let Ok(space) = disk() {
            let Some(left) = self.free(space).checked_sub(len) else {
                return false;
            };
            self.granted
                .store((left / RESERVE_SHARE).min(MAX_GRANT), Relaxed);
        }
        self.unwritten.fetch_add(len, Relaxed);
        true
    }

    /// Bytes that were accepted are in a file now, or never will be.
    pub fn written(&self, len: u64) {
        let before = self.unwritten.fetch_sub(len, Relaxed);
        debug_assert!(before >= len, "more was written than accepted");
    }

    /// The disk turned out to be full: the next call queries it.
    pub fn revoke(&self) {
        self.granted.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_records_share_is_left_and_what_is_in_memory_counts() {
        let reserve = DiskReserve::new(100);
        let disk = || Ok((350, 10_000));
        assert!(reserve.try_take(200, disk));
        assert_eq!(reserve.free((350, 10_000)), 50);
        assert!(!reserve.try_take(51, disk));
        assert!(reserve.try_take(50, disk));
        reserve.written(250);
        assert_eq!(reserve.free((100, 10_000)), 0);
        assert_eq!(reserve.free((100, 160)), 80, "an eighth of a small disk");
    }

    #[test]
    fn the_disk_is_asked_seldom_while_it_has_space_and_each_time_at_its_end() {
        let (reserve, asked, free) = (DiskReserve::new(0), Cell::new(0), Cell::new(1 << 30));
        let take = |len: u64| {
            let disk = || {
                asked.set(asked.get() + 1);
                Ok((free.get(), 1 << 30))
            };
            let taken = reserve.try_take(len, disk);
            if taken {
                free.set(free.get() - len);
                reserve.written(len);
            }
            taken
        };
        let mut taken = 0;
        while take(4096) {
            taken += 4096;
        }
        assert_eq!(taken, 1 << 30);
        assert!(asked.get() < 400, "asked {} times", asked.get());
        free.set(8192);
        assert!(take(4096) && take(4096) && !take(1));
        reserve.revoke();
        assert!(!take(1));
    }

    #[test]
    fn a_disk_that_does_not_answer_refuses_nothing() {
        let silent = || Err(rustix::io::Errno::IO.into());
        assert!(DiskReserve::new(1 << 20).try_take(1 << 30, silent));
    }
}
