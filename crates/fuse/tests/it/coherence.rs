//! What the kernel keeps of files and directories is never older than what the mount promises: sizes under locks, calls
//! that read the page cache without asking, direct writes beside buffered readers, directories that another node moved.
use crate::common::{Harness, Setup, open, start_role};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::turns;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        // Works in a directory; asked, says where that is now and what the file in it holds.
        ("inside", [directory]) => {
            std::env::set_current_dir(directory).unwrap();
            println!("\nREADY");
            let _ = std::io::stdin().read(&mut [0]);
            let here = std::env::current_dir().unwrap();
            println!("\n{} {}", here.display(), fs::read_to_string("f").unwrap());
            true
        }
        _ => false,
    }
}

fn nodes(nodes: u16, posix: bool) -> Option<Harness> {
    Harness::start(Setup {
        nodes,
        posix,
        ..Setup::default()
    })
}

/// Locks or unlocks the whole file for this open file (OFD), waiting.
fn lock(f: &File, typ: i32) {
    // SAFETY: `flock` is plain data, and zero is the whole file; it outlives the call on an open descriptor.
    let done = unsafe {
        let mut l: libc::flock = std::mem::zeroed();
        l.l_type = typ as i16;
        libc::fcntl(f.as_raw_fd(), libc::F_OFD_SETLKW, &l)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn locked<T>(f: &File, act: impl FnOnce(&File) -> T) -> T {
    lock(f, libc::F_WRLCK);
    let done = act(f);
    lock(f, libc::F_UNLCK);
    done
}

/// What one `pread` of so many bytes gives.
fn read_at(f: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xA5; len];
    let read = f.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(read);
    bytes
}

/// A file outside the mounts.
fn plain() -> File {
    tempfile::tempfile().unwrap()
}

fn contents(mut f: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    f.seek(SeekFrom::Start(0)).unwrap();
    f.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Ways of reading that the kernel serves from its page cache, up to the size that it knows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Sendfile,
    Splice,
    Copy,
}

const WAYS: [Way; 3] = [Way::Sendfile, Way::Splice, Way::Copy];

/// All that `way` reads of `f` from its start, as a program does that goes on until it is told of the end.
fn all_by(way: Way, f: &File, scratch: &Path) -> std::io::Result<Vec<u8>> {
    const STEP: usize = 64 << 10;
    let out = match way {
        // On the same mount, or it is no copy of the file system's.
        Way::Copy => open(scratch),
        _ => plain(),
    };
    let mut offset: libc::loff_t = 0;
    loop {
        // SAFETY: the descriptors are open and `offset` lives through each call.
        let moved = unsafe {
            match way {
                Way::Sendfile => {
                    libc::sendfile(out.as_raw_fd(), f.as_raw_fd(), &raw mut offset, STEP)
                }
                Way::Copy => libc::copy_file_range(
                    f.as_raw_fd(),
                    &raw mut offset,
                    out.as_raw_fd(),
                    std::ptr::null_mut(),
                    STEP,
                    0,
                ),
                Way::Splice => {
                    let mut ends = [0; 2];
                    assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                    let [from, to] = ends;
                    let null = std::ptr::null_mut();
                    let moved = libc::splice(f.as_raw_fd(), &raw mut offset, to, null, STEP, 0);
                    let error = std::io::Error::last_os_error();
                    let mut left = moved;
                    while left > 0 {
                        let on = libc::splice(from, null, out.as_raw_fd(), null, left as usize, 0);
                        assert!(on > 0, "{}", std::io::Error::last_os_error());
                        left -= on;
                    }
                    libc::close(from);
                    libc::close(to);
                    if moved < 0 {
                        return Err(error);
                    }
                    moved
                }
            }
        };
        match moved {
            0 => return Ok(contents(out)),
            n if n < 0 => return Err(std::io::Error::last_os_error()),
            _ => {}
        }
    }
}

#[test]
fn a_lock_shows_how_short_a_file_has_become() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    const LONG: usize = 8 << 20;
    let mut wrong = Vec::new();
    for round in 0..40 {
        let name = format!("f{round}");
        let a = open(&h.mount(0).join(&name));
        let bytes = seeded_bytes(round, LONG);
        a.write_all_at(&bytes, 0).unwrap();
        a.sync_all().unwrap();
        let b = open(&h.mount(1).join(&name));
        assert_eq!(b.metadata().unwrap().len(), LONG as u64);
        locked(&a, |a| a.set_len(1000).unwrap());
        let seen = locked(&b, |b| read_at(b, 0, LONG));
        if seen != bytes[..1000] {
            wrong.push(seen.len());
        }
        // Of a part that is gone nothing is left.
        let a = open(&h.mount(0).join(&name));
        locked(&a, |a| a.set_len(100).unwrap());
        let seen = locked(&b, |b| read_at(b, 500, 100));
        assert_eq!(seen, b"", "round {round}");
    }
    assert!(wrong.is_empty(), "of 1000 bytes were read: {wrong:?}");
}

