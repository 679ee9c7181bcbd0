//! Readahead as kernels do it: a window that doubles while reads follow each other, and is gone when they do not.
//!
//! The next window is fetched when the reader enters the newest one, so one window is always on its way.
use forebay_pattern::ReadRequest;

/// The largest window, bytes: what Linux starts with.
const MAX_WINDOW: u64 = 128 << 10;

/// One reader's windows.
#[derive(Debug, Default)]
pub struct ReadaheadWindow {
    /// Where the next read begins if it follows.
    next: u64,
    /// The newest window; of length 0 if there is none.
    start: u64,
    len: u64,
}

impl ReadaheadWindow {
    /// The reader reads this. What to fetch now.
    pub fn observe(&mut self, request: ReadRequest) -> Option<ReadRequest> {
        let end = request.offset + request.len;
        let follows = request.offset == self.next;
        self.next = end;
        if !follows {
            self.len = 0;
            return None;
        }
        if self.len == 0 {
            self.start = end;
            self.len = first(request.len);
        } else if end > self.start {
            self.start = (self.start + self.len).max(end);
            self.len = (self.len * 2).clamp(request.len, MAX_WINDOW.max(request.len));
        } else {
            return None;
        }
        Some(ReadRequest {
            offset: self.start,
            len: self.len,
        })
    }
}

/// The first window after a read of `len` bytes.
fn first(len: u64) -> u64 {
    let size = len.next_power_of_two();
    match size {
        0..=0x1000 => size * 4,
        _ if size <= MAX_WINDOW / 4 => size * 2,
        _ => MAX_WINDOW.max(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(offsets: impl IntoIterator<Item = u64>, len: u64) -> Vec<(u64, u64)> {
        let mut ahead = ReadaheadWindow::default();
        let requests = offsets
            .into_iter()
            .map(|offset| ReadRequest { offset, len });
        let asked = requests.filter_map(|r| ahead.observe(r));
        asked.map(|r| (r.offset, r.len)).collect()
    }

    #[test]
    fn windows_double_while_reads_follow_each_other_and_leave_no_gap() {
        let found = windows((0..64).map(|k| k * 4096), 4096);
        assert_eq!(found[0], (4096, 16384));
        assert_eq!(found[1].1, 32768);
        assert!(found.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0));
        assert_eq!(found.last().unwrap().1, MAX_WINDOW);
    }

    #[test]
    fn strides_and_random_reads_get_nothing() {
        assert_eq!(windows((1..50).map(|k| k * 8192), 4096), []);
        assert_eq!(windows([9000, 100, 70_000, 4], 4096), []);
    }

    #[test]
    fn reads_longer_than_a_window_get_one_of_their_length() {
        let found = windows((0..4).map(|k| k << 20), 1 << 20);
        assert_eq!(found[0], (1 << 20, 1 << 20));
        assert_eq!(found.len(), 4);
    }
}
