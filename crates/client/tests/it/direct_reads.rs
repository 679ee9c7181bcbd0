//! Reads over the link that a program makes itself out of its node's segment files, large ones and short ones in no order: they return what
//! any read returns, and the server reads none of the bytes.
use crate::backends::{BackendKind, World};
use forebay_client::link::server::LinkLimits;
use forebay_client::{Client, File, OpenOptions};
use forebay_server::Config;
use forebay_storage::OsIo;
use forebay_storage::fault::{Call, HookedIo};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::count;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A service, and how many bytes of segment files its servers have read.
fn counted(nodes: u16) -> (World, Arc<AtomicU64>) {
    let read = Arc::new(AtomicU64::new(0));
    let counter = read.clone();
    let io = HookedIo::new(OsIo, move |path, call| {
        if let Call::Read { len, .. } = call
            && path.extension().is_some_and(|e| e == "seg")
        {
            counter.fetch_add(len, Relaxed);
        }
        Ok(())
    });
    let config = Config {
        nodes,
        ..Config::default()
    };
    let world = World::on(
        Arc::new(io),
        config,
        LinkLimits::default(),
        BackendKind::Link,
    );
    (world, read)
}

fn write_committed(client: &Client, path: &str, parts: &[(u64, &[u8])]) {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    let file = options.open(client, path).unwrap();
    for (offset, bytes) in parts {
        file.write_at(bytes, *offset).unwrap();
    }
    file.commit().unwrap();
    file.close().unwrap();
}

/// For reading and writing.
fn open_again(client: &Client, path: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.open(client, path).unwrap()
}

#[test]
fn the_server_reads_none_of_what_a_program_reads_itself() {
    let (world, read) = counted(1);
    let content = seeded_bytes(5, 20 << 20);
    write_committed(&world.clients[0], "/f", &[(0, &content)]);
    let file = world.clients[0].open("/f").unwrap();
    let before = read.load(Relaxed);
    let mut buffer = vec![0; 20 << 20];
    for (offset, len) in [
        (0, 1 << 20),
        (1 << 20, 1 << 20),
        (12_345, 300_001),
        (3, (20 << 20) - 3),
        // Behind the end.
        ((19 << 20) + 1, 2 << 20),
        (20 << 20, 1 << 20),
        (1 << 40, 1 << 20),
        (usize::MAX - 300_000, 300_000),
        (usize::MAX - 299_999, 299_999),
    ] {
        buffer[..len].fill(0xEE);
        let came = file.read_at(&mut buffer[..len], offset as u64).unwrap();
        let from = content.len().min(offset);
        let expected = &content[from..content.len().min(from + len)];
        assert!(buffer[..came] == *expected, "{len} bytes at {offset}");
    }
    assert_eq!(read.load(Relaxed), before);
    drop(file);
    world.stop_and_check();
}

/// Places of 4 KiB, each once, in no order.
fn scattered(places: u64) -> impl Iterator<Item = u64> {
    let mut places: Vec<u64> = (0..places).map(|n| n * 4096).collect();
    let mut numbers = Random::new(5);
    for i in (1..places.len()).rev() {
        places.swap(i, numbers.index(i + 1));
    }
    places.into_iter()
}

#[test]
fn the_server_reads_few_of_many_short_reads_in_no_order_or_in_a_row() {
    let (world, by_server) = counted(1);
    let content = seeded_bytes(11, 12 << 20);
    write_committed(&world.clients[0], "/f", &[(0, &content)]);
    let mut buffer = vec![0; 4096];
    let mut read_all = |file: &File, places: &mut dyn Iterator<Item = u64>| {
        let before = by_server.load(Relaxed);
        for at in places {
            buffer.fill(0xEE);
            let came = file.read_at(&mut buffer, at).unwrap();
            let expected = &content[at as usize..][..came];
            assert!(buffer[..came] == *expected, "at {at}");
            assert_eq!(came, 4096.min(content.len() - at as usize));
        }
        by_server.load(Relaxed) - before
    };
    let file = world.clients[0].open("/f").unwrap();
    let first = read_all(&file, &mut scattered(3071));
    assert!(first <= 10 * 8192, "{first} bytes");
    // Across the end of a window, and over the end of the file.
    let ends = [(8 << 20) - 100, (12 << 20) - 100, 5, (8 << 20) - 4096];
    let second = read_all(&file, &mut ends.into_iter());
    assert!(second <= 2 * 8192, "{second} bytes");
    drop(file);
    // In a row they are read ahead, in windows of 64 KiB at first.
    let file = world.clients[0].open("/f").unwrap();
    let third = read_all(&file, &mut (0..3072).map(|n| n * 4096));
    assert!(third <= 1 << 20, "{third} bytes");
    drop(file);
    world.stop_and_check();
}

