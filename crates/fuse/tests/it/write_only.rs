//! Handles that only write, of services of several members: they bypass the page cache where nobody reads the file on their
//! node, and what they write is seen as if they did not.
use crate::common::{Harness, Map, Setup, open, open_to_write, resident};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// A RELEASE comes some time after the close.
const RELEASE_WAIT: Duration = Duration::from_secs(20);

fn two() -> Option<Harness> {
    Harness::start(Setup {
        nodes: 2,
        ..Setup::default()
    })
}

/// Opens for writing only; made if it is not there.
fn writer(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

#[test]
fn parallel_writers_of_one_file_on_one_mount_of_two() {
    const WRITERS: usize = 4;
    const RECORDS: u64 = 400;
    const STEP: usize = 5000;
    // Each record reaches into the next one, which another writer writes.
    const LEN: usize = 6000;
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    let records: Vec<Vec<u8>> = (0..RECORDS).map(|n| seeded_bytes(n, LEN)).collect();
    // Whether a byte is what one of the records there has.
    let fits = |at: usize, byte: u8| {
        let (n, inside) = (at / STEP, at % STEP);
        let before = n.checked_sub(1).and_then(|n| records[n].get(inside + STEP));
        let own = records.get(n).and_then(|own| own.get(inside));
        own == Some(&byte) || before == Some(&byte)
    };
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (path, records) = (&path, &records);
                scope.spawn(move || {
                    let f = writer(path);
                    for (n, record) in records.iter().enumerate().skip(w).step_by(WRITERS) {
                        f.write_all_at(record, (n * STEP) as u64).unwrap();
                    }
                    f.sync_data().unwrap();
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !written.load(Ordering::SeqCst) {
                // Open for a moment only, so that writes with and without a reader meet.
                let Ok(f) = File::open(&path) else { continue };
                let at = f.metadata().unwrap().len() / 2;
                let mut bytes = vec![0; 3 * PAGE];
                let read = f.read_at(&mut bytes, at).unwrap();
                for (n, byte) in bytes[..read].iter().enumerate() {
                    let at = at as usize + n;
                    assert!(*byte == 0 || fits(at, *byte), "wrong byte at {at}");
                }
            }
        });
        let done: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        written.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        done.into_iter().for_each(|w| w.unwrap());
    });
    let seen: Vec<Vec<u8>> = h
        .all()
        .iter()
        .map(|m| fs::read(m.join("f")).unwrap())
        .collect();
    assert!(seen[0] == seen[1], "the nodes read different bytes");
    assert_eq!(seen[0].len(), (records.len() - 1) * STEP + LEN);
    for (at, byte) in seen[0].iter().enumerate() {
        assert!(fits(at, *byte), "wrong byte at {at}");
    }
}

#[test]
fn write_only_handles_are_direct_only_where_nobody_reads() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    let page = |n: u64| seeded_bytes(n, PAGE);
    let w = writer(&path);
    // Opening drops pages, so the reader is there before the write.
    let reader = open(&path);
    w.write_all_at(&page(0), 0).unwrap();
    assert_eq!(
        resident(&reader, PAGE),
        0,
        "nobody read the file when the writer opened it"
    );
    // Beside the reader, a handle that is opened now uses the page cache as the reader does.
    let beside = writer(&path);
    beside.write_all_at(&page(1), 0).unwrap();
    assert_eq!(resident(&reader, PAGE), 1);
    // The first handle still bypasses it, and what it writes is read all the same.
    w.write_all_at(&page(2), 0).unwrap();
    let mut seen = vec![0; PAGE];
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == page(2));
    let mut map = Map::new(&reader, PAGE, libc::MAP_SHARED).unwrap();
    assert!(map.bytes() == page(2));
    w.write_all_at(&page(3), 0).unwrap();
    assert!(
        map.bytes() == page(3),
        "a mapping shows what was there before"
    );
    drop((map, reader, beside));
    // Once nobody has it open but for writing past the page cache, a new handle does so too; and old pages are gone.
    let until = Instant::now() + RELEASE_WAIT;
    for n in 4.. {
        let last = open_to_write(&path);
        let look = File::open(&path).unwrap();
        last.write_all_at(&page(n), 0).unwrap();
        if resident(&look, PAGE) == 0 {
            break;
        }
        look.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == page(n));
        assert!(
            Instant::now() < until,
            "a write-only handle keeps using the page cache"
        );
    }
}

