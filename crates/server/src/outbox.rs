//! A durable queue of messages that must arrive: log bytes to free, sent to the member that stores them, at least once.
//!
//! Invariants:
//! - A message is written in the batch of the index change that displaced the bytes, and deleted only after the member has answered. So
//!   it arrives at least once. Freeing twice changes nothing.
//! - The store is synced before a message is sent. Else the index could name, after a power cut, bytes that the other member has
//!   freed. For the same reason the extents that a commit without a sync displaced become messages only once the bytes of that
//!   commit are on disk (`displaced_extents`). Two kinds of commits write their messages at once: those at durability `none`, and
//!   those of patterned files that were never synced.
//!
//! ```text
//! OUTBOX   key  | member 2 | number 8 |    numbers grow, also across restarts
//!          val  | 1 | log 8, address 8, length 8 ... |
//! ```
mod displaced_extents;

pub(crate) use displaced_extents::{DisplacedExtents, DisplacedRecord, files_with_displaced};

use crate::log_ranges::LogRanges;
use crate::worker_thread::WorkerThread;
use crate::{Error, Member, Result, keys};
use bytes::Bytes;
use forebay_data::SpaceSignal;
use forebay_index::Extent;
use forebay_pattern::LogSource;
use forebay_proto::PeerRpc;
use forebay_proto::data::{FreeRanges, SyncLogs};
use forebay_storage::{Batch, Snapshot, Store};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VERSION: u8 = 1;
/// Ranges that one message to a member carries, about.
const RANGES_PER_MESSAGE: usize = 4096;
/// Deliveries in a row that look only behind what was delivered last.
const INCREMENTAL_DELIVERIES: u32 = 64;
/// How long messages gather before they are delivered: one sync of their bytes serves all of them.
const DELIVERY_DELAY: Duration = Duration::from_millis(500);
/// How long to wait before a member that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// `(log, address, length)`, as in records and requests.
type LogRangeTriple = (u64, u64, u64);

/// The messages of one member, and the thread that delivers them.
pub struct Outbox {
    store: Arc<Store>,
    peers: Arc<dyn PeerRpc>,
    next: AtomicU64,
    /// What commits displaced whose own bytes may not be on disk yet.
    pub(crate) displaced: DisplacedExtents,
    /// One delivery at a time.
    delivery: Mutex<DeliveryProgress>,
    wake_state: Mutex<WakeState>,
    wake: Condvar,
    /// Writers of this node that wait for space: what is to be delivered may make some.
    space_freed: Arc<SpaceSignal>,
    thread: WorkerThread,
}

/// How far deliveries came. Only a hint where to look first: the records of delivered messages stay in the store for a
/// while as deletes, and stepping over them each time would cost more than the messages. A batch may be applied after
/// one with higher numbers, so all is looked through when nothing is found behind, and now and then.
#[derive(Default)]
struct DeliveryProgress {
    delivered: BTreeMap<Member, u64>,
    quick: u32,
}

impl DeliveryProgress {
    /// Where new messages are, as ranges of keys.
    fn undelivered_ranges(&self) -> Vec<(Bound<Bytes>, Bound<Bytes>)> {
        let range = |(member, last): (&Member, &u64)| {
            let (from, to) = (key(*member, *last), key(*member, u64::MAX));
            (Bound::Excluded(from.into()), Bound::Included(to.into()))
        };
        self.delivered.iter().map(range).collect()
    }
}

#[derive(Default)]
struct WakeState {
    woken: bool,
    closed: bool,
}

