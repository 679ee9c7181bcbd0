//! Files kept as patterns: what becomes one, who asks for it and how often, what two layouts at once come to.
use crate::common::*;
use forebay_pattern::{Folder, LogSource, Segment};
use forebay_server::delegate::{Delegate, Fallocate, FileDescription, SeekTarget};
use forebay_server::proto::files::{Commit, CommitAttr, CommitReply, FilesService};
use forebay_server::{Config, ExtentLayout, Fid, Service};

const NODES: u16 = 4;
const RECORD: usize = 64;
const ROWS: usize = 256;

/// Every byte of a record of `node`.
fn record(node: u16, row: usize) -> [u8; RECORD] {
    std::array::from_fn(|k| 1 + ((row * 13 + usize::from(node) * 50 + k) % 255) as u8)
}

/// Each node's records beside those of the others, row by row.
fn stride(service: &Service, fid: Fid) -> Vec<u8> {
    stride_at(service, fid, 0)
}

/// The same from an offset on.
fn stride_at(service: &Service, fid: Fid, from: u64) -> Vec<u8> {
    let mut want = vec![0; ROWS * usize::from(NODES) * RECORD];
    for node in 0..NODES {
        let delegate = service.delegate(node);
        let handle = delegate.open(fid, BOTH).unwrap().handle;
        for row in 0..ROWS {
            let at = (row * usize::from(NODES) + usize::from(node)) * RECORD;
            let bytes = record(node, row);
            delegate
                .write(handle, from + at as u64, &bytes, ROOT)
                .unwrap();
            want[at..at + RECORD].copy_from_slice(&bytes);
        }
        delegate.release(handle).unwrap();
    }
    want
}

fn new_file(service: &Service) -> Fid {
    let (fid, handle) = create(&service.delegate(0), "f");
    service.delegate(0).release(handle).unwrap();
    fid
}

fn texts(described: &FileDescription) -> Vec<&str> {
    let rows = described.patterns.rows.iter();
    rows.map(|row| row.text.as_str()).collect()
}

fn maps(delegate: &Delegate) -> u64 {
    delegate.counters.totals().maps
}

#[test]
fn strides_of_all_nodes_are_one_pattern_that_a_reader_asks_for_once() {
    let dir = scratch();
    let service = start(&dir, config(NODES));
    let fid = new_file(&service);
    let want = stride(&service, fid);
    let described = service.delegate(3).locator.describe(fid).unwrap();
    assert_eq!(described.layout, ExtentLayout::Patterned);
    assert_eq!(
        texts(&described),
        ["at 0 B: 4 x [256 x 64 B stride 256 B] stride 64 B"]
    );
    assert_eq!(
        (described.patterns.extents, described.patterns.logs),
        (1024, 4)
    );
    assert_eq!(described.extents.extents, 0);
    assert!(described.encoded < 100, "{} bytes", described.encoded);
    assert_eq!(described.stored, want.len() as u64);
    for node in 0..NODES {
        let reader = service.delegate(node);
        let before = maps(&reader);
        assert!(contents(&reader, fid) == want);
        let handle = reader.open(fid, READ).unwrap().handle;
        for row in 0..ROWS {
            let bytes = reader.read(handle, (row * 100) as u64, 33).unwrap();
            assert_eq!(bytes[..], want[row * 100..row * 100 + 33]);
        }
        assert_eq!(
            reader.seek(handle, 5, SeekTarget::Hole).unwrap(),
            want.len() as u64
        );
        assert!(maps(&reader) <= before + 1);
    }
    let held: u64 = service
        .delegate(1)
        .locator
        .holders(fid, 0..1 << 40)
        .unwrap()
        .values()
        .sum();
    assert_eq!(held, want.len() as u64);
}

#[test]
fn what_is_not_worth_a_pattern_stays_with_the_slices() {
    let dir = scratch();
    let service = start(&dir, config(NODES));
    let fid = new_file(&service);
    let writer = service.delegate(1);
    let handle = writer.open(fid, BOTH).unwrap().handle;
    writer
        .write(handle, SLICE - 5, b"0123456789", ROOT)
        .unwrap();
    writer.flush(handle).unwrap();
    let described = writer.locator.describe(fid).unwrap();
    assert_eq!(described.layout, ExtentLayout::BySlice);
    assert_eq!((described.extents.extents, described.extents.logs), (1, 1));
    // For ever: strides are extents there, and shown as patterns all the same.
    for row in 0..1000u64 {
        writer.write(handle, row * 100, &[7; 10], ROOT).unwrap();
    }
    writer.release(handle).unwrap();
    let described = service.delegate(0).locator.describe(fid).unwrap();
    assert_eq!(described.layout, ExtentLayout::BySlice);
    assert_eq!(described.patterns.extents, 0);
    assert_eq!(
        described.extents.rows[0].text,
        "at 0 B: 1000 x 10 B stride 100 B"
    );
}

#[test]
fn without_patterns_a_file_that_has_them_is_read_and_written() {
    let dir = scratch();
    let service = start(&dir, config(NODES));
    let fid = new_file(&service);
    let mut want = stride(&service, fid);
    service.stop().unwrap();
    let off = Config {
        patterns: false,
        ..config(NODES)
    };
    let service = start(&dir, off);
    let writer = service.delegate(2);
    let handle = writer.open(fid, BOTH).unwrap().handle;
    for row in 0..100 {
        let at = row * 150 + 30;
        let bytes = [200 - row as u8; 20];
        writer.write(handle, at as u64, &bytes, ROOT).unwrap();
        want[at..at + 20].copy_from_slice(&bytes);
    }
    let hole = Fallocate {
        punch: true,
        zero: false,
        keep_size: true,
    };
    writer.fallocate(handle, hole, 40_000, 1000).unwrap();
    want[40_000..41_000].fill(0);
    writer.release(handle).unwrap();
    for node in 0..NODES {
        assert!(contents(&service.delegate(node), fid) == want);
    }
    let described = service.delegate(0).locator.describe(fid).unwrap();
    assert_eq!(described.layout, ExtentLayout::Patterned);
    assert_eq!((described.extents.extents, described.holes), (100, 1));
    assert_eq!(
        described.extents.rows[0].text,
        "at 30 B: 100 x 20 B stride 150 B"
    );
}

