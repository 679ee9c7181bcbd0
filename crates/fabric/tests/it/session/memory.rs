//! A transport between threads of one process, with faults, to test a session alone.
//!
//! It never polls: a sleep lasts until something arrives, the waker is called or its bound is over. So a session that forgets to
//! wake its progress thread, or to bound its sleep, hangs in the tests.
//!
//! # The faults
//! - A first message is lost, held back until it is released, delivered twice, or replaced by other bytes, as a function that
//!   the test gives decides.
//! - Large buffers are held back until they are released.
//! - A process is cut off: nothing reaches it or comes from it, and nobody is told.
//! - Sending to a process fails.
//! - What a process introduces itself with is replaced.

use bytes::Bytes;
use forebay_fabric::session::{ByteTransport, Pause, Waker};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What happens to a first message.
pub enum Delivery {
    Once,
    Never,
    Twice,
    /// Later, see [`MemoryNetwork::release`].
    Held,
    /// Other bytes arrive in its place.
    Replaced(Bytes),
}

type DecideDelivery = Box<dyn FnMut(u32, u32, &Bytes) -> Delivery + Send>;

/// What connects the processes.
pub struct MemoryNetwork {
    inboxes: Vec<Inbox>,
    records: Mutex<Vec<Option<Vec<u8>>>>,
    faults: Mutex<Faults>,
    /// Processes whose transport has ended well.
    pub finished: AtomicUsize,
}

#[derive(Default)]
struct Faults {
    decide: Option<DecideDelivery>,
    held_first: Vec<(u32, u32, Bytes)>,
    holds_large: bool,
    held_large: Vec<(u32, u32, Bytes)>,
    cut_off: BTreeSet<u32>,
    unreachable: BTreeSet<u32>,
    damaged_record: Option<u32>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    firsts: VecDeque<(u32, Bytes)>,
    /// By sender.
    large: Vec<VecDeque<Bytes>>,
    /// Something arrived, or the waker was called, since the last sleep ended.
    woken: bool,
}

impl Inbox {
    fn change(&self, change: impl FnOnce(&mut InboxState)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.woken = true;
        self.changed.notify_all();
    }
}

impl MemoryNetwork {
    pub fn new(processes: u32) -> Arc<MemoryNetwork> {
        let inbox = |_| {
            let inbox = Inbox::default();
            inbox.state.lock().large = (0..processes).map(|_| VecDeque::new()).collect();
            inbox
        };
        Arc::new(MemoryNetwork {
            inboxes: (0..processes).map(inbox).collect(),
            records: Mutex::new(vec![None; processes as usize]),
            faults: Mutex::default(),
            finished: AtomicUsize::new(0),
        })
    }

    /// From now on `decide` says what happens to a first message from one process to another.
    pub fn decide(&self, decide: impl FnMut(u32, u32, &Bytes) -> Delivery + Send + 'static) {
        self.faults.lock().decide = Some(Box::new(decide));
    }

    /// From now on large buffers are held back.
    pub fn hold_large(&self) {
        self.faults.lock().holds_large = true;
    }

    /// Delivers what was held back; nothing is from now on, unless `decide` says so.
    pub fn release(&self) {
        let (firsts, large) = {
            let mut faults = self.faults.lock();
            faults.holds_large = false;
            let firsts = std::mem::take(&mut faults.held_first);
            (firsts, std::mem::take(&mut faults.held_large))
        };
        for (from, to, bytes) in firsts {
            self.deliver_first(from, to, bytes);
        }
        for (from, to, bytes) in large {
            self.deliver_large(from, to, bytes);
        }
    }

    /// Nothing reaches `process` or comes from it.
    pub fn cut_off(&self, process: u32) {
        self.faults.lock().cut_off.insert(process);
    }

    /// `process` is reached again; what was sent meanwhile is lost.
    pub fn reconnect(&self, process: u32) {
        self.faults.lock().cut_off.remove(&process);
    }

    /// Sending to `process` fails.
    pub fn make_unreachable(&self, process: u32) {
        self.faults.lock().unreachable.insert(process);
    }

    /// One byte of what `process` introduces itself with changes on the way.
    pub fn damage_record(&self, process: u32) {
        self.faults.lock().damaged_record = Some(process);
    }

    fn deliver_first(&self, from: u32, to: u32, bytes: Bytes) {
        self.inboxes[to as usize].change(|inbox| inbox.firsts.push_back((from, bytes)));
    }

    fn deliver_large(&self, from: u32, to: u32, bytes: Bytes) {
        self.inboxes[to as usize].change(|inbox| inbox.large[from as usize].push_back(bytes));
    }
}

/// One process's end of the network.
pub struct MemoryTransport {
    network: Arc<MemoryNetwork>,
    process: u32,
}

impl MemoryTransport {
    pub fn new(network: Arc<MemoryNetwork>, process: u32) -> MemoryTransport {
        MemoryTransport { network, process }
    }