impl Outbox {
    /// The outbox kept in `store`. Nothing is delivered before `start` or `drain`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(
        store: Arc<Store>,
        peers: Arc<dyn PeerRpc>,
        space_freed: Arc<SpaceSignal>,
    ) -> Result<Outbox> {
        let mut next = 0;
        for entry in keys::all(&store, keys::OUTBOX) {
            next = next.max(message_key(&entry?.0)?.1 + 1);
        }
        Ok(Outbox {
            displaced: DisplacedExtents::open(store.clone())?,
            store,
            peers,
            next: AtomicU64::new(next),
            delivery: Mutex::default(),
            wake_state: Mutex::new(WakeState::default()),
            wake: Condvar::new(),
            space_freed,
            thread: WorkerThread::default(),
        })
    }

    /// Starts the thread that delivers. What an earlier run left goes out after the first `wake`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(self: &Arc<Outbox>) -> Result<()> {
        let worker = self.clone();
        let name = format!("outbox-{}", self.peers.member());
        self.thread.start(name, move || worker.run())
    }

    /// Adds to `batch` the messages that give these extents' bytes back. Call `wake` once the batch is applied.
    pub fn add(&self, batch: &mut Batch, freed: &[Extent]) {
        let mut members: BTreeMap<Member, Vec<LogRangeTriple>> = BTreeMap::new();
        for extent in freed {
            members
                .entry(extent.member)
                .or_default()
                .push((extent.log, extent.addr, extent.len));
        }
        for (member, ranges) in members {
            for ranges in ranges.chunks(RANGES_PER_MESSAGE) {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let mut value = vec![VERSION];
                value.extend(
                    ranges
                        .iter()
                        .flat_map(|(log, addr, len)| [*log, *addr, *len])
                        .flat_map(u64::to_be_bytes),
                );
                batch.put(keys::OUTBOX, key(member, number), value);
            }
        }
    }

    /// Adds to `batch` the end of a record that an earlier run left, and the messages for what is not needed of it.
    pub fn end_displaced(&self, batch: &mut Batch, number: u64, freed: &[Extent]) {
        batch.delete(keys::DISPLACED, number.to_be_bytes().to_vec());
        self.add(batch, freed);
    }

    /// There may be something to deliver.
    pub fn wake(&self) {
        self.wake_state.lock().woken = true;
        self.wake.notify_all();
        self.space_freed.notify();
    }

    /// Messages not delivered yet.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn pending(&self) -> Result<u64> {
        let mut count = displaced_extents::read(&self.store, 0)?.len() as u64;
        for entry in self
            .store
            .scan(keys::OUTBOX, Bound::Unbounded, Bound::Unbounded)
        {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    /// Delivers everything there is, in this thread.
    ///
    /// # Errors
    /// The first member's that could not be reached; the others have got theirs.
    pub fn drain(&self) -> Result<()> {
        let mut progress = self.delivery.lock();
        let mut failure = self.release();
        let mut failed: Vec<Member> = Vec::new();
        let mut all = progress.delivered.is_empty() || progress.quick >= INCREMENTAL_DELIVERIES;
        progress.quick = if all { 0 } else { progress.quick + 1 };
        let mut found = false;
        loop {
            // What the snapshot shows is on disk before any of it goes out.
            let mut messages = MessageScan {
                snapshot: self.store.snapshot(),
                ranges: match all {
                    true => vec![(Bound::Unbounded, Bound::Unbounded)],
                    false => progress.undelivered_ranges(),
                },
            };
            let Some(mut message) = messages.next(&failed)? else {
                if found || all {
                    return failure;
                }
                (all, progress.quick) = (true, 0);
                continue;
            };
            (all, found) = (false, true);
            self.store.sync()?;
            loop {
                let request = FreeRanges {
                    ranges: message.ranges,
                };
                match self.peers.call(message.to, request) {
                    Ok(()) => {
                        let mut batch = Batch::new();
                        for key in &message.keys {
                            let last = progress.delivered.entry(message.to).or_default();
                            *last = (*last).max(message_key(key)?.1);
                        }
                        message
                            .keys
                            .into_iter()
                            .for_each(|key| batch.delete(keys::OUTBOX, key));
                        self.store.apply(batch)?;
                    }
                    Err(error) => {
                        failed.push(message.to);
                        failure = failure.and(Err(error));
                    }
                }
                match messages.next(&failed)? {
                    Some(next) => message = next,
                    None => break,
                }
            }
        }
    }

    /// Brings to disk the bytes of commits that displaced something, and turns what they displaced into messages.
    ///
    /// # Errors
    /// A member whose bytes cannot be brought to disk; its records stay.
    fn release(&self) -> Result<()> {
        let sync = |member| self.peers.call(member, SyncLogs);
        self.displaced
            .release(sync, |batch, freed| self.add(batch, freed))
    }

    /// As [`Outbox::drain`] but for the delivery: after it a start has nothing to put back.
    ///
    /// # Errors
    /// A member whose bytes cannot be brought to disk; the next start looks whether they are there.
    pub fn release_displaced(&self) -> Result<()> {
        let _one_at_a_time = self.delivery.lock();
        self.release()
    }

    fn run(&self) {
        let mut failing = false;
        loop {
            {
                let mut state = self.wake_state.lock();
                if !state.woken && !state.closed {
                    match failing {
                        true => {
                            self.wake.wait_for(&mut state, RETRY);
                        }
                        false => self.wake.wait(&mut state),
                    }
                }
                if state.closed {
                    return;
                }
                let until = Instant::now() + DELIVERY_DELAY;
                while !state.closed && !self.wake.wait_until(&mut state, until).timed_out() {}
                if state.closed {
                    return;
                }
                state.woken = false;
            }
            let result = self.drain();
            self.space_freed.notify();
            if let Err(error) = &result
                && !failing
            {
                tracing::warn!(%error, "freed bytes are not given back yet; it will be retried");
            }
            failing = result.is_err();
        }
    }

    /// Stops the thread; what is left stays in the store.
    pub fn close(&self) {
        self.wake_state.lock().closed = true;
        self.wake.notify_all();
        self.thread.join();
    }
}