/// One writer makes the file patterned, another spread, at the same time: one of them plans again.
#[test]
fn the_first_commits_of_two_nodes_at_once() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let mut seen = [0; 2];
    for round in 0..40 {
        let name = format!("f{round}");
        let (fid, handle) = create(&service.delegate(0), &name);
        service.delegate(0).release(handle).unwrap();
        let handles = [0, 1].map(|n| service.delegate(n).open(fid, BOTH).unwrap().handle);
        for row in 0..100u64 {
            let writer = service.delegate(0);
            writer.write(handles[0], row * 20, &[1; 10], ROOT).unwrap();
        }
        let writer = service.delegate(1);
        writer.write(handles[1], SLICE, &[2; 10], ROOT).unwrap();
        writer
            .write(handles[1], 2 * SLICE + 5, &[2; 10], ROOT)
            .unwrap();
        std::thread::scope(|scope| {
            for node in [0, 1] {
                let delegate = service.delegate(node);
                let handle = handles[usize::from(node)];
                scope.spawn(move || delegate.release(handle).unwrap());
            }
        });
        for node in [0, 1] {
            let reader = service.delegate(node);
            let handle = reader.open(fid, READ).unwrap().handle;
            let bytes = reader.read(handle, 0, 2000).unwrap();
            assert!((0..1990).all(|at| bytes[at] == u8::from(at % 20 < 10)));
            assert_eq!(reader.read(handle, SLICE, 10).unwrap()[..], [2; 10]);
            assert_eq!(reader.read(handle, 2 * SLICE, 15).unwrap()[5..], [2; 10]);
            reader.release(handle).unwrap();
        }
        match service.delegate(0).locator.describe(fid).unwrap().layout {
            ExtentLayout::Patterned => seen[0] += 1,
            ExtentLayout::BySlice => seen[1] += 1,
            ExtentLayout::OwnerOnly => panic!("there were commits"),
        }
    }
    assert_eq!(seen[0] + seen[1], 40);
    for round in 0..40 {
        let name = format!("f{round}");
        service
            .delegate(0)
            .names
            .unlink(Fid::ROOT, name.as_bytes(), ROOT)
            .unwrap();
    }
    wait_until_empty(&service);
}

/// 512 writers of 256 Ki records of 4 KiB each: half a terabyte of which only the extents are there.
#[test]
fn a_reader_needs_few_bytes_for_a_very_large_checkpoint() {
    const WRITERS: u64 = 512;
    const RECORDS: u64 = 256 << 10;
    let dir = scratch();
    let service = start(&dir, config(2));
    let fid = new_file(&service);
    for writer in 0..WRITERS {
        let mut folder = Folder::joining();
        for k in 0..RECORDS {
            folder.push((k * WRITERS + writer) << 12, 4096).unwrap();
        }
        let source = LogSource {
            member: 1,
            log: 1000 + writer,
        };
        let pattern = folder.finish().remove(0);
        let commit = Commit {
            fid,
            token: writer,
            own: Vec::new(),
            patterns: Segment::new(source, 0, pattern).encoded(),
            staged: Vec::new(),
            attr: CommitAttr {
                end: Some((RECORDS * WRITERS) << 12),
                ..CommitAttr::default()
            },
            sync: false,
        };
        let reply = service.nodes()[usize::from(fid.owner())]
            .files
            .commit(1, commit);
        assert!(matches!(reply, Ok(CommitReply::Committed(_))));
    }
    let reader = service.delegate(1);
    let handle = reader.open(fid, READ).unwrap().handle;
    let before = reader.memory();
    // The second question is answered by the map.
    for at in [1 << 20, 1 << 38] {
        assert_eq!(reader.seek(handle, at, SeekTarget::Data).unwrap(), at);
    }
    let described = reader.locator.describe(fid).unwrap();
    assert_eq!(
        texts(&described),
        ["at 0 B: 512 x [256 Ki x 4 KiB stride 2 MiB] stride 4 KiB"]
    );
    assert_eq!(described.patterns.extents, WRITERS * RECORDS);
    assert!(described.encoded < 4096, "{} bytes", described.encoded);
    let more = reader.memory() - before;
    assert!(maps(&reader) > 0 && more < 6000, "{more} bytes");
}

#[test]
fn a_large_first_read_asks_for_few_extents_before_it_asks_for_the_patterns() {
    let dir = scratch();
    let service = start(&dir, config(NODES));
    let fid = new_file(&service);
    let mut want = Vec::new();
    for _ in 0..16 {
        want.extend(stride_at(&service, fid, want.len() as u64));
    }
    let reader = service.delegate(3);
    let handle = reader.open(fid, READ).unwrap().handle;
    let asked = || service.status().unwrap()[3].asked;
    let before = asked();
    let bytes = reader.read(handle, 0, want.len() as u32).unwrap();
    assert!(bytes == want);
    // Some extents, the patterns, and the bytes, from three other members in four steps.
    let requests = asked() - before;
    assert!(requests <= 2 + 4 * 3, "{requests} requests");
}
