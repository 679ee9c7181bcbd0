//! What waits to be settled: logs in which raw spans were recorded, oldest first.
//!
//! It is a hint. A log that is noted may have nothing to settle by the time it is looked at; what is not noted any more, because
//! too many logs were, and what was there when the store was opened, is found by a scan of all spans. So memory is bounded, and
//! nothing is forgotten.
use crate::span::{self, Span};
use forebay_proto::LogId;
use forebay_storage::{BackgroundWork, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Logs that are noted at most.
const MAX_NOTED_LOGS: usize = 1 << 16;
/// Spans of a batch at most.
const MAX_PICKED_SPANS: usize = 4096;

/// Raw spans of a log.
struct NotedLog {
    /// The address of the first one.
    from: u64,
    /// Their bytes, as far as is known.
    bytes: u64,
}

/// What waits.
#[derive(Default)]
pub struct Waiting {
    logs: BTreeMap<LogId, NotedLog>,
    /// All spans from this log and address on are to be looked at.
    scan: Option<(LogId, u64)>,
    /// Bytes that it may find.
    scan_bytes: u64,
    /// Writers that wait for room.
    urgent: usize,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct SettleBacklog {
    /// The thread that settles.
    pub background: BackgroundWork<Waiting>,
    /// Bytes that wait.
    bytes: AtomicU64,
    /// How often something was noted.
    noted: AtomicU64,
}

impl SettleBacklog {
    /// There are so many raw bytes in a store that was opened.
    pub fn scan_all(&self, bytes: u64) {
        let mut waiting = self.background.lock();
        waiting.scan = Some((0, 0));
        waiting.scan_bytes += bytes;
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Raw spans of a log were recorded from this address on.
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

    /// Bytes that wait, as far as is known.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Those of them that were written since the store was opened, and not what a scan is to find.
    pub fn written_bytes(&self) -> u64 {
        let scan_bytes = self.background.lock().scan_bytes;
        self.bytes().saturating_sub(scan_bytes)
    }

    /// How often something was noted: another number after every write.
    pub fn writes(&self) -> u64 {
        self.noted.load(Relaxed)
    }

    /// Whether a writer waits for room.
    pub fn is_urgent(&self) -> bool {
        self.background.lock().urgent > 0
    }

    /// A writer waits for room, until it says that it does no more.
    pub fn hurry(&self, is_waiting: bool) {
        let mut waiting = self.background.lock();
        match is_waiting {
            true => waiting.urgent += 1,
            false => waiting.urgent -= 1,
        }
        self.background.work.notify_one();
    }

    /// The thread waits until there is something to settle, or after a failure so long, unless a writer waits for room; whether it
    /// is to go on.
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

    /// The next raw spans for which that is so, of about so many bytes, in the order of their logs and addresses. None: nothing is left.
    /// Their bytes wait until they are `done`.
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
                // One that cannot be read is told by whoever needs it.
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
        // Another one may have been asked for meanwhile.
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

    /// So many bytes wait no longer: of spans that were picked, and are settled or wait again.
    pub fn done(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// What was picked and is raw still.
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

impl Waiting {
    fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.scan.is_none()
    }
}

/// Spans that are picked.
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
        backlog.hurry(true);
        // Else it would not return.
        assert!(backlog.wait(Some(Duration::from_secs(1 << 30))));
        backlog.hurry(false);
        assert!(backlog.wait(Some(Duration::from_millis(1))));
    }
}
