//! The outbox alone: what waits, what arrives, what is damaged.
use super::*;
use crate::Fid;
use crate::tests::TestPeers;
use forebay_fabric::Message;
use forebay_proto::Request;
use forebay_proto::call::Call;
use forebay_proto::data::DataRequest;
use forebay_storage::{Options, OsIo};
use rustix::io::Errno;
use std::path::Path;

/// Notes what is freed; members in `dead` do not answer.
#[derive(Default)]
struct Frees {
    dead: Mutex<Vec<Member>>,
    got: Mutex<Vec<(Member, LogRangeTriple)>>,
}

impl Frees {
    /// As member 0 of three asks.
    fn peers(self: &Arc<Frees>) -> Arc<dyn PeerRpc> {
        let frees = self.clone();
        Arc::new(TestPeers {
            member: 0,
            members: 3,
            deadline: Duration::from_secs(60),
            exchange: move |to, request| frees.exchange(to, request),
        })
    }

    fn exchange(&self, to: Member, request: Request) -> Result<Message> {
        if self.dead.lock().contains(&to) {
            return Err(Errno::IO.into());
        }
        match request {
            Request::Data(DataRequest::FreeRanges(FreeRanges { ranges })) => {
                self.got.lock().extend(ranges.into_iter().map(|r| (to, r)));
            }
            Request::Data(DataRequest::SyncLogs(_)) => {}
            other => panic!("{other:?}"),
        }
        Ok(SyncLogs::encode_reply(Ok(())))
    }
}

fn open(dir: &Path) -> Arc<Store> {
    Arc::new(Store::open(Arc::new(OsIo), dir, Options::default()).unwrap())
}

fn extent(member: Member, addr: u64) -> Extent {
    Extent {
        offset: 0,
        len: 10,
        member,
        log: 7,
        addr,
        seq: 1,
    }
}

#[test]
fn messages_of_an_unreachable_member_wait_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let links = Arc::new(Frees::default());
    links.dead.lock().push(1);
    let store = open(dir.path());
    let outbox = Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap();
    for round in 0..3 {
        let mut batch = Batch::new();
        outbox.add(&mut batch, &[0, 1, 2].map(|m| extent(m, round * 100)));
        store.apply(batch).unwrap();
    }
    assert_eq!(outbox.pending().unwrap(), 9);
    assert!(outbox.drain().is_err());
    assert_eq!(outbox.pending().unwrap(), 3);
    let got = links.got.lock().clone();
    let wanted = [0, 2].map(|m| [0, 100, 200].map(|addr| (m, (7, addr, 10))));
    assert_eq!(got, wanted.concat());
    drop(outbox);
    store.close().unwrap();
    drop(store);

    let store = open(dir.path());
    let outbox = Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap();
    // A new message does not take the place of an old one.
    let mut batch = Batch::new();
    outbox.add(&mut batch, &[extent(1, 300)]);
    store.apply(batch).unwrap();
    links.dead.lock().clear();
    links.got.lock().clear();
    outbox.drain().unwrap();
    let got = links.got.lock().clone();
    assert_eq!(got, [0, 100, 200, 300].map(|addr| (1, (7, addr, 10))));
    assert_eq!(outbox.pending().unwrap(), 0);
}

#[test]
fn a_batch_applied_after_later_ones_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let links = Arc::new(Frees::default());
    let store = open(dir.path());
    let outbox = Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap();
    let batch = |member, addr| {
        let mut batch = Batch::new();
        outbox.add(&mut batch, &[extent(member, addr)]);
        batch
    };
    store.apply(batch(0, 1)).unwrap();
    outbox.drain().unwrap();
    let late = [batch(0, 2), batch(1, 3)];
    store.apply(batch(0, 4)).unwrap();
    outbox.drain().unwrap();
    for batch in late {
        store.apply(batch).unwrap();
    }
    outbox.drain().unwrap();
    assert_eq!(outbox.pending().unwrap(), 0);
    // Even if there is always something newer.
    let late = batch(2, 5);
    store.apply(batch(0, 6)).unwrap();
    outbox.drain().unwrap();
    store.apply(late).unwrap();
    for addr in 0..100 {
        store.apply(batch(0, 100 + addr)).unwrap();
        outbox.drain().unwrap();
    }
    assert_eq!(outbox.pending().unwrap(), 0);
    assert_eq!(links.got.lock().len(), 106);
}

#[test]
fn the_thread_delivers_and_tries_again() {
    let dir = tempfile::tempdir().unwrap();
    let links = Arc::new(Frees::default());
    links.dead.lock().push(2);
    let store = open(dir.path());
    let outbox = Arc::new(Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap());
    outbox.start().unwrap();
    let mut batch = Batch::new();
    outbox.add(&mut batch, &[extent(0, 0), extent(2, 0)]);
    store.apply(batch).unwrap();
    outbox.wake();
    let wait = |count: usize| {
        for _ in 0..60_000 {
            if links.got.lock().len() == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not delivered");
    };
    wait(1);
    links.dead.lock().clear();
    wait(2);
    outbox.close();
}

#[test]
fn a_damaged_message_is_an_error_not_a_wrong_free() {
    for value in [&b""[..], b"\x02", b"\x01abc", b"\x01abcdefgh"] {
        assert!(read_ranges(value, &mut Vec::new()).is_err());
    }
    assert!(message_key(b"short").is_err());
}

#[test]
fn displaced_bytes_wait_until_the_new_ones_are_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let links = Arc::new(Frees::default());
    let store = open(dir.path());
    let outbox = Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap();
    let hold = |outbox: &Outbox, fid, addr| {
        let mut batch = Batch::new();
        outbox.displaced.note_writers([1]);
        let held = DisplacedRecord {
            fid: Fid(fid),
            size: Some(10),
            seq: 3,
            extents: vec![extent(0, addr)],
            beside: Vec::new(),
        };
        outbox.displaced.record(&mut batch, &held).unwrap();
        store.apply(batch).unwrap();
    };
    hold(&outbox, 5, 0);
    assert!(outbox.displaced.has_records(Fid(5)) && !outbox.displaced.has_records(Fid(6)));
    links.dead.lock().push(1);
    for _ in 0..3 {
        outbox.drain().unwrap_err();
        assert!(
            outbox.displaced.has_records(Fid(5)),
            "held while its writer is away"
        );
    }
    assert!(
        links.got.lock().is_empty(),
        "the writer's bytes are not on disk"
    );
    links.dead.lock().clear();
    outbox.drain().unwrap();
    assert_eq!(*links.got.lock(), [(0, (7, 0, 10))]);
    assert_eq!(outbox.pending().unwrap(), 0);
    // What an earlier run left is looked at before it goes.
    hold(&outbox, 6, 100);
    let outbox = Outbox::open(store.clone(), links.peers(), Arc::default()).unwrap();
    outbox.drain().unwrap();
    assert_eq!(links.got.lock().len(), 1);
    let left = outbox.displaced.held_back().unwrap();
    assert_eq!((left.len(), left[0].1.fid), (1, Fid(6)));
    let mut batch = Batch::new();
    outbox.end_displaced(&mut batch, left[0].0, &left[0].1.extents);
    store.apply(batch).unwrap();
    outbox.drain().unwrap();
    assert_eq!(links.got.lock()[1], (0, (7, 100, 10)));
    assert_eq!(outbox.pending().unwrap(), 0);
}