/// Node 0 writes the file anew again and again, each time node 1 sees it in every way: it is what was written.
fn each_way_sees_what_was_written(
    h: &Harness,
    write: impl Fn(&[u8]),
    see: impl Fn(Way, &Path) -> Vec<u8>,
) {
    let mut wrong = Vec::new();
    // Grown, overwritten, cut, grown again.
    for (round, len) in [300_000, 300_000, 4096, 5000, 1, 0, 200_000]
        .into_iter()
        .enumerate()
    {
        for (n, way) in WAYS.into_iter().enumerate() {
            let number = round * 3 + n;
            let bytes = seeded_bytes(number as u64, len);
            write(&bytes);
            let seen = see(way, &h.mount(1).join(format!("scratch{number}")));
            if seen != bytes {
                wrong.push((round, way, bytes.len(), seen.len()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "round, way, bytes there, bytes seen: {wrong:?}"
    );
}

/// Writes the whole file anew.
fn rewrite(f: &File, bytes: &[u8]) {
    f.set_len(bytes.len() as u64).unwrap();
    f.write_all_at(bytes, 0).unwrap();
}

#[test]
fn calls_that_read_the_page_cache_see_under_a_lock_what_read_does() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    let (a, b) = (open(&h.mount(0).join("f")), open(&h.mount(1).join("f")));
    let write = |bytes: &[u8]| locked(&a, |a| rewrite(a, bytes));
    let see = |way, scratch: &Path| locked(&b, |b| all_by(way, b, scratch).unwrap());
    each_way_sees_what_was_written(&h, write, see);
}

#[test]
fn calls_that_read_the_page_cache_see_every_write_in_posix_consistency() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, true) else { return };
    let (a, b) = (open(&h.mount(0).join("f")), open(&h.mount(1).join("f")));
    let write = |bytes: &[u8]| {
        rewrite(&a, bytes);
        assert!(read_at(&b, 0, bytes.len() + 1) == bytes);
    };
    let see = |way, scratch: &Path| all_by(way, &b, scratch).unwrap();
    each_way_sees_what_was_written(&h, write, see);
}

#[test]
fn many_writers_on_two_nodes_in_posix_consistency_do_not_wait_for_each_other_for_ever() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, true) else { return };
    // More writers than threads that answer a mount's requests, each also with the other node's file open.
    const WRITERS: usize = 12;
    let writers: Vec<_> = (0..2 * WRITERS)
        .map(|n| {
            let (node, n) = (n % 2, n / 2);
            let own = h.mount(node).join(format!("f{n}"));
            let read = h.mount(node).join(format!("f{}", (n + 1) % WRITERS));
            std::thread::spawn(move || {
                let (own, read) = (open(&own), open(&read));
                for round in 0..20u64 {
                    let bytes = seeded_bytes(round, 5000);
                    // A wait that does not end is cut off by the service's deadline, with an error.
                    own.write_all_at(&bytes, node as u64 * 5000).unwrap();
                    if round % 5 == 0 {
                        // Brings pages of the other file into the cache.
                        all_by(Way::Sendfile, &read, Path::new("")).unwrap();
                        own.set_len(10_000 + round).unwrap();
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    for n in 0..WRITERS {
        let expected = [seeded_bytes(19, 5000), seeded_bytes(19, 5000), vec![0; 15]].concat();
        for m in h.all() {
            assert!(fs::read(m.join(format!("f{n}"))).unwrap() == expected);
        }
    }
}

/// Bytes of one direct write.
const WRITE: usize = 128 << 10;
/// Direct writes under way at once.
const WRITES: usize = 8;

#[repr(align(4096))]
struct Aligned([u8; WRITE]);

/// Linux's asynchronous I/O.
struct Aio(libc::c_ulong);

#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

impl Aio {
    fn new() -> Aio {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context is written by the call and lives through it.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, WRITES, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        Aio(context)
    }

    /// Submits writes one behind the other from the file's start, and waits until all are done.
    fn write(&self, f: &File, parts: &[Box<Aligned>]) {
        let mut requests: Vec<Iocb> = (0..)
            .zip(parts)
            .map(|(n, part)| Iocb {
                opcode: 1,
                fildes: f.as_raw_fd() as u32,
                buf: part.0.as_ptr() as u64,
                nbytes: WRITE as u64,
                offset: n * WRITE as i64,
                ..Iocb::default()
            })
            .collect();
        let list: Vec<_> = requests.iter_mut().map(|r| &raw mut *r).collect();
        let mut events = [[0u64; 4]; WRITES];
        let all = list.len() as libc::c_long;
        // SAFETY: requests, buffers and events live until all writes are done, which the second call waits for.
        unsafe {
            let sent = libc::syscall(libc::SYS_io_submit, self.0, all, list.as_ptr());
            assert_eq!(sent, all, "{}", std::io::Error::last_os_error());
            let for_ever = std::ptr::null_mut::<libc::timespec>();
            let into = events.as_mut_ptr();
            let done = libc::syscall(libc::SYS_io_getevents, self.0, all, all, into, for_ever);
            assert_eq!(done, all, "{}", std::io::Error::last_os_error());
        }
        let written = |event: &[u64; 4]| event[2] == WRITE as u64;
        assert!(events[..list.len()].iter().all(written), "{events:?}");
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: a context that `new` made, with nothing under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Threads that read all of a file through the page cache, page by page, as long as it lives.
struct Readers(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Readers {
    fn start(path: &Path, len: usize) -> Readers {
        let ended = Arc::new(AtomicBool::new(false));
        let threads = (0..2u64).map(|n| {
            let (f, ended) = (File::open(path).unwrap(), ended.clone());
            let mut rng = Random::new(n);
            std::thread::spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    let at = rng.below(len as u64 / 4096) * 4096;
                    f.read_at(&mut [0; 4096], at).unwrap();
                }
            })
        });
        Readers(ended.clone(), threads.collect())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

/// `reader_first`: a reader has the file open before the writer opens it.
fn asynchronous_direct_writes_beside_a_buffered_reader(members: u16, reader_first: bool) {
    let Some(h) = nodes(members, false) else {
        return;
    };
    let path = h.mount(0).join("f");
    fs::write(&path, vec![0; WRITES * WRITE]).unwrap();
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(libc::O_DIRECT);
    let first = reader_first.then(|| File::open(&path).unwrap());
    let direct = options.open(&path).unwrap();
    let look = first.unwrap_or_else(|| File::open(&path).unwrap());
    let readers = Readers::start(&path, WRITES * WRITE);
    let aio = Aio::new();
    let mut old = Vec::new();
    for round in 0..60u64 {
        let part = |n: u64| {
            seeded_bytes(round * WRITES as u64 + n, WRITE)
                .try_into()
                .unwrap()
        };
        let parts: Vec<_> = (0..WRITES as u64)
            .map(|n| Box::new(Aligned(part(n))))
            .collect();
        aio.write(&direct, &parts);
        for (n, part) in (0..).zip(&parts) {
            if read_at(&look, n * WRITE as u64, WRITE) != part.0 {
                old.push((round, n));
            }
        }
    }
    drop(readers);
    assert!(
        old.is_empty(),
        "after these writes bytes from before them were read: {old:?}"
    );
}

#[test]
fn asynchronous_direct_writes_are_seen_by_a_buffered_reader() {
    let _turn = turns::exclusive();
    asynchronous_direct_writes_beside_a_buffered_reader(2, true);
}

#[test]
fn asynchronous_direct_writes_are_seen_by_a_buffered_reader_that_came_later() {
    let _turn = turns::exclusive();
    asynchronous_direct_writes_beside_a_buffered_reader(2, false);
}

#[test]
fn asynchronous_direct_writes_are_seen_by_a_buffered_reader_of_a_service_of_one_member() {
    let _turn = turns::exclusive();
    asynchronous_direct_writes_beside_a_buffered_reader(1, true);
}

#[test]
fn an_append_behind_what_another_node_appended_is_seen_at_once_on_its_node() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    let append = |m: usize| {
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true);
        options.open(h.mount(m).join("log")).unwrap()
    };
    let (mut a, mut b) = (append(0), append(1));
    let look = File::open(h.mount(1).join("log")).unwrap();
    let mut expected = Vec::new();
    for round in 0..10 {
        let part = |n: u64| seeded_bytes(round * 2 + n, 3000);
        a.write_all(&part(0)).unwrap();
        a.sync_all().unwrap();
        b.write_all(&part(1)).unwrap();
        expected.extend(part(0));
        expected.extend(part(1));
        for way in [Way::Sendfile, Way::Splice] {
            let seen = all_by(way, &look, Path::new("")).unwrap();
            assert_eq!(seen.len(), expected.len(), "{way:?}, round {round}");
            assert!(seen == expected, "{way:?}, round {round}");
        }
    }
}

#[test]
fn a_directory_moved_on_one_node_can_be_moved_on_another() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(3, false) else { return };
    let mut failed = Vec::new();
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2)] {
        let top = format!("t{from}{to}");
        let at = |n: usize, rest: &str| h.mount(n).join(&top).join(rest);
        fs::create_dir_all(at(from, "a/x/deep")).unwrap();
        fs::create_dir(at(from, "b")).unwrap();
        for m in 0..3 {
            assert!(fs::metadata(at(m, "a/x/deep")).unwrap().is_dir());
        }
        fs::rename(at(from, "a/x"), at(from, "b/y")).unwrap();
        if let Err(e) = fs::rename(at(to, "b/y"), at(to, "a/z")) {
            failed.push((from, to, e));
            continue;
        }
        for m in 0..3 {
            assert!(fs::metadata(at(m, "a/z/deep")).unwrap().is_dir());
            assert!(fs::metadata(at(m, "a/x")).is_err());
            assert!(fs::metadata(at(m, "b/y")).is_err());
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_directory_moved_elsewhere_can_be_moved_by_descriptors_of_its_parents() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    let at = |n: usize, rest: &str| h.mount(n).join(rest);
    fs::create_dir_all(at(0, "a/x/deep")).unwrap();
    fs::create_dir(at(0, "b")).unwrap();
    // Such a call looks up nothing that it does not hold locked.
    let (a, b) = (
        File::open(at(1, "a")).unwrap(),
        File::open(at(1, "b")).unwrap(),
    );
    let mut failed = Vec::new();
    for round in 0..10 {
        assert!(fs::metadata(at(1, "a/x/deep")).unwrap().is_dir());
        fs::rename(at(0, "a/x"), at(0, "b/y")).unwrap();
        // SAFETY: the descriptors are open, and the names are whole for the length of the call.
        let moved =
            unsafe { libc::renameat(b.as_raw_fd(), c"y".as_ptr(), a.as_raw_fd(), c"x".as_ptr()) };
        if moved != 0 {
            failed.push((round, std::io::Error::last_os_error()));
            fs::rename(at(0, "b/y"), at(0, "a/x")).unwrap();
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_directory_that_is_in_use_here_and_moved_elsewhere_can_be_moved_here() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    let at = |n: usize, rest: &str| h.mount(n).join(rest);
    fs::create_dir_all(at(0, "a/x/deep")).unwrap();
    fs::create_dir(at(0, "b")).unwrap();
    fs::write(at(0, "a/x/deep/f"), b"content").unwrap();
    // A working directory inside it, and an open file.
    let (mut shell, mut lines) = start_role("inside", &[at(1, "a/x/deep").to_str().unwrap()]);
    assert!(lines.any(|line| line == "READY"));
    let open = File::open(at(1, "a/x/deep/f")).unwrap();
    fs::rename(at(0, "a/x"), at(0, "b/y")).unwrap();
    fs::rename(at(1, "b/y"), at(1, "a/z")).unwrap();
    assert_eq!(contents(open), b"content");
    drop(shell.stdin.take());
    let told: Vec<String> = lines.collect();
    let path = fs::canonicalize(at(1, "a/z/deep")).unwrap();
    let path = format!("{} content", path.display());
    assert!(told.contains(&path), "{told:?}");
    assert!(shell.wait().unwrap().success());
}

#[test]
fn directories_that_two_nodes_move_at_once_are_neither_lost_nor_doubled() {
    let _turn = turns::exclusive();
    let Some(h) = nodes(2, false) else { return };
    fs::create_dir_all(h.mount(0).join("a")).unwrap();
    fs::create_dir_all(h.mount(0).join("b")).unwrap();
    for n in 0..4 {
        fs::create_dir_all(h.mount(0).join(format!("a/x{n}/deep"))).unwrap();
    }
    // Each node takes directories from wherever they are: one of two that take the same finds nothing there.
    let movers: Vec<_> = h
        .all()
        .into_iter()
        .zip(0u64..)
        .map(|(mount, seed)| {
            std::thread::spawn(move || {
                let mut rng = Random::new(seed);
                let mut moved = 0;
                for _ in 0..300 {
                    let name = format!("x{}", rng.below(4));
                    let (from, to) = *rng.pick(&[("a", "b"), ("b", "a")]);
                    let from = mount.join(from).join(&name);
                    match fs::rename(from, mount.join(to).join(&name)) {
                        Ok(()) => moved += 1,
                        Err(e) => match e.raw_os_error() {
                            // ESTALE: it was moved twice while this call looked for it.
                            Some(libc::ENOENT | libc::ESTALE) => {}
                            _ => panic!("seed {seed}: {e}"),
                        },
                    }
                }
                moved
            })
        })
        .collect();
    let moved: Vec<u32> = movers.into_iter().map(|m| m.join().unwrap()).collect();
    assert!(moved.iter().all(|moved| *moved > 0), "{moved:?}");
    for n in 0..4 {
        for m in h.all() {
            let there = |at: &str| m.join(at).join(format!("x{n}/deep")).is_dir();
            assert!(there("a") != there("b"), "x{n}");
        }
    }
}
