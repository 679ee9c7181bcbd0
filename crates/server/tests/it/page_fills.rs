//! Pages that the kernel gets before it asks for them: what a read would have shown at that moment, and never while somebody here may
//! write the file.
use crate::common::*;
use forebay_server::delegate::{Delegate, Handle, PrefetchConfig, PrefetchPolicy};
use forebay_server::{Config, Consistency, Fid, SetAttr};
use forebay_testkit::random::seeded_bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Pages from one record to the next.
const STRIDE: u64 = 4;
const RECORDS: u64 = 400;
const SIZE: u64 = RECORDS * STRIDE * PAGE;

/// The pages of one open file in a kernel, and how often it asked.
#[derive(Default)]
struct Kernel {
    pages: RefCell<BTreeMap<u64, Vec<u8>>>,
    requests: Cell<u64>,
    stored: Cell<u64>,
    stored_pages: Cell<u64>,
}

impl Kernel {
    fn store(&self, offset: u64, bytes: &[u8]) {
        assert!(offset.is_multiple_of(PAGE) && bytes.len().is_multiple_of(PAGE as usize));
        for (offset, page) in (offset..)
            .step_by(PAGE as usize)
            .zip(bytes.chunks(PAGE as usize))
        {
            self.pages.borrow_mut().insert(offset, page.to_vec());
        }
    }

    /// As the mount does. `beside` runs before each record is stored.
    fn read(&self, node: &Delegate, handle: Handle, page: u64, beside: &dyn Fn()) -> Vec<u8> {
        if let Some(bytes) = self.pages.borrow().get(&(page * PAGE)) {
            return bytes.clone();
        }
        self.requests.set(self.requests.get() + 1);
        let (bytes, foreseen) = node.read_pages(handle, page * PAGE, PAGE as u32).unwrap();
        self.store(page * PAGE, &bytes);
        if let Some(foreseen) = foreseen {
            node.fill_predicted(&foreseen, |offset, bytes| {
                beside();
                assert!(offset + bytes.len() as u64 <= SIZE);
                self.stored.set(self.stored.get() + 1);
                let pages = bytes.len() as u64 / PAGE;
                self.stored_pages.set(self.stored_pages.get() + pages);
                self.store(offset, bytes);
                true
            });
        }
        bytes.to_vec()
    }

    /// Reads the first page of these records.
    fn read_records(
        &self,
        node: &Delegate,
        handle: Handle,
        records: std::ops::Range<u64>,
        want: &[u8],
    ) {
        for record in records {
            let at = (record * STRIDE * PAGE) as usize;
            let found = self.read(node, handle, record * STRIDE, &|| ());
            assert!(found == want[at..at + PAGE as usize], "record {record}");
        }
    }
}

/// A file that this node has written strided, in three logs.
fn write(node: &Delegate, bytes: &[u8]) -> Fid {
    let (fid, first) = create(node, "f");
    let others: Vec<Handle> = (0..2)
        .map(|_| node.open(fid, BOTH).unwrap().handle)
        .collect();
    let handles = [first, others[0], others[1]];
    for (n, record) in bytes.chunks(PAGE as usize).enumerate() {
        let offset = n as u64 * PAGE;
        node.write(handles[n % 3], offset, record, ROOT).unwrap();
    }
    for handle in handles {
        node.release(handle).unwrap();
    }
    fid
}

#[test]
fn records_of_another_node_are_stored_before_they_are_asked_for_and_as_a_read_shows_them() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let handle = open_as_mount(&here, fid, READ);
    let kernel = Kernel::default();
    kernel.read_records(&here, handle, 0..RECORDS, &bytes);
    assert!(kernel.requests.get() < 20, "{}", kernel.requests.get());
    assert!(kernel.stored.get() > RECORDS - 20);
    for (offset, page) in &*kernel.pages.borrow() {
        assert!(
            *page == bytes[*offset as usize..][..PAGE as usize],
            "at {offset}"
        );
    }
}