#[test]
fn of_one_member_they_use_the_page_cache() {
    let _turn = turns::exclusive();
    let setup = Setup {
        nodes: 1,
        ..Setup::default()
    };
    let Some(h) = Harness::start(setup) else {
        return;
    };
    let path = h.mount(0).join("f");
    let w = writer(&path);
    let reader = open(&path);
    w.write_all_at(&seeded_bytes(1, 2 * PAGE), 0).unwrap();
    assert_eq!(resident(&reader, 2 * PAGE), 2);
}

#[test]
fn a_write_through_a_write_only_handle_with_o_dsync_is_seen_elsewhere_at_once() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    for (n, flag) in [libc::O_DSYNC, libc::O_SYNC].into_iter().enumerate() {
        let name = format!("f{n}");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).custom_flags(flag);
        let w = options.open(h.mount(0).join(&name)).unwrap();
        for round in 0..5u64 {
            let bytes = seeded_bytes(round, 5000);
            w.write_all_at(&bytes, round * 3000).unwrap();
            let seen = fs::read(h.mount(1).join(&name)).unwrap();
            assert_eq!(seen.len() as u64, round * 3000 + 5000);
            assert!(seen[round as usize * 3000..] == bytes, "round {round}");
        }
    }
}

#[test]
fn what_a_write_only_handle_cut_and_wrote_is_all_that_is_read() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    for (round, len) in [70_000usize, 10_000, 1, 0, 30_000].into_iter().enumerate() {
        // Pages of the round before are in the cache.
        let bytes = seeded_bytes(round as u64, len);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let w = options.open(&path).unwrap();
        // Unaligned, and longer than a request carries at once if it does not begin on a page.
        for (n, part) in bytes.chunks(7777).enumerate() {
            w.write_all_at(part, n as u64 * 7777).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == bytes,
            "round {round}, still open"
        );
        drop(w);
        for m in h.all() {
            assert!(fs::read(m.join("f")).unwrap() == bytes, "round {round}");
        }
    }
}

#[test]
fn records_longer_than_a_request_arrive_whole() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    let bytes = seeded_bytes(7, (3 << 20) + 17);
    let w = writer(&path);
    // From an address that is not a page's: a request more than pages would need.
    w.write_all_at(&bytes[1..], 1).unwrap();
    w.write_all_at(&bytes[..1], 0).unwrap();
    drop(w);
    for m in h.all() {
        assert!(fs::read(m.join("f")).unwrap() == bytes);
    }
}

#[test]
fn bytes_that_the_kernel_moves_arrive_through_a_write_only_handle() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    const LEN: usize = 300_007;
    let source = tempfile::tempfile().unwrap();
    let bytes = seeded_bytes(9, LEN);
    source.write_all_at(&bytes, 0).unwrap();
    let to = h.mount(0).join("sent");
    let mut w = writer(&to);
    let mut at: libc::off_t = 0;
    while (at as usize) < LEN {
        // SAFETY: both descriptors are open, and `at` lives through the call.
        let sent =
            unsafe { libc::sendfile(w.as_raw_fd(), source.as_raw_fd(), &raw mut at, 70_000) };
        assert!(sent > 0, "{}", std::io::Error::last_os_error());
    }
    // Behind it the same once more, from another file of the mount.
    let beside = h.mount(0).join("beside");
    fs::write(&beside, &bytes).unwrap();
    let copied = std::io::copy(&mut File::open(&beside).unwrap(), &mut w).unwrap();
    assert_eq!(copied, LEN as u64);
    drop(w);
    for m in h.all() {
        let seen = fs::read(m.join("sent")).unwrap();
        assert!(seen == [&bytes[..], &bytes[..]].concat());
    }
}

#[test]
fn a_file_is_written_from_a_mapping_of_itself() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    let bytes = seeded_bytes(11, 4 * PAGE);
    let w = writer(&path);
    w.write_all_at(&bytes, 0).unwrap();
    let reader = open(&path);
    let mut map = Map::new(&reader, 4 * PAGE, libc::MAP_SHARED).unwrap();
    // The source is read from the file while it is written, at another place and at its own.
    w.write_all_at(&map.bytes()[..2 * PAGE], 2 * PAGE as u64)
        .unwrap();
    w.write_all_at(&map.bytes()[PAGE..2 * PAGE], PAGE as u64)
        .unwrap();
    let twice = [&bytes[..2 * PAGE], &bytes[..2 * PAGE]].concat();
    assert!(map.bytes() == twice);
    drop(w);
    assert!(fs::read(h.mount(1).join("f")).unwrap() == twice);
}