/// Writes records of 4 KiB of `content` as so many writers do that take turns in the file, each all of its own.
fn write_strided(client: &Client, path: &str, content: &[u8], writers: usize) {
    for writer in 0..writers {
        let records = content.chunks(4096).enumerate().skip(writer);
        let records = records.step_by(writers);
        let parts: Vec<_> = records.map(|(n, bytes)| (n as u64 * 4096, bytes)).collect();
        write_committed(client, path, &parts);
    }
}

#[test]
fn records_with_the_stride_of_their_writers_are_read_together() {
    let (world, by_server) = counted(1);
    // The last record is shorter.
    let content = seeded_bytes(12, (8 << 20) + 5000);
    write_strided(&world.clients[0], "/f", &content, 4);
    let mut record = vec![0; 4096];
    for writer in 0..4 {
        let file = world.clients[0].open("/f").unwrap();
        let before = by_server.load(Relaxed);
        for at in (writer..).step_by(4).map(|n| n * 4096) {
            record.fill(0xEE);
            let came = file.read_at(&mut record, at as u64).unwrap();
            let expected = content.get(at..).unwrap_or_default();
            let expected = &expected[..expected.len().min(4096)];
            assert!(record[..came] == *expected, "at {at}");
            if expected.is_empty() {
                break;
            }
        }
        let read = by_server.load(Relaxed) - before;
        assert!(read <= 64 << 10, "{read} bytes");
    }
    world.stop_and_check();
}

#[test]
fn of_records_that_are_read_together_a_damaged_one_alone_is_an_error() {
    let (world, _) = counted(1);
    let content = seeded_bytes(13, 8 << 20);
    write_strided(&world.clients[0], "/f", &content, 4);
    let damaged = 4 * 301 + 2;
    world.damage(&content[damaged * 4096..][..64]);
    let mut record = vec![0; 4096];
    for writer in 0..4 {
        let file = world.clients[0].open("/f").unwrap();
        for n in (writer..2048).step_by(4) {
            let at = n * 4096;
            let read = file.read_at(&mut record, at as u64);
            match n == damaged {
                true => assert_eq!(read.unwrap_err().errno(), Errno::IO),
                false => assert!(
                    read.is_ok() && record == content[at..][..4096],
                    "record {n}"
                ),
            }
        }
    }
    world.stop();
}

