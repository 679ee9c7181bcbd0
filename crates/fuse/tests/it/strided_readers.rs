//! Readers of strided records, whose next pages the kernel gets before it asks for them: they see what they would see without that,
//! while the file is overwritten, cut, laminated, and opened, on their node and on others.
use crate::common::{Harness, Setup, is_resident, open_to_write, truncate};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Pages from one record to the next.
const STRIDE: usize = 4;
const RECORDS: usize = 300;
const SIZE: usize = RECORDS * STRIDE * PAGE;

fn two() -> Option<Harness> {
    Harness::start(Setup {
        nodes: 2,
        ..Setup::default()
    })
}

/// Writes the file strided from this mount, a writer for each of three.
fn write_strided(path: &Path, bytes: &[u8], record: usize) {
    let writers: Vec<File> = (0..3)
        .map(|_| {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .unwrap()
        })
        .collect();
    for (n, part) in bytes.chunks(record).enumerate() {
        writers[n % 3]
            .write_all_at(part, (n * record) as u64)
            .unwrap();
    }
}

#[test]
fn the_kernel_has_records_of_another_node_before_they_are_read() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    for (name, record) in [("small", PAGE), ("odd", 47_008)] {
        let bytes = seeded_bytes(record as u64, 4 * record * RECORDS);
        write_strided(&h.mount(0).join(name), &bytes, record);
        let f = File::open(h.mount(1).join(name)).unwrap();
        let mut asked = 0;
        // The kernel itself reads ahead from the start of a file.
        for at in (record..bytes.len()).step_by(4 * record) {
            asked += usize::from(!is_resident(&f, at, record));
            let mut found = vec![0; record];
            f.read_exact_at(&mut found, at as u64).unwrap();
            assert!(found == bytes[at..at + record], "{name} at {at}");
        }
        assert!(
            asked < RECORDS / 4,
            "{name}: the kernel asked for {asked} of {RECORDS}"
        );
    }
}

/// Pages of this version.
fn version(number: u64) -> Vec<u8> {
    number.to_ne_bytes().repeat(SIZE / 8)
}

/// The version of what was read of one page: all of it has the same.
fn version_of(page: &[u8]) -> u64 {
    let (first, _) = page.as_chunks::<8>();
    let number = u64::from_ne_bytes(first[0]);
    assert!(
        first.iter().all(|n| *n == first[0]),
        "a page of two versions"
    );
    number
}

/// Reads all records strided, from page `first` on, of the file as open here; each of no version that `bad` refuses. Short at the end of the file.
fn read_strided(f: &File, first: usize, bad: &dyn Fn(u64) -> Option<String>) {
    let mut page = vec![0; PAGE];
    for at in (first * PAGE..SIZE).step_by(STRIDE * PAGE) {
        let n = f.read_at(&mut page, at as u64).unwrap();
        assert!(n == 0 || n == PAGE, "{n} bytes at {at}");
        if n > 0
            && let Some(reason) = bad(version_of(&page))
        {
            panic!(
                "page {} reads version {}: {reason}",
                at / PAGE,
                version_of(&page)
            );
        }
    }
}

/// Runs `change` for every round while readers of `path` do `read` again and again, each with its number.
fn beside_readers(rounds: u64, mut change: impl FnMut(u64), read: impl Fn(usize) + Sync) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|n| {
                let (ended, read) = (&ended, &read);
                scope.spawn(move || {
                    while !ended.load(Ordering::SeqCst) {
                        read(n);
                    }
                })
            })
            .collect();
        for round in 1..=rounds {
            if readers.iter().any(|r| r.is_finished()) {
                break;
            }
            change(round);
        }
        ended.store(true, Ordering::SeqCst);
    });
}

#[test]
fn an_open_sees_what_another_node_published_while_older_pages_are_stored() {
    let Some(h) = two() else { return };
    let (there, here) = (h.mount(0).join("f"), h.mount(1).join("f"));
    fs::write(&there, version(1)).unwrap();
    let published = AtomicU64::new(1);
    let write = |round: u64| {
        let f = open_to_write(&there);
        f.write_all_at(&version(round + 1), 0).unwrap();
        drop(f);
        published.store(round + 1, Ordering::SeqCst);
    };
    beside_readers(40, write, |n| {
        let least = published.load(Ordering::SeqCst);
        let f = File::open(&here).unwrap();
        let bad = |found| (found < least).then(|| format!("{least} was published before the open"));
        read_strided(&f, n, &bad);
    });
}

