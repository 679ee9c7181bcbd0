//! Requests of one node that ask another one the same at the same time: two messages for any number, no answer older than its
//! question, and each handle of a combined open is as good as one opened alone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use forebay_fabric::{Error, Fabric, Handler, Message, Rank};
use forebay_server::delegate::Delegate;
use forebay_server::{Fid, Service};
use forebay_storage::OsIo;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Requests of rank 1 wait before they are sent while this is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }
}

struct Gated {
    inner: Arc<dyn Fabric>,
    gate: Arc<Gate>,
}

impl Fabric for Gated {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }
    fn size(&self) -> u32 {
        self.inner.size()
    }
    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        let answer = self.inner.call(to, message, deadline);
        let mut shut = self.gate.shut.lock();
        while *shut && self.rank() == 1 {
            self.gate.opened.wait(&mut shut);
        }
        answer
    }
    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.inner.send(to, message)
    }
    fn serve(&self, handler: Arc<dyn Handler>) {
        self.inner.serve(handler)
    }
    fn close(&self) {
        self.inner.close()
    }
}

const MANY: u64 = 16;

/// A service of two, and a file that node 0 owns and has written ten bytes of.
fn gated(dir: &tempfile::TempDir) -> (Service, Arc<Gate>, Fid) {
    let gate = Arc::new(Gate::default());
    let wrap = |inner| {
        let gate = gate.clone();
        Arc::new(Gated { inner, gate }) as Arc<dyn Fabric>
    };
    let store = dir.path().join("store");
    let service = Service::start_over(Arc::new(OsIo), &store, config(2), wrap).unwrap();
    let owner = service.delegate(0);
    let (fid, handle) = create(&owner, "f");
    assert_eq!(fid.owner(), 0);
    owner.write(handle, 0, &[7; 10], ROOT).unwrap();
    owner.release(handle).unwrap();
    (service, gate, fid)
}

fn sent(service: &Service) -> u64 {
    service.nodes()[1].peers.load().0
}

/// `MANY` threads of node 1 do the same, while what they ask stays unanswered; then `meanwhile` happens, and the answers come. What they
/// get, and how many messages that cost.
fn at_once<T: Send>(
    service: &Service,
    gate: &Gate,
    ask: impl Fn(&Delegate) -> T + Sync,
    meanwhile: impl FnOnce(),
) -> (Vec<T>, u64) {
    let node = service.delegate(1);
    let (before, combined) = (sent(service), node.combined());
    gate.shut(true);
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(|| ask(&node))).collect();
        // All but the one that was sent, and the first of those that wait for it, have joined.
        while node.combined() - combined < MANY - 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        meanwhile();
        gate.shut(false);
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (answers, sent(service) - before)
}

#[test]
fn two_messages_answer_all_and_none_with_an_old_state() {
    let dir = scratch();
    let (service, gate, fid) = gated(&dir);
    let grow = |to: u64| {
        let owner = service.delegate(0);
        let handle = owner.open(fid, BOTH).unwrap().handle;
        owner.write(handle, 0, &vec![1; to as usize], ROOT).unwrap();
        owner.release(handle).unwrap();
    };
    // What was asked when the file had ten bytes may say so; those that wait say what is true when they are sent.
    let sizes = |attrs: Vec<u64>, new: u64| {
        let old = attrs.iter().filter(|size| **size != new).count();
        assert!(old <= 1, "{attrs:?}");
    };
    let (stats, messages) = at_once(
        &service,
        &gate,
        |node| node.getattr(fid).unwrap().size,
        || grow(20),
    );
    assert_eq!(messages, 2);
    sizes(stats, 20);
    let (names, messages) = at_once(
        &service,
        &gate,
        |node| node.lookup(Fid::ROOT, b"f").unwrap().size,
        || grow(30),
    );
    assert_eq!(messages, 2);
    sizes(names, 30);
    let (missing, messages) = at_once(
        &service,
        &gate,
        |node| node.lookup(Fid::ROOT, b"none").unwrap_err().errno(),
        || {},
    );
    assert_eq!(missing, [Errno::NOENT; MANY as usize]);
    assert_eq!(messages, 2);
    service.stop().unwrap();
}

#[test]
fn combined_opens_are_handles_of_their_own_and_close_with_the_last() {
    let dir = scratch();
    let (service, gate, fid) = gated(&dir);
    let node = service.delegate(1);
    let open = |node: &Delegate| node.open(fid, BOTH).unwrap().handle;
    let (handles, messages) = at_once(&service, &gate, open, || {});
    assert_eq!(messages, 2);
    for (k, handle) in (0..).zip(&handles) {
        node.write(*handle, 10 + k, &[9], ROOT).unwrap();
    }
    service.delegate(0).unlink(Fid::ROOT, b"f", ROOT).unwrap();
    let (last, others) = handles.split_last().unwrap();
    for handle in others {
        node.release(*handle).unwrap();
        settle(&service);
    }
    // Held open by the last one alone, wherever it came from.
    assert_eq!(node.read(*last, 0, 99).unwrap().len() as u64, 10 + MANY);
    assert_eq!(service.nodes()[0].files.open_files(), 1);
    node.release(*last).unwrap();
    settle_to_nothing(&service);
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    service.stop().unwrap();
}

#[test]
fn opens_of_different_flags_are_different_questions() {
    let dir = scratch();
    let (service, gate, fid) = gated(&dir);
    service.delegate(0).laminate(fid).unwrap();
    let turn = std::sync::atomic::AtomicU64::new(0);
    let node = service.delegate(1);
    let combined = node.combined();
    gate.shut(true);
    let outcomes = std::thread::scope(|scope| {
        let ask = || {
            let flags = match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 {
                0 => READ,
                _ => BOTH,
            };
            let opened = node
                .open(fid, flags)
                .map(|o| node.release(o.handle).unwrap());
            (flags.write, opened.map_err(|e| e.errno()))
        };
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(ask)).collect();
        while node.combined() - combined < MANY - 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.shut(false);
        threads
            .into_iter()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    for (write, outcome) in outcomes {
        let expected = if write { Err(Errno::PERM) } else { Ok(()) };
        assert_eq!(outcome, expected);
    }
    service.stop().unwrap();
}
