//! Records read in a row or with a stride, of a file that changes between them in every way: each read returns what is there then.
use crate::backends::{BackendKind, World, over_both_backends};
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use forebay_client::{Client, Fallocate, File, OpenOptions};
use forebay_server::Config;
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::{count, for_each_seed};
use rustix::io::Errno;
use std::time::Duration;

over_both_backends![
    records_of_a_file_that_changes_are_those_of_now,
    records_of_a_file_that_nobody_changes_are_those_of_the_file,
];

/// Bytes of the file at first, and at most.
const SIZE: usize = 300_000;
const LARGEST: u64 = 400_000;

fn open(client: &Client, path: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(client, path).unwrap()
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..][..bytes.len()].copy_from_slice(bytes);
}

/// A reader, and what changes the file around it: by another handle of its node, by the server's own client, and by another node.
struct FileChanges<'a> {
    reader: &'a File,
    own: File,
    servers: File,
    other: File,
    content: Vec<u8>,
}

impl FileChanges<'_> {
    fn make(&mut self, random: &mut Random) {
        let offset = random.below(SIZE as u64);
        let len = 1 + random.index(9000);
        let bytes = random.nonzero_bytes(len);
        let local = match random.chance(50) {
            true => &self.own,
            false => &self.servers,
        };
        match random.below(8) {
            0 => {
                let len = random.below(LARGEST);
                local.set_len(len).unwrap();
                self.content.resize(len as usize, 0);
            }
            1 => {
                let punch = Fallocate {
                    punch: true,
                    keep_size: true,
                    zero: false,
                };
                local.allocate(punch, offset, bytes.len() as u64).unwrap();
                let size = self.content.len();
                let end = size.min(offset as usize + bytes.len());
                if let Some(hole) = self.content.get_mut(offset as usize..end) {
                    hole.fill(0);
                }
            }
            2 => local.commit().unwrap(),
            // What this node has not published would stay above what the other one publishes.
            3 => {
                self.reader.commit().unwrap();
                self.other.write_at(&bytes, offset).unwrap();
                self.other.commit().unwrap();
                self.reader.commit().unwrap();
                put(&mut self.content, offset as usize, &bytes);
            }
            4 => {
                self.reader.commit().unwrap();
                let len = random.below(LARGEST);
                self.other.set_len(len).unwrap();
                self.reader.commit().unwrap();
                self.content.resize(len as usize, 0);
            }
            _ => {
                local.write_at(&bytes, offset).unwrap();
                put(&mut self.content, offset as usize, &bytes);
            }
        }
    }
}

fn records_of_a_file_that_changes_are_those_of_now(kind: BackendKind) {
    let world = World::start(3, kind);
    for_each_seed("records of a changing file", (20, 300), |seed| {
        let mut random = Random::new(seed);
        let path = format!("/f{seed}");
        let content = seeded_bytes(seed, SIZE);
        world.clients[0].write(&path, &content).unwrap();
        let servers = Client::new(world.service.delegate(1));
        let reader = open(&world.clients[1], &path);
        let mut changes = FileChanges {
            reader: &reader,
            own: open(&world.clients[1], &path),
            servers: open(&servers, &path),
            other: open(&world.clients[0], &path),
            content,
        };
        // How seldom the file changes differs, so that long windows come about too.
        let quiet = *random.pick(&[2, 20, 200]);
        let mut buffer = vec![0; 9000];
        for _ in 0..count(8, 30) {
            let len = 1 + random.index(buffer.len());
            let stride = len as u64 + *random.pick(&[0, 0, 1, 5000]);
            let mut offset = random.below(SIZE as u64 / 2);
            for _ in 0..random.below(120) {
                if random.below(quiet) == 0 {
                    changes.make(&mut random);
                }
                let content = &changes.content;
                let from = content.len().min(offset as usize);
                let expected = &content[from..content.len().min(from + len)];
                let came = reader.read_at(&mut buffer[..len], offset).unwrap();
                assert!(buffer[..came] == *expected, "{len} bytes at {offset}");
                offset += stride;
            }
            // Long ones, which a program of the node makes itself if it can.
            let mut long = vec![0xEE; 262_144 + random.index(150_000)];
            for _ in 0..3 {
                if random.chance(50) {
                    reader.commit().unwrap();
                }
                let content = &changes.content;
                let offset = random.below(1 + content.len() as u64);
                let from = offset as usize;
                let expected = &content[from..content.len().min(from + long.len())];
                let came = reader.read_at(&mut long, offset).unwrap();
                assert!(long[..came] == *expected, "{} at {offset}", long.len());
                changes.make(&mut random);
            }
        }
    });
    world.stop_and_check();
}

