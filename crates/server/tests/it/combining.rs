//! Requests of one node that ask another one the same at the same time: two messages for any number (three for a create, which opens
//! too), no answer older than its question, and each handle of a combined open or create is as good as one opened alone.
use crate::common::*;
use forebay_fabric::fault::{Intercept, InterceptedCall, intercepted};
use forebay_fabric::{Error, Message};
use forebay_server::delegate::{Delegate, OpenedFile};
use forebay_server::{Caller, Fid, Kind, NewInode, OpenFlags, Service};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Answers to rank 1 are held back while this is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Default)]
struct GateState {
    shut: bool,
    /// Answers that are held back.
    held: u64,
}

/// The gate is shut until this goes, also by a panic.
struct ShutGate<'a>(&'a Gate);

impl Gate {
    fn shut(&self) -> ShutGate<'_> {
        self.state.lock().shut = true;
        ShutGate(self)
    }
}

impl Drop for ShutGate<'_> {
    fn drop(&mut self) {
        self.0.state.lock().shut = false;
        self.0.opened.notify_all();
    }
}

impl Intercept for Gate {
    fn call(&self, call: InterceptedCall<'_>) -> Result<Message, Error> {
        let asks = call.end.rank();
        let answer = call.proceed();
        let mut state = self.state.lock();
        if asks == 1 {
            state.held += 1;
            self.opened
                .wait_while(&mut state, |state: &mut GateState| state.shut);
            state.held -= 1;
        }
        answer
    }
}