/// Messages to one member, joined.
#[derive(Default)]
struct FreeMessage {
    to: Member,
    keys: Vec<Bytes>,
    ranges: Vec<LogRangeTriple>,
}

/// The messages of a snapshot in these ranges of keys, in order.
struct MessageScan {
    snapshot: Snapshot,
    ranges: Vec<(Bound<Bytes>, Bound<Bytes>)>,
}

impl MessageScan {
    /// The next message to a member not in `skip`.
    fn next(&mut self, skip: &[Member]) -> Result<Option<FreeMessage>> {
        let mut message: Option<FreeMessage> = None;
        while let Some((from, to)) = self.ranges.first().cloned() {
            let (start, end) = (from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..]));
            for entry in self.snapshot.scan(keys::OUTBOX, start, end) {
                let (key, value) = entry?;
                let member = message_key(&key)?.0;
                if skip.contains(&member) {
                    continue;
                }
                let message = message.get_or_insert(FreeMessage {
                    to: member,
                    keys: Vec::new(),
                    ranges: Vec::new(),
                });
                if message.to != member || message.ranges.len() >= RANGES_PER_MESSAGE {
                    return Ok(Some(std::mem::take(message)));
                }
                self.ranges[0].0 = Bound::Excluded(key.clone());
                message.keys.push(key);
                read_ranges(&value, &mut message.ranges)?;
            }
            self.ranges.remove(0);
        }
        Ok(message)
    }
}

/// Adds every range that still has to be freed.
///
/// # Errors
/// When the store cannot be read, or a message is damaged.
pub(crate) fn add_waiting(store: &Store, waiting: &mut LogRanges) -> Result<()> {
    let held = displaced_extents::read(store, 0)?.into_iter();
    let extents = held.flat_map(|(_, held)| held.extents);
    extents.for_each(|extent| waiting.add_extent(&extent));
    for entry in keys::all(store, keys::OUTBOX) {
        let (key, value) = entry?;
        let (member, mut ranges) = (message_key(&key)?.0, Vec::new());
        read_ranges(&value, &mut ranges)?;
        for (log, addr, len) in ranges {
            waiting.add(LogSource { member, log }, addr..addr.saturating_add(len));
        }
    }
    Ok(())
}

fn key(member: Member, number: u64) -> Vec<u8> {
    [&member.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

fn message_key(key: &[u8]) -> Result<(Member, u64)> {
    let parts = key
        .split_first_chunk::<2>()
        .and_then(|(m, n)| Some((m, <[u8; 8]>::try_from(n).ok()?)));
    let (member, number) = parts.ok_or_else(|| damaged("key"))?;
    Ok((Member::from_be_bytes(*member), u64::from_be_bytes(number)))
}

fn read_ranges(value: &[u8], ranges: &mut Vec<LogRangeTriple>) -> Result<()> {
    let Some((&VERSION, rest)) = value.split_first() else {
        return Err(damaged("version"));
    };
    let (numbers, tail) = rest.as_chunks::<8>();
    let (triples, odd) = numbers.as_chunks::<3>();
    if !tail.is_empty() || !odd.is_empty() {
        return Err(damaged("length"));
    }
    ranges.extend(triples.iter().map(|t| {
        (
            u64::from_be_bytes(t[0]),
            u64::from_be_bytes(t[1]),
            u64::from_be_bytes(t[2]),
        )
    }));
    Ok(())
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("outbox message: wrong {what}; run `forebay fsck`"))
}

#[cfg(test)]
mod tests;