fn records_of_a_file_that_nobody_changes_are_those_of_the_file(kind: BackendKind) {
    let world = World::start(2, kind);
    let content = seeded_bytes(3, 5 << 20);
    world.clients[0].write("/f", &content).unwrap();
    let file = world.clients[1].open("/f").unwrap();
    for (len, stride) in [
        (4096, 4096),
        (1000, 64 << 10),
        (131_072, 131_072),
        (131_073, 200_000),
        (2_500_000, 2_500_000),
        (1 << 20, 1 << 20),
        (3 << 20, 1 << 20),
    ] {
        let mut buffer = vec![0; len];
        for start in [0, stride / 2] {
            for offset in (start..content.len() + 3 * stride).step_by(stride) {
                let from = offset.min(content.len());
                let expected = &content[from..content.len().min(from + len)];
                let came = file.read_at(&mut buffer, offset as u64).unwrap();
                assert!(buffer[..came] == *expected, "{len} bytes at {offset}");
            }
        }
    }
    // A step that leads behind the last offset.
    for n in 0..8 {
        assert_eq!(
            file.read_at(&mut [0; 10], (n << 60) + (1 << 40)).unwrap(),
            0
        );
    }
    drop(file);
    world.stop();
}

#[test]
fn few_of_the_reads_in_a_row_or_with_a_stride_reach_the_server() {
    let world = World::start(2, BackendKind::Link);
    let content = seeded_bytes(6, 4 << 20);
    world.clients[1].write("/f", &content).unwrap();
    let reads = || world.service.delegate(1).counters.totals().reads;
    for stride in [1000, 4096] {
        let file = world.clients[1].open("/f").unwrap();
        let before = reads();
        for offset in (0..content.len() - 1000).step_by(stride) {
            let mut buffer = [0; 1000];
            file.read_at(&mut buffer, offset as u64).unwrap();
            assert!(buffer[..] == content[offset..][..1000]);
        }
        let asked = reads() - before;
        assert!(asked < 20, "{asked} of {} reads", content.len() / stride);
    }
    world.stop();
}

#[test]
fn many_files_that_are_read_in_part_keep_no_connection_from_other_calls() {
    let limits = LinkLimits {
        connections: 16,
        ..LinkLimits::default()
    };
    let config = Config {
        nodes: 1,
        ..Config::default()
    };
    let world = World::with(config, limits, BackendKind::Link);
    let client = &world.clients[0];
    client.write("/f", &seeded_bytes(7, 1 << 20)).unwrap();
    let files: Vec<File> = (0..200)
        .map(|_| {
            let file = client.open("/f").unwrap();
            // Into the second window, so that the third is on its way.
            for n in 0..80 {
                assert_eq!(file.read_at(&mut [0; 1000], n * 1000).unwrap(), 1000);
            }
            file
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| client.metadata("/f").unwrap());
        }
    });
    for file in files {
        file.close().unwrap();
    }
    assert_eq!(world.link(0).clients(), (1, 0));
    world.stop();
}

#[test]
fn a_record_before_a_damaged_place_is_read() {
    let world = World::start(1, BackendKind::Link);
    let client = &world.clients[0];
    let content = seeded_bytes(8, 400_000);
    client.write("/f", &content).unwrap();
    world.damage(&content[300_000..300_100]);
    let file = client.open("/f").unwrap();
    let mut failed = 0;
    for offset in (0..content.len() - 4000).step_by(1000) {
        let mut buffer = [0; 1000];
        match file.read_at(&mut buffer, offset as u64) {
            Ok(came) => assert!(came == 1000 && buffer[..] == content[offset..][..1000]),
            Err(error) => {
                assert_eq!(error.errno(), Errno::IO);
                failed += 1;
            }
        }
    }
    // A piece of 4 KiB is what a checksum covers.
    assert!((1..=6).contains(&failed), "{failed}");
    drop(file);
    world.stop();
}

#[test]
fn what_was_sent_ahead_is_not_given_out_once_the_server_has_ended() {
    let world = World::start(1, BackendKind::Embedded);
    let dir = tempfile::tempdir().unwrap();
    let (socket, limits) = (socket_of(dir.path(), 0), LinkLimits::default());
    let server = LinkServer::start(&socket, world.service.delegate(0), limits).unwrap();
    let client = Client::connect(dir.path()).unwrap();
    client.write("/f", &[7; 200_000]).unwrap();
    let file = client.open("/f").unwrap();
    let mut buffer = [0; 100];
    for n in 0..10 {
        assert_eq!(file.read_at(&mut buffer, n * 100).unwrap(), 100);
    }
    drop(server);
    std::thread::sleep(Duration::from_millis(2));
    let error = file.read_at(&mut buffer, 1000).unwrap_err();
    assert_eq!(error.errno(), Errno::STALE, "{error}");
    world.stop();
}

#[test]
fn threads_that_read_one_file_in_their_own_ways_get_what_it_has() {
    let world = World::start(2, BackendKind::Link);
    let content = seeded_bytes(4, 1 << 20);
    world.clients[0].write("/f", &content).unwrap();
    let file = world.clients[1].open("/f").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, content) = (&file, &content);
            scope.spawn(move || {
                let mut buffer = [0; 4096];
                for offset in (thread * 4096..content.len()).step_by(4 * 4096) {
                    assert_eq!(file.read_at(&mut buffer, offset as u64).unwrap(), 4096);
                    assert!(buffer[..] == content[offset..][..4096], "at {offset}");
                }
            });
        }
    });
    drop(file);
    world.stop();
}