    fn inbox(&self) -> &Inbox {
        &self.network.inboxes[self.process as usize]
    }

    /// Whether what is sent to `to` arrives.
    fn reaches(&self, faults: &Faults, to: u32) -> Result<bool, MemoryError> {
        if faults.unreachable.contains(&to) {
            return Err(MemoryError("no way to the process"));
        }
        Ok(!faults.cut_off.contains(&to) && !faults.cut_off.contains(&self.process))
    }
}

/// Why something failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(&'static str);

/// A buffer on its way in.
pub enum MemoryReceiving {
    First(Bytes),
    Large { from: u32, len: usize },
}

impl ByteTransport for MemoryTransport {
    const NAME: &'static str = "Memory";
    const PROCESS: &'static str = "process";
    const START_ADVICE: &'static str = "mend the test";
    const POLLS_AFTER_PAUSE: usize = 1;
    type Error = MemoryError;
    type PendingSend = ();
    type PendingReceive = MemoryReceiving;

    fn process(&self) -> u32 {
        self.process
    }

    fn processes(&self) -> u32 {
        self.network.inboxes.len() as u32
    }

    fn host(&self) -> String {
        "here".into()
    }

    fn exchange(&mut self, mut own: Vec<u8>) -> Result<(), MemoryError> {
        if self.network.faults.lock().damaged_record == Some(self.process) {
            own[20] ^= 1;
        }
        self.network.records.lock()[self.process as usize] = Some(own);
        for inbox in &self.network.inboxes {
            inbox.change(|_| ());
        }
        Ok(())
    }

    fn poll_exchange(&mut self) -> Result<Option<Bytes>, MemoryError> {
        let records: Option<Vec<Vec<u8>>> = self.network.records.lock().iter().cloned().collect();
        Ok(records.map(|records| records.concat().into()))
    }

    fn send_first(&mut self, to: u32, bytes: Bytes) -> Result<(), MemoryError> {
        let mut faults = self.network.faults.lock();
        if !self.reaches(&faults, to)? {
            return Ok(());
        }
        let decide = faults.decide.as_mut();
        let delivery = decide.map(|decide| decide(self.process, to, &bytes));
        let arriving = match delivery.unwrap_or(Delivery::Once) {
            Delivery::Once => vec![bytes],
            Delivery::Never => Vec::new(),
            Delivery::Twice => vec![bytes.clone(), bytes],
            Delivery::Held => {
                faults.held_first.push((self.process, to, bytes));
                Vec::new()
            }
            Delivery::Replaced(other) => vec![other],
        };
        drop(faults);
        for bytes in arriving {
            self.network.deliver_first(self.process, to, bytes);
        }
        Ok(())
    }

    fn send_large(&mut self, to: u32, bytes: Bytes) -> Result<(), MemoryError> {
        let mut faults = self.network.faults.lock();
        if !self.reaches(&faults, to)? {
            return Ok(());
        }
        if faults.holds_large {
            faults.held_large.push((self.process, to, bytes));
            return Ok(());
        }
        drop(faults);
        self.network.deliver_large(self.process, to, bytes);
        Ok(())
    }

    fn poll_send(&mut self, _: &mut ()) -> Result<bool, MemoryError> {
        Ok(true)
    }

    fn poll_first(&mut self) -> Result<Option<(u32, MemoryReceiving)>, MemoryError> {
        let first = self.inbox().state.lock().firsts.pop_front();
        Ok(first.map(|(from, bytes)| (from, MemoryReceiving::First(bytes))))
    }

    fn receive_large(&mut self, from: u32, len: usize) -> Result<MemoryReceiving, MemoryError> {
        Ok(MemoryReceiving::Large { from, len })
    }

    fn poll_receive(&mut self, of: &mut MemoryReceiving) -> Result<Option<Bytes>, MemoryError> {
        match of {
            MemoryReceiving::First(bytes) => Ok(Some(std::mem::take(bytes))),
            MemoryReceiving::Large { from, len } => {
                let mut state = self.inbox().state.lock();
                match state.large[*from as usize].pop_front() {
                    Some(bytes) if bytes.len() == *len => Ok(Some(bytes)),
                    Some(_) => Err(MemoryError("a buffer of another length")),
                    None => Ok(None),
                }
            }
        }
    }

    fn pause(&self, _: Duration, _: bool) -> Pause {
        Pause::Sleep(Duration::from_secs(3600))
    }

    fn sleep(&mut self, at_most: Duration) {
        let inbox = self.inbox();
        let mut state = inbox.state.lock();
        if !state.woken {
            inbox.changed.wait_for(&mut state, at_most);
        }
        state.woken = false;
    }

    fn waker(&self) -> Waker {
        let (network, process) = (self.network.clone(), self.process as usize);
        Box::new(move || network.inboxes[process].change(|_| ()))
    }

    fn finish(self) -> Result<(), MemoryError> {
        self.network.finished.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