/// Every block says which write it is of; short reads in no order, which know where the bytes lay, never return one that was replaced before.
#[test]
fn short_reads_beside_writes_are_never_of_an_earlier_moment() {
    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 512;
    let (world, by_server) = counted(1);
    let client = &world.clients[0];
    let block = |value: u64| value.to_le_bytes().repeat(BLOCK / 8);
    write_committed(client, "/f", &[(0, &block(0).repeat(BLOCKS as usize))]);
    let latest: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let (ended, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (ended, read, latest) = (&ended, &read, &latest);
            scope.spawn(move || {
                let file = client.open("/f").unwrap();
                let (mut buffer, mut n) = (vec![0; BLOCK], reader);
                while !ended.load(Relaxed) {
                    n = (n * 5 + 3 + reader) % BLOCKS;
                    let least = latest[n as usize].load(Relaxed);
                    let came = file.read_at(&mut buffer, n * BLOCK as u64).unwrap();
                    read.fetch_add(came as u64, Relaxed);
                    let value = u64::from_le_bytes(*buffer.first_chunk().unwrap());
                    assert!(buffer == block(value), "two writes at once");
                    assert!(value >= least, "{value} after {least}");
                }
            });
        }
        let mut options = OpenOptions::new();
        options.write(true);
        let file = options.open(client, "/f").unwrap();
        for value in 1..=count(400, 6000) {
            let n = value * 13 % BLOCKS;
            file.write_at(&block(value), n * BLOCK as u64).unwrap();
            latest[n as usize].store(value, Relaxed);
            if value % 40 == 0 {
                // Quiet for a while, so that windows are kept.
                file.commit().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        ended.store(true, Relaxed);
    });
    let (read, by_server) = (read.load(Relaxed), by_server.load(Relaxed));
    assert!(by_server < read, "{by_server} of {read} bytes");
    world.stop_and_check();
}

#[test]
fn short_reads_see_a_file_cut_lengthened_and_removed() {
    let (world, _) = counted(1);
    let client = &world.clients[0];
    let content = seeded_bytes(12, 1 << 20);
    write_committed(client, "/f", &[(0, &content)]);
    let file = client.open("/f").unwrap();
    let mut buffer = vec![0; 4096];
    let mut read = |at: u64| {
        let came = file.read_at(&mut buffer, at).unwrap();
        buffer[..came].to_vec()
    };
    for at in scattered(255) {
        assert!(read(at) == content[at as usize..][..4096]);
    }
    let other = open_again(client, "/f");
    other.set_len(100_000).unwrap();
    assert!(read(98_304) == content[98_304..100_000]);
    assert!(read(200_000).is_empty());
    other.set_len(1 << 20).unwrap();
    assert_eq!(read(200_000), vec![0; 4096]);
    other.write_at(b"new", 200_001).unwrap();
    assert_eq!(read(200_000)[..4], *b"\0new");
    other.commit().unwrap();
    client.remove_file("/f").unwrap();
    for at in scattered(20) {
        assert!(read(at) == content[at as usize..][..4096]);
    }
    drop((file, other));
    world.stop_and_check();
}

#[test]
fn holes_unwritten_bytes_and_those_of_another_node_are_read_too() {
    let (world, _) = counted(2);
    let piece = seeded_bytes(6, 1 << 20);
    let far = 5u64 << 20;
    write_committed(&world.clients[0], "/sparse", &[(7, &piece), (far, &piece)]);
    let mut expected = vec![0; 6 << 20];
    expected[7..7 + piece.len()].copy_from_slice(&piece);
    expected[far as usize..].copy_from_slice(&piece);
    for client in &world.clients {
        let mut came = vec![0xEE; 6 << 20];
        let file = client.open("/sparse").unwrap();
        assert_eq!(file.read_at(&mut came, 0).unwrap(), expected.len());
        assert!(came == expected);
    }
    // Not published, and not in a file yet.
    let file = open_again(&world.clients[0], "/sparse");
    file.write_at(&piece[..5000], 1 << 20).unwrap();
    expected[1 << 20..][..5000].copy_from_slice(&piece[..5000]);
    let mut came = vec![0xEE; 6 << 20];
    assert_eq!(file.read_at(&mut came, 0).unwrap(), expected.len());
    assert!(came == expected);
    drop(file);
    world.stop_and_check();
}

#[test]
fn a_damaged_byte_is_an_error_of_the_reads_that_have_it() {
    let (world, _) = counted(1);
    let content = seeded_bytes(8, 4 << 20);
    write_committed(&world.clients[0], "/f", &[(0, &content)]);
    world.damage(&content[3_000_000..3_000_064]);
    let file = world.clients[0].open("/f").unwrap();
    let mut page = vec![0; 4096];
    for at in scattered(1024) {
        let read = file.read_at(&mut page, at);
        match at {
            2_998_272 => assert_eq!(read.unwrap_err().errno(), Errno::IO),
            _ => assert!(
                read.is_ok() && page == content[at as usize..][..4096],
                "{at}"
            ),
        }
    }
    let mut buffer = vec![0; 1 << 20];
    for n in 0..4u64 {
        let read = file.read_at(&mut buffer, n << 20);
        match n {
            2 => assert_eq!(read.unwrap_err().errno(), Errno::IO),
            _ => {
                assert_eq!(read.unwrap(), 1 << 20);
                assert!(buffer == content[(n as usize) << 20..][..1 << 20]);
            }
        }
    }
    drop(file);
    world.stop();
}