#[test]
fn nothing_is_stored_while_a_handle_of_this_node_may_write() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let mut bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let reader = open_as_mount(&here, fid, READ);
    let writer = open_as_mount(&here, fid, BOTH);
    let kernel = Kernel::default();
    kernel.read_records(&here, reader, 0..50, &bytes);
    assert_eq!((kernel.requests.get(), kernel.stored.get()), (50, 0));
    // What it has written is seen here at once, and is in what is stored once it is closed.
    let at = (300 * STRIDE * PAGE) as usize;
    bytes[at..at + 10].copy_from_slice(b"newer here");
    here.write(writer, at as u64, b"newer here", ROOT).unwrap();
    kernel.read_records(&here, reader, 50..60, &bytes);
    assert_eq!(kernel.stored.get(), 0);
    here.release(writer).unwrap();
    kernel.read_records(&here, reader, 60..RECORDS, &bytes);
    assert!(kernel.stored.get() > 300);
}

#[test]
fn a_round_stops_when_this_node_has_seen_a_newer_generation() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let old = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &old);
    let reader = open_as_mount(&here, fid, READ);
    let kernel = Kernel::default();
    kernel.read_records(&here, reader, 0..200, &old);
    let before = kernel.stored.get();
    // The other node overwrites all in the middle of a round, and this node hears of it.
    let new = seeded_bytes(2, SIZE as usize);
    let stale = RefCell::new(None);
    let beside = || {
        if stale.borrow().is_none() {
            let writer = there.open(fid, BOTH).unwrap().handle;
            there.write(writer, 0, &new, ROOT).unwrap();
            there.release(writer).unwrap();
            stale.replace(here.fsync(reader).unwrap());
        }
    };
    let asked = (200..).find(|record| {
        !kernel
            .pages
            .borrow()
            .contains_key(&(record * STRIDE * PAGE))
    });
    kernel.read(&here, reader, asked.unwrap() * STRIDE, &beside);
    assert_eq!(kernel.stored.get(), before + 1, "the round went on");
    // Pages of two generations: nothing is stored among them.
    kernel.read(&here, reader, 350 * STRIDE, &|| ());
    kernel.read(&here, reader, 351 * STRIDE, &|| ());
    assert_eq!(kernel.stored.get(), before + 1);
    // Once the kernel has dropped its pages, all that it gets is new.
    kernel.pages.borrow_mut().clear();
    here.kernel_pages.dropped_pages(stale.take().unwrap());
    kernel.read_records(&here, reader, 0..RECORDS, &new);
    assert!(kernel.stored.get() > before + 300);
}

#[test]
fn who_must_not_overtake_a_store_waits_for_its_end() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let reader = open_as_mount(&here, fid, READ);
    let kernel = Kernel::default();
    kernel.read_records(&here, reader, 0..30, &bytes);
    let waiter = Cell::new(None);
    let (done, ended) = std::sync::mpsc::channel();
    let beside = || {
        assert!(here.kernel_pages.is_filling(fid));
        if let Some(waits) = waiter.take() {
            waiter.set(Some(waits));
            return;
        }
        let (node, done) = (here.clone(), done.clone());
        // Its writer has no answer yet, but the store is told to end.
        let writer = node.open(fid, BOTH).unwrap().handle;
        waiter.set(Some(std::thread::spawn(move || {
            node.kernel_pages.wait_for_fills(fid).unwrap();
            done.send(()).unwrap();
            writer
        })));
        assert!(
            ended.recv_timeout(Duration::from_millis(50)).is_err(),
            "it is under way"
        );
    };
    let asked = (30..).find(|record| {
        !kernel
            .pages
            .borrow()
            .contains_key(&(record * STRIDE * PAGE))
    });
    kernel.read(&here, reader, asked.unwrap() * STRIDE, &beside);
    let writer = waiter.take().unwrap().join().unwrap();
    assert!(!here.kernel_pages.is_filling(fid));
    let stored = kernel.stored.get();
    kernel.read_records(&here, reader, 100..120, &bytes);
    assert_eq!(kernel.stored.get(), stored, "there is a writer now");
    here.release(writer).unwrap();
}