#[test]
fn a_write_on_the_readers_node_is_seen_at_once_beside_stored_pages() {
    let Some(h) = two() else { return };
    let (there, here) = (h.mount(0).join("f"), h.mount(1).join("f"));
    fs::write(&there, version(1)).unwrap();
    let written = AtomicU64::new(1);
    // Open all the time, so that no open has the kernel drop pages.
    let held: Vec<File> = (0..3).map(|_| File::open(&here).unwrap()).collect();
    let write = |round: u64| {
        let f = open_to_write(&here);
        f.write_all_at(&version(round + 1), 0).unwrap();
        written.store(round + 1, Ordering::SeqCst);
        drop(f);
        // The readers find nothing of it in the kernel, so that there is something to store.
        // SAFETY: a plain call on an open descriptor.
        unsafe { libc::posix_fadvise(held[0].as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    beside_readers(60, write, |n| {
        let f = &held[n];
        let mut page = vec![0; PAGE];
        for at in (n * PAGE..SIZE).step_by(STRIDE * PAGE) {
            let least = written.load(Ordering::SeqCst);
            f.read_exact_at(&mut page, at as u64).unwrap();
            // A read beside a write may see some of each.
            let (numbers, _) = page.as_chunks::<8>();
            let found = numbers.iter().map(|n| u64::from_ne_bytes(*n)).min();
            let found = found.unwrap();
            assert!(
                found >= least,
                "at {at}: version {found}, but {least} was written"
            );
        }
    });
}

#[test]
fn what_was_cut_off_on_the_readers_node_is_not_stored_again() {
    let Some(h) = two() else { return };
    let (there, here) = (h.mount(0).join("f"), h.mount(1).join("f"));
    fs::write(&there, version(1)).unwrap();
    let cut = AtomicU64::new(0);
    let change = |round: u64| {
        truncate(&here, 0).unwrap();
        cut.store(round, Ordering::SeqCst);
        truncate(&here, SIZE as i64).unwrap();
        assert_eq!(fs::metadata(&here).unwrap().len(), SIZE as u64);
        fs::write(&there, version(round + 1)).unwrap();
    };
    beside_readers(40, change, |n| {
        let f = File::open(&here).unwrap();
        let before = cut.load(Ordering::SeqCst);
        let bad = |found| {
            (found > 0 && found <= before).then(|| format!("{before} was cut off before the read"))
        };
        read_strided(&f, n, &bad);
    });
}

#[test]
fn an_fsync_shows_a_strided_reader_what_was_published_before() {
    let Some(h) = two() else { return };
    let (there, here) = (h.mount(0).join("f"), h.mount(1).join("f"));
    fs::write(&there, version(1)).unwrap();
    let f = File::open(&here).unwrap();
    for number in 1..10 {
        let exactly = |found| (found != number).then(|| format!("instead of {number}"));
        read_strided(&f, 1, &exactly);
        let writer = open_to_write(&there);
        writer.write_all_at(&version(number + 1), 0).unwrap();
        drop(writer);
        f.sync_all().unwrap();
    }
}

#[test]
fn a_file_that_was_laminated_and_is_written_again_is_read_anew() {
    let Some(h) = two() else { return };
    let (there, here) = (h.mount(0).join("f"), h.mount(1).join("f"));
    let chmod = |mode| fs::set_permissions(&there, PermissionsExt::from_mode(mode)).unwrap();
    for number in 1..5 {
        fs::write(&there, version(number)).unwrap();
        let exactly = |found| (found != number).then(|| format!("instead of {number}"));
        for _ in 0..2 {
            read_strided(&File::open(&here).unwrap(), 1, &exactly);
            chmod(0o444);
        }
        chmod(0o644);
    }
}