const MANY: u64 = 16;
const EMPTIED: OpenFlags = OpenFlags {
    truncate: true,
    ..BOTH
};
const USER: Caller = Caller { uid: 7, gid: 7 };
/// Who writes where.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A service of two, and a file that node 0 owns and has written ten bytes of.
fn gated(dir: &tempfile::TempDir) -> (Service, Arc<Gate>, Fid) {
    let gate = Arc::new(Gate::default());
    let service = start_over(dir, config(2), |end| intercepted(end, gate.clone()));
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
    let answers = std::thread::scope(|scope| {
        let shut = gate.shut();
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(|| ask(&node))).collect();
        // One was sent and carried out; all but that, and the first of those that wait for it, have joined.
        while gate.state.lock().held == 0 || node.combined() - combined < MANY - 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        meanwhile();
        drop(shut);
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
        |node| node.names.getattr(fid).unwrap().size,
        || grow(20),
    );
    assert_eq!(messages, 2);
    sizes(stats, 20);
    let (names, messages) = at_once(
        &service,
        &gate,
        |node| node.names.lookup(Fid::ROOT, b"f").unwrap().size,
        || grow(30),
    );
    assert_eq!(messages, 2);
    sizes(names, 30);
    let (missing, messages) = at_once(
        &service,
        &gate,
        |node| node.names.lookup(Fid::ROOT, b"none").unwrap_err().errno(),
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
    service
        .delegate(0)
        .names
        .unlink(Fid::ROOT, b"f", ROOT)
        .unwrap();
    let (last, others) = handles.split_last().unwrap();
    for handle in others {
        node.release(*handle).unwrap();
        wait_until_idle(&service);
    }
    // Held open by the last one alone, wherever it came from.
    assert_eq!(node.read(*last, 0, 99).unwrap().len() as u64, 10 + MANY);
    assert_eq!(service.nodes()[0].files.open_files(), 1);
    node.release(*last).unwrap();
    wait_until_empty(&service);
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    service.stop().unwrap();
}

#[test]
fn opens_of_different_flags_are_different_questions() {
    let dir = scratch();
    let (service, gate, fid) = gated(&dir);
    service.delegate(0).names.laminate(fid).unwrap();
    let turn = std::sync::atomic::AtomicU64::new(0);
    let node = service.delegate(1);
    let combined = node.combined();
    let shut = gate.shut();
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
        drop(shut);
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

fn make(node: &Delegate, name: &str, flags: OpenFlags) -> Result<OpenedFile, Errno> {
    let made = node.create(Fid::ROOT, name.as_bytes(), 0o640, false, flags, ROOT);
    made.map_err(|e| e.errno())
}

#[test]
fn combined_creates_make_one_file_and_a_handle_for_each() {
    let dir = scratch();
    let (service, gate, _) = gated(&dir);
    let node = service.delegate(1);
    for (name, flags, cost) in [("plain", BOTH, 3), ("emptied", EMPTIED, 4)] {
        let (opened, messages) = at_once(
            &service,
            &gate,
            |node| {
                let opened = make(node, name, flags).unwrap();
                // At once, while others may be on their way out of the call: nobody's bytes are lost to another one's create.
                let mine = opened.handle;
                let at = 10 * NEXT.fetch_add(1, Ordering::Relaxed);
                node.write(mine, at, &[7; 10], ROOT).unwrap();
                (opened, at)
            },
            || {},
        );
        NEXT.store(0, Ordering::Relaxed);
        assert_eq!(messages, cost, "{name}");
        let one = opened[0].0.attr.fid;
        assert!(opened.iter().all(|(o, _)| o.attr.fid == one));
        assert_eq!(opened.iter().filter(|(o, _)| o.made).count(), 1, "{name}");
        assert_eq!(service.nodes()[0].files.open_files(), 1);
        let (last, others) = opened.split_last().unwrap();
        for (other, _) in others {
            node.release(other.handle).unwrap();
            wait_until_idle(&service);
        }
        assert_eq!(service.nodes()[0].files.open_files(), 1);
        node.release(last.0.handle).unwrap();
        wait_until_idle(&service);
        assert_eq!(service.nodes()[0].files.open_files(), 0);
        // The first one's may be gone, as the others empty the file after it made it; but they do so together.
        let expected = |made| {
            if made && flags.truncate {
                [0, 7]
            } else {
                [7, 7]
            }
        };
        let content = contents(&service.delegate(0), one);
        for (opened, at) in &opened {
            let byte = content.get(*at as usize).copied().unwrap_or(0);
            assert!(expected(opened.made).contains(&byte), "{name}");
        }
        let attr = service.delegate(0).names.getattr(one).unwrap();
        assert_eq!((attr.mode & 0o7777, attr.uid), (0o640, 0));
    }
    service.stop().unwrap();
}

#[test]
fn creates_that_wait_open_what_was_made_meanwhile_and_empty_it_if_they_say_so() {
    let dir = scratch();
    let (service, gate, _) = gated(&dir);
    // The first one's file is replaced by another one before the others ask.
    let replace = |name: &'static str| {
        let service = &service;
        move || {
            let owner = service.delegate(0);
            owner
                .names
                .unlink(Fid::ROOT, name.as_bytes(), ROOT)
                .unwrap();
            let (_, handle) = create(&owner, name);
            owner.write(handle, 0, &[1; 30], ROOT).unwrap();
            owner.release(handle).unwrap();
        }
    };
    for (name, flags, len) in [("kept", BOTH, 30), ("emptied", EMPTIED, 0)] {
        let (opened, _) = at_once(
            &service,
            &gate,
            |node| make(node, name, flags).unwrap(),
            replace(name),
        );
        let now = service
            .delegate(0)
            .names
            .lookup(Fid::ROOT, name.as_bytes())
            .unwrap();
        // The one that was sent before may have found its own, removed file, and made none anew.
        let new = opened.iter().filter(|o| o.attr.fid == now.fid);
        assert!(new.clone().count() as u64 >= MANY - 1);
        assert!(new.clone().all(|o| o.attr.size == len && !o.made), "{name}");
        assert_eq!(now.size, len, "{name}");
        for opened in opened {
            service.delegate(1).release(opened.handle).unwrap();
        }
    }
    service.stop().unwrap();
}

#[test]
fn a_combined_create_fails_for_all_as_for_one() {
    let dir = scratch();
    let (service, gate, _) = gated(&dir);
    let owner = service.delegate(0);
    let directory = NewInode::new(Kind::Dir, 0o755);
    owner.names.make(Fid::ROOT, b"d", directory, ROOT).unwrap();
    let long = "x".repeat(256);
    for (name, errno) in [("d", Errno::ISDIR), (&long, Errno::NAMETOOLONG)] {
        let alone = make(&service.delegate(1), name, BOTH).unwrap_err();
        let (heard, messages) = at_once(
            &service,
            &gate,
            |node| make(node, name, BOTH).unwrap_err(),
            || {},
        );
        assert_eq!((alone, messages), (errno, 2));
        assert_eq!(heard, [errno; MANY as usize]);
    }
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    service.stop().unwrap();
}

#[test]
fn creates_that_differ_or_are_exclusive_are_asked_for_alone() {
    let dir = scratch();
    let (service, gate, _) = gated(&dir);
    let node = service.delegate(1);
    // Modes, users and flags: each of these is another file to make, so the first to come decides, and the rest find it.
    let ways = [
        (0o600, ROOT, BOTH),
        (0o644, ROOT, BOTH),
        (0o600, USER, BOTH),
        (0o600, ROOT, READ),
    ];
    let (before, combined) = (sent(&service), node.combined());
    let shut = gate.shut();
    let (ways_opened, exclusive) = std::thread::scope(|scope| {
        let ways = ways.map(|(mode, caller, flags)| {
            let node = &node;
            scope.spawn(move || {
                node.create(Fid::ROOT, b"new", mode, false, flags, caller)
                    .unwrap()
            })
        });
        let alone: Vec<_> = (0..MANY)
            .map(|_| scope.spawn(|| node.create(Fid::ROOT, b"lock", 0o600, true, BOTH, ROOT)))
            .collect();
        // Each has sent its create.
        while sent(&service) - before < 4 + MANY {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(shut);
        let alone: Vec<_> = alone.into_iter().map(|t| t.join().unwrap()).collect();
        (ways.map(|t| t.join().unwrap()), alone)
    });
    assert_eq!(node.combined(), combined);
    assert_eq!(ways_opened.iter().filter(|o| o.made).count(), 1);
    let (won, lost): (Vec<_>, Vec<_>) = exclusive.into_iter().partition(Result::is_ok);
    assert_eq!((won.len() as u64, lost.len() as u64), (1, MANY - 1));
    for lost in lost {
        assert_eq!(lost.unwrap_err().errno(), Errno::EXIST);
    }
    let won = won.into_iter().map(|o| o.unwrap());
    for opened in won.chain(ways_opened) {
        node.release(opened.handle).unwrap();
    }
    wait_until_idle(&service);
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    service.stop().unwrap();
}