/// Each block is written in one call, so no read of a block may see two of them; nor one that was replaced before the read began.
#[test]
fn a_read_beside_writes_and_freed_bytes_sees_one_write() {
    const BLOCK: usize = 512 << 10;
    const BLOCKS: u64 = 6;
    let (world, by_server) = counted(1);
    let client = &world.clients[0];
    // Each word has its place in it, so that no two pieces are equal.
    let block = |value: u64| -> Vec<u8> {
        let words = (0..BLOCK as u64 / 8).map(|place| value << 32 | (place & 0xffff));
        words.flat_map(u64::to_le_bytes).collect()
    };
    let read = AtomicU64::new(0);
    let first = block(0).repeat(BLOCKS as usize);
    write_committed(client, "/f", &[(0, &first)]);
    let latest: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = client.open("/f").unwrap();
                let (mut buffer, mut n) = (vec![0; BLOCK], 0);
                while !ended.load(Relaxed) {
                    n = (n + 1) % BLOCKS;
                    let least = latest[n as usize].load(Relaxed);
                    let came = file.read_at(&mut buffer, n * BLOCK as u64).unwrap();
                    assert_eq!(came, BLOCK);
                    read.fetch_add(BLOCK as u64, Relaxed);
                    let value = u64::from_le_bytes(*buffer.first_chunk().unwrap()) >> 32;
                    assert!(buffer == block(value), "two writes at once");
                    assert!(value >= least, "{value} after {least}");
                }
            });
        }
        let mut options = OpenOptions::new();
        options.write(true);
        let file = options.open(client, "/f").unwrap();
        for value in 1..=count(200, 3000) {
            let n = value % BLOCKS;
            file.write_at(&block(value), n * BLOCK as u64).unwrap();
            latest[n as usize].store(value, Relaxed);
            file.commit().unwrap();
        }
        ended.store(true, Relaxed);
    });
    let (read, by_server) = (read.load(Relaxed), by_server.load(Relaxed));
    assert!(by_server < read, "{by_server} of {read} bytes");
    world.stop_and_check();
}

/// The first 8 MiB are committed, what follows is not: that is one read all the same, and no byte of the first part is the server's to read.
#[test]
fn what_cannot_be_read_directly_is_added_to_what_can() {
    let (world, by_server) = counted(1);
    let client = &world.clients[0];
    let content = seeded_bytes(9, 12 << 20);
    write_committed(client, "/f", &[(0, &content[..8 << 20])]);
    let file = open_again(client, "/f");
    file.write_at(&content[8 << 20..], 8 << 20).unwrap();
    let mut came = vec![0xEE; 13 << 20];
    assert_eq!(file.read_at(&mut came, 0).unwrap(), content.len());
    assert!(came[..content.len()] == content);
    assert!(by_server.load(Relaxed) <= 4 << 20);
    drop(file);
    world.stop_and_check();
}

#[test]
fn a_handle_that_only_writes_reads_nothing_directly() {
    let (world, _) = counted(1);
    write_committed(&world.clients[0], "/f", &[(0, &seeded_bytes(2, 1 << 20))]);
    let mut options = OpenOptions::new();
    options.write(true);
    let file = options.open(&world.clients[0], "/f").unwrap();
    let refused = file.read_at(&mut vec![0; 1 << 20], 0).unwrap_err();
    assert_eq!(refused.errno(), Errno::BADF);
    drop(file);
    world.stop_and_check();
}