#[test]
fn nothing_is_stored_behind_the_end_of_a_file_that_became_shorter() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let reader = open_as_mount(&here, fid, READ);
    let kernel = Kernel::default();
    kernel.read_records(&here, reader, 0..100, &bytes);
    let cut = 150 * STRIDE * PAGE + 100;
    let set = SetAttr {
        size: Some(cut),
        ..SetAttr::default()
    };
    there.names.setattr(fid, &set, None, ROOT).unwrap();
    let stale = here.fsync(reader).unwrap().unwrap();
    kernel.pages.borrow_mut().clear();
    here.kernel_pages.dropped_pages(stale);
    let before = kernel.stored.get();
    kernel.read_records(&here, reader, 100..150, &bytes);
    assert!(kernel.stored.get() > before);
    let last = kernel.pages.borrow().keys().max().copied().unwrap();
    assert!(last + PAGE <= cut, "{last}");
}

#[test]
fn nothing_is_stored_where_the_kernel_has_no_say_or_all_of_it() {
    let stored = |config: Config| {
        let dir = scratch();
        let service = start(&dir, config.clone());
        let there = service.delegate(config.nodes - 1);
        let bytes = seeded_bytes(1, SIZE as usize);
        let fid = write(&there, &bytes);
        let here = service.delegate(0);
        let reader = open_as_mount(&here, fid, READ);
        let kernel = Kernel::default();
        kernel.read_records(&here, reader, 0..100, &bytes);
        kernel.stored.get()
    };
    assert!(stored(config(2)) > 0);
    assert_eq!(stored(config(1)), 0);
    let posix = Consistency::Posix;
    assert_eq!(
        stored(Config {
            consistency: posix,
            ..config(2)
        }),
        0
    );
    let none = PrefetchConfig {
        policy: PrefetchPolicy::None,
        ..PrefetchConfig::default()
    };
    assert_eq!(
        stored(Config {
            prefetch: none,
            ..config(2)
        }),
        0
    );
}

#[test]
fn readers_of_one_file_on_one_node_store_beside_each_other() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let there = service.delegate(1);
    let bytes = Arc::new(seeded_bytes(1, SIZE as usize));
    let fid = write(&there, &bytes);
    std::thread::scope(|scope| {
        for first in 0..STRIDE {
            let (here, bytes) = (service.delegate(0), bytes.clone());
            scope.spawn(move || {
                let reader = open_as_mount(&here, fid, READ);
                let kernel = Kernel::default();
                for record in 0..RECORDS {
                    let page = record * STRIDE + first;
                    let found = kernel.read(&here, reader, page, &|| ());
                    assert!(
                        found == bytes[(page * PAGE) as usize..][..PAGE as usize],
                        "page {page}"
                    );
                }
                here.release(reader).unwrap();
            });
        }
    });
    assert!(!service.delegate(0).kernel_pages.is_filling(fid));
}

#[test]
fn readers_that_leave_no_gap_among_them_get_whole_runs_of_pages_once() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let handles: Vec<Handle> = (0..STRIDE)
        .map(|_| open_as_mount(&here, fid, READ))
        .collect();
    let kernel = Kernel::default();
    for record in 0..RECORDS {
        for (first, handle) in (0..).zip(&handles) {
            let page = record * STRIDE + first;
            let found = kernel.read(&here, *handle, page, &|| ());
            let at = (page * PAGE) as usize;
            assert!(found == bytes[at..at + PAGE as usize], "page {page}");
        }
    }
    assert!(kernel.requests.get() < 60, "{}", kernel.requests.get());
    let pages = RECORDS * STRIDE;
    assert!(
        kernel.stored_pages.get() < pages + 20,
        "{}",
        kernel.stored_pages.get()
    );
    assert!(kernel.stored.get() < 40, "{}", kernel.stored.get());
}

#[test]
fn readers_that_leave_gaps_get_their_records_alone() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let bytes = seeded_bytes(1, SIZE as usize);
    let fid = write(&there, &bytes);
    let handles: Vec<Handle> = (0..2).map(|_| open_as_mount(&here, fid, READ)).collect();
    let kernel = Kernel::default();
    for record in 0..RECORDS {
        for (first, handle) in (0..).zip(&handles) {
            kernel.read(&here, *handle, record * STRIDE + first, &|| ());
        }
    }
    assert!(kernel.requests.get() < 40, "{}", kernel.requests.get());
    assert!(kernel.stored_pages.get() <= 2 * RECORDS);
}
