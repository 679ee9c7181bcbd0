//! The backlog of settling: the logs with raw spans that are not settled yet, oldest first.
//!
//! It is a hint. A log in it may have nothing left to settle. Logs that did not fit, and raw spans from before the store was
//! opened, are found by a scan of all span records. So memory is bounded and no span is forgotten.
use crate::span::{self, Span};
use forebay_proto::LogId;
use forebay_storage::{BackgroundWork, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Noted logs, at most.
const MAX_NOTED_LOGS: usize = 1 << 16;
/// Spans that are picked at once, at most.
const MAX_PICKED_SPANS: usize = 4096;

/// A log with raw spans.
struct NotedLog {
    /// Address of the first one.
    from: u64,
    /// Their bytes, about.
    bytes: u64,
}

/// The state that is shared with the thread.
#[derive(Default)]
pub struct BacklogState {
    logs: BTreeMap<LogId, NotedLog>,
    /// A scan of all span records is due, from this log and address on.
    scan: Option<(LogId, u64)>,
    /// Bytes of raw spans that only the scan finds, about.
    scan_bytes: u64,
    /// Writers that wait for room.
    urgent: usize,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct SettleBacklog {
    /// The thread that settles.
    pub background: BackgroundWork<BacklogState>,
    /// Bytes in the backlog.
    bytes: AtomicU64,
    /// How often something was noted.
    noted: AtomicU64,
}

impl SettleBacklog {
    /// Has all spans scanned: an opened store has `bytes` raw bytes.
    pub fn scan_all(&self, bytes: u64) {
        let mut waiting = self.background.lock();
        waiting.scan = Some((0, 0));
        waiting.scan_bytes += bytes;
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Notes that raw spans of a log were recorded from this address on.
    pub fn note(&self, log: LogId, from: u64, bytes: u64) {
        let mut waiting = self.background.lock();
        let room = waiting.logs.len() < MAX_NOTED_LOGS;
        match waiting.logs.get_mut(&log) {
            Some(noted) => {
                noted.from = noted.from.min(from);
                noted.bytes += bytes;
            }
            None if room => drop(waiting.logs.insert(log, NotedLog { from, bytes })),
            None => {
                waiting.scan = Some((0, 0));
                waiting.scan_bytes += bytes;
            }
        }
        self.bytes.fetch_add(bytes, Relaxed);
        self.noted.fetch_add(1, Relaxed);
        self.background.work.notify_one();
    }

    /// Bytes in the backlog, about.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes in the backlog that were noted, without those that a scan is to find.
    pub fn written_bytes(&self) -> u64 {
        let scan_bytes = self.background.lock().scan_bytes;
        self.bytes().saturating_sub(scan_bytes)
    }

    /// A number that changes with every write.
    pub fn writes(&self) -> u64 {
        self.noted.load(Relaxed)
    }

    /// Whether a writer waits for room.
    pub fn is_urgent(&self) -> bool {
        self.background.lock().urgent > 0
    }

    /// A writer begins (`true`) or ends to wait for room.
    pub fn set_writer_waiting(&self, is_waiting: bool) {
        let mut waiting = self.background.lock();
        match is_waiting {
            true => waiting.urgent += 1,
            false => waiting.urgent -= 1,
        }
        self.background.work.notify_one();
    }

    /// The thread waits until there is a backlog; after a failure for `retry`, unless a writer waits for room. `false`: the thread is to
    /// end.
    pub fn wait(&self, retry: Option<Duration>) -> bool {
        let until = retry.map(|retry| Instant::now() + retry);
        let mut waiting = self.background.lock();
        while !self.background.is_stopping() {
            match until {
                None if waiting.is_empty() => self.background.work.wait(&mut waiting),
                Some(until) if waiting.urgent == 0 => {
                    if (self.background.work.wait_until(&mut waiting, until)).timed_out() {
                        break;
                    }
                }
                _ => break,
            }
        }
        !self.background.is_stopping()
    }

    /// Ends the thread.
    pub fn stop(&self, dir: &Path) {
        self.background.stop(dir);
    }

    /// The next spans for which `is_wanted` holds, of about `most_bytes`, by log and address. Empty: nothing is left. Their bytes
    /// stay in the backlog until they are `done`.
    pub fn pick(
        &self,
        store: &Store,
        most_bytes: u64,
        is_wanted: &impl Fn(&Span) -> bool,
    ) -> Vec<Span> {
        let mut picked = PickedSpans::new(most_bytes);
        while !picked.is_full() {
            let first = self.background.lock().logs.pop_first();
            let Some((log, noted)) = first else { break };
            let mut left = Some(noted.from);
            let mut taken = 0;
            for span in span::overlapping(store, log, noted.from..u64::MAX) {
                if picked.is_full() {
                    break;
                }
                // A record that cannot be read is reported by whoever reads the bytes.
                let Ok(span) = span else { break };
                left = Some(span.live.end);
                if is_wanted(&span) {
                    taken += picked.add(span);
                }
            }
            if !picked.is_full() {
                left = None;
            }
            self.done(noted.bytes);
            self.bytes.fetch_add(taken, Relaxed);
            if let Some(from) = left {
                let rest = noted.bytes.saturating_sub(taken);
                self.note_again(log, from, rest);
            }
        }
        if !picked.is_full() {
            self.pick_by_scan(store, &mut picked, is_wanted);
        }
        (picked.spans).sort_unstable_by_key(|span| (span.log, span.live.start));
        picked.spans
    }

    fn pick_by_scan(
        &self,
        store: &Store,
        picked: &mut PickedSpans,
        is_wanted: &impl Fn(&Span) -> bool,
    ) {
        let Some(from) = self.background.lock().scan.take() else {
            return;
        };
        let mut at = from;
        let mut taken = 0;
        for span in span::all_from(store, from).filter_map(Result::ok) {
            if picked.is_full() {
                break;
            }
            at = (span.log, span.live.end);
            if is_wanted(&span) {
                taken += picked.add(span);
            }
        }
        let mut waiting = self.background.lock();
        let is_over = !picked.is_full();
        // Another scan may have become due meanwhile.
        if !is_over {
            waiting.scan.get_or_insert(at);
        }
        let done = match is_over && waiting.scan.is_none() {
            true => waiting.scan_bytes,
            false => taken.min(waiting.scan_bytes),
        };
        waiting.scan_bytes -= done;
        self.done(done);
        self.bytes.fetch_add(taken, Relaxed);
    }

    /// Removes bytes of picked spans from the backlog. (Spans that wait again were noted anew.)
    pub fn done(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Notes picked spans again that are still raw.
    pub fn put_back(&self, spans: &[Span]) {
        for span in spans {
            self.note_again(span.log, span.live.start, span.live_len());
        }
    }

    fn note_again(&self, log: LogId, from: u64, bytes: u64) {
        self.note(log, from, bytes);
        // That was no write.
        self.noted.fetch_sub(1, Relaxed);
    }
}

impl BacklogState {
    fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.scan.is_none()
    }
}

/// The spans of one call of `pick`.
struct PickedSpans {
    spans: Vec<Span>,
    bytes: u64,
    most: u64,
}

impl PickedSpans {
    fn new(most: u64) -> PickedSpans {
        PickedSpans {
            spans: Vec::new(),
            bytes: 0,
            most,
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.most || self.spans.len() >= MAX_PICKED_SPANS
    }

    fn add(&mut self, span: Span) -> u64 {
        let bytes = span.live_len();
        self.bytes += bytes;
        self.spans.push(span);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scan_is_to_find_counts_as_waiting_but_not_as_written() {
        let backlog = SettleBacklog::default();
        backlog.scan_all(1000);
        assert_eq!((backlog.bytes(), backlog.written_bytes()), (1000, 0));
        backlog.note(7, 0, 50);
        assert_eq!((backlog.bytes(), backlog.written_bytes()), (1050, 50));
    }

    #[test]
    fn after_a_failure_the_thread_waits_unless_a_writer_needs_room() {
        let backlog = SettleBacklog::default();
        backlog.note(7, 0, 50);
        assert!(backlog.wait(None));
        backlog.set_writer_waiting(true);
        // Else it would not return.
        assert!(backlog.wait(Some(Duration::from_secs(1 << 30))));
        backlog.set_writer_waiting(false);
        assert!(backlog.wait(Some(Duration::from_millis(1))));
    }
}
