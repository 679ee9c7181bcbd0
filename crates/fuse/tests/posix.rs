//! What POSIX says about files, asked through the kernel.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Harness, Setup, errno, pattern, run, sh, soak};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom, Timespec, Timestamps,
};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

#[test]
fn roles() {
    common::roles(|_, _| false);
}

#[test]
fn names_and_their_errors() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(1);
    fs::create_dir(m.join("d")).unwrap();
    fs::write(m.join("d/f"), "x").unwrap();
    assert_eq!(errno(File::open(m.join("none"))), libc::ENOENT);
    assert_eq!(errno(fs::create_dir(m.join("d"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(m.join("d"))), libc::ENOTEMPTY);
    assert_eq!(
        errno(OpenOptions::new().write(true).open(m.join("d"))),
        libc::EISDIR
    );
    assert_eq!(errno(File::open(m.join("d/f/g"))), libc::ENOTDIR);
    assert_eq!(errno(fs::remove_dir(m.join("d/f"))), libc::ENOTDIR);
    assert_eq!(errno(fs::remove_file(m.join("d"))), libc::EISDIR);
    assert_eq!(
        errno(fs::write(m.join("n".repeat(256)), "")),
        libc::ENAMETOOLONG
    );
    fs::write(m.join("n".repeat(255)), "long").unwrap();
    assert_eq!(fs::read(h.mount(2).join("n".repeat(255))).unwrap(), b"long");
    assert_eq!(
        errno(
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(m.join("d/f"))
        ),
        libc::EEXIST
    );
    assert_eq!(errno(fs::hard_link(m.join("d"), m.join("e"))), libc::EPERM);
    assert_eq!(errno(fs::rename(m.join("d"), m.join("d/e"))), libc::EINVAL);
    std::os::unix::fs::symlink("loop", m.join("loop")).unwrap();
    assert_eq!(errno(File::open(m.join("loop"))), libc::ELOOP);
    assert_eq!(
        errno(
            OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_TMPFILE)
                .open(&m)
        ),
        libc::EOPNOTSUPP
    );
    assert_eq!(
        errno(rustix::fs::mknodat(
            CWD,
            m.join("dev"),
            FileType::CharacterDevice,
            Mode::RUSR,
            0
        )),
        libc::EPERM
    );
    assert_eq!(errno(truncate(&m.join("none"), 0)), libc::ENOENT);
}

/// `truncate` by path; the standard library has only the one by handle.
fn truncate(path: &Path, len: i64) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a valid C string for the length of the call.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn renames_replace_exchange_and_refuse() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let with = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, m.join(from), CWD, m.join(to), flags)
    };
    fs::write(m.join("a"), "a").unwrap();
    fs::write(m.join("b"), "b").unwrap();
    assert_eq!(errno(with("a", "b", RenameFlags::NOREPLACE)), libc::EEXIST);
    with("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.join("a")).unwrap(), b"b");
    fs::rename(m.join("a"), m.join("b")).unwrap();
    assert_eq!(fs::read(m.join("b")).unwrap(), b"b");
    assert_eq!(errno(fs::read(m.join("a"))), libc::ENOENT);
    fs::create_dir_all(m.join("d1/sub")).unwrap();
    fs::create_dir(m.join("d2")).unwrap();
    fs::rename(m.join("d1"), m.join("d2")).unwrap();
    assert!(m.join("d2/sub").is_dir());
    File::open(m.join("d2")).unwrap().sync_all().unwrap();
    fs::create_dir(m.join("d3")).unwrap();
    assert_eq!(
        errno(fs::rename(m.join("d3"), m.join("d2"))),
        libc::ENOTEMPTY
    );
    assert_eq!(errno(fs::rename(m.join("b"), m.join("d3"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(m.join("d3"), m.join("b"))), libc::ENOTDIR);
    assert_eq!(errno(with("b", "z", RenameFlags::WHITEOUT)), libc::EINVAL);
    // A file that stays open through a rename over it keeps its own bytes.
    fs::write(m.join("old"), "old").unwrap();
    fs::write(m.join("new"), "new").unwrap();
    let open = File::open(m.join("old")).unwrap();
    fs::rename(m.join("new"), m.join("old")).unwrap();
    assert_eq!(fs::read(m.join("old")).unwrap(), b"new");
    let mut kept = String::new();
    (&open).read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "old");
    for other in h.all() {
        assert_eq!(fs::read(other.join("old")).unwrap(), b"new");
        assert!(other.join("d2/sub").is_dir());
    }
}

#[test]
fn links_share_a_file() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(3);
    fs::create_dir(m.join("d")).unwrap();
    fs::write(m.join("f"), "one").unwrap();
    fs::hard_link(m.join("f"), m.join("d/g")).unwrap();
    assert_eq!(fs::metadata(m.join("f")).unwrap().nlink(), 2);
    fs::write(m.join("d/g"), "two").unwrap();
    assert_eq!(fs::read(h.mount(0).join("f")).unwrap(), b"two");
    fs::remove_file(m.join("f")).unwrap();
    assert_eq!(fs::metadata(h.mount(1).join("d/g")).unwrap().nlink(), 1);
    let target = "../somewhere/".to_string() + &"x".repeat(1000);
    std::os::unix::fs::symlink(&target, m.join("s")).unwrap();
    assert_eq!(
        fs::read_link(h.mount(2).join("s"))
            .unwrap()
            .to_str()
            .unwrap(),
        target
    );
    assert_eq!(
        fs::symlink_metadata(m.join("s")).unwrap().len(),
        target.len() as u64
    );
    assert_eq!(fs::metadata(m.join("d")).unwrap().nlink(), 2);
    fs::create_dir(m.join("d/sub")).unwrap();
    assert_eq!(fs::metadata(m.join("d")).unwrap().nlink(), 3);
}

#[test]
fn appends_of_many_processes_on_all_nodes_lose_nothing() {
    let Some(h) = Harness::four() else { return };
    let lines = 50;
    let script = format!(
        "i=0; while [ $i -lt {lines} ]; do echo \"$0 $i of a line\" >> log; i=$((i+1)); done"
    );
    let writers: Vec<_> = (0..8)
        .map(|w| {
            let name = format!("writer{w}");
            std::process::Command::new("sh")
                .args(["-e", "-c", &script, &name])
                .current_dir(h.mount(w % 4))
                .spawn()
                .unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let expected: BTreeSet<String> = (0..8)
        .flat_map(|w| (0..lines).map(move |i| format!("writer{w} {i} of a line")))
        .collect();
    for m in h.all() {
        let text = fs::read_to_string(m.join("log")).unwrap();
        assert_eq!(text.lines().count(), expected.len());
        assert_eq!(
            text.lines().map(str::to_string).collect::<BTreeSet<_>>(),
            expected
        );
    }
}

#[test]
fn sparse_files_above_four_gibibytes() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let far = 5 << 30;
    let f = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(m.join("s"))
        .unwrap();
    f.write_all_at(b"start", 0).unwrap();
    f.write_all_at(b"end", far).unwrap();
    assert_eq!(f.metadata().unwrap().len(), far + 3);
    assert!(
        f.metadata().unwrap().blocks() * 512 < 1 << 20,
        "holes take no room"
    );
    let mut hole = vec![1; 4096];
    f.read_exact_at(&mut hole, 1 << 32).unwrap();
    assert!(hole.iter().all(|b| *b == 0));
    f.sync_all().unwrap();
    let g = File::open(h.mount(3).join("s")).unwrap();
    let mut end = [0; 3];
    g.read_exact_at(&mut end, far).unwrap();
    assert_eq!(&end, b"end");
    let hole = rustix::fs::seek(&g, SeekFrom::Hole(0)).unwrap();
    assert!((5..=4096).contains(&hole), "{hole}");
    let data = rustix::fs::seek(&g, SeekFrom::Data(1 << 20)).unwrap();
    assert!(data > far - 4096 && data <= far, "{data}");
    assert_eq!(rustix::fs::seek(&g, SeekFrom::Hole(far)).unwrap(), far + 3);
    assert_eq!(
        errno(rustix::fs::seek(&g, SeekFrom::Data(far + 3))),
        libc::ENXIO
    );
    assert_eq!(rustix::fs::seek(&g, SeekFrom::End(0)).unwrap(), far + 3);
}

#[test]
fn truncate_both_ways_reads_zeros() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(2);
    let path = m.join("t");
    let bytes = pattern(1, 300_000);
    fs::write(&path, &bytes).unwrap();
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    f.set_len(100_001).unwrap();
    f.set_len(200_000).unwrap();
    let mut expected = bytes[..100_001].to_vec();
    expected.resize(200_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    truncate(&h.mount(1).join("t"), 50).unwrap();
    assert_eq!(fs::read(&path).unwrap(), &bytes[..50]);
    assert_eq!(fs::read(h.mount(0).join("t")).unwrap(), &bytes[..50]);
    drop(
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap(),
    );
    assert_eq!(fs::metadata(h.mount(3).join("t")).unwrap().len(), 0);
}

#[test]
fn holes_are_punched_zeroed_and_reserved() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(1).join("p");
    let mut bytes = pattern(2, 1 << 20);
    fs::write(&path, &bytes).unwrap();
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    rustix::fs::fallocate(
        &f,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        100_000,
        300_000,
    )
    .unwrap();
    bytes[100_000..400_000].fill(0);
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 1_000_000, 100_000).unwrap();
    bytes.resize(1_100_000, 0);
    bytes[1_000_000..].fill(0);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 2_000_000, 100_000).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 1_100_000);
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 1_100_000, 50_000).unwrap();
    bytes.resize(1_150_000, 0);
    assert!(fs::read(&path).unwrap() == bytes);
    f.sync_all().unwrap();
    assert!(fs::read(h.mount(2).join("p")).unwrap() == bytes);
    assert_eq!(
        errno(rustix::fs::fallocate(
            &f,
            FallocateFlags::COLLAPSE_RANGE,
            0,
            4096
        )),
        libc::EOPNOTSUPP
    );
}

#[test]
fn direct_io_and_copies_inside_the_kernel() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let bytes = pattern(3, 3 << 20);
    // O_DIRECT: no alignment is asked for.
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(m.join("d"))
        .unwrap();
    f.write_all_at(&bytes, 0).unwrap();
    let mut back = vec![0; bytes.len()];
    f.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes);
    // A cached reader on the same node sees a direct writer.
    assert!(fs::read(m.join("d")).unwrap() == bytes);
    f.write_all_at(b"changed", 5000).unwrap();
    let mut seen = [0; 7];
    File::open(m.join("d"))
        .unwrap()
        .read_exact_at(&mut seen, 5000)
        .unwrap();
    assert_eq!(&seen, b"changed");
    f.write_all_at(&bytes[5000..5007], 5000).unwrap();
    f.sync_all().unwrap();
    let copy = File::create(m.join("c")).unwrap();
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() as u64 {
        let n = rustix::fs::copy_file_range(&f, Some(&mut from), &copy, Some(&mut to), bytes.len())
            .unwrap();
        assert!(n > 0);
    }
    drop(copy);
    assert!(fs::read(h.mount(1).join("c")).unwrap() == bytes);
    let source = File::open(m.join("c")).unwrap();
    let sent = File::create(m.join("s")).unwrap();
    let mut offset = 0;
    while offset < bytes.len() as u64 {
        assert!(rustix::fs::sendfile(&sent, &source, Some(&mut offset), bytes.len()).unwrap() > 0);
    }
    drop(sent);
    assert!(fs::read(h.mount(3).join("s")).unwrap() == bytes);
}

#[test]
fn mappings_shared_and_private() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(1);
    let path = m.join("map");
    let mut bytes = pattern(4, 100_000);
    fs::write(&path, &bytes).unwrap();
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    {
        let mut map = Map::new(&f, bytes.len(), libc::MAP_SHARED).unwrap();
        assert!(map.bytes() == &bytes[..]);
        map.bytes()[70_000..70_005].copy_from_slice(b"remap");
        bytes[70_000..70_005].copy_from_slice(b"remap");
        // The file ends its own life before the mapping does: the pages must still arrive.
        drop(f);
        map.bytes()[10..15].copy_from_slice(b"after");
        bytes[10..15].copy_from_slice(b"after");
    }
    assert!(fs::read(&path).unwrap() == bytes);
    // Releasing the mapping published it; the release is asynchronous, an open-and-close is not.
    drop(OpenOptions::new().write(true).open(&path).unwrap());
    assert!(fs::read(h.mount(2).join("map")).unwrap() == bytes);
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut map = Map::new(&f, bytes.len(), libc::MAP_PRIVATE).unwrap();
    map.bytes()[0] ^= 1;
    assert!(fs::read(&path).unwrap() == bytes);
    // A mapping next to a handle for appending: its pages belong at their offset, not at the end.
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    let mut shared = Map::new(&f, bytes.len(), libc::MAP_SHARED).unwrap();
    shared.bytes()[50..54].copy_from_slice(b"page");
    bytes[50..54].copy_from_slice(b"page");
    log.write_all(b"tail").unwrap();
    shared.sync();
    drop((shared, log, f));
    bytes.extend_from_slice(b"tail");
    assert!(fs::read(&path).unwrap() == bytes);
}

/// A mapping of a file's start.
struct Map(*mut u8, usize);

impl Map {
    fn new(f: &File, len: usize, how: i32) -> std::io::Result<Map> {
        use std::os::fd::AsRawFd;
        // SAFETY: a new mapping at an address the kernel chooses; the file is open for reading and writing.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                how,
                f.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(Map(at.cast(), len))
        }
    }
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `1` bytes long and lives as long as `self`; nothing else in this process touches it.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
    fn sync(&self) {
        // SAFETY: the mapping is whole and ours.
        let synced = unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) };
        assert_eq!(synced, 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no slice of it can be alive.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// How large a value is, asked with no room for it (which `rustix` answers itself).
fn value_size(path: &Path, name: &str) -> isize {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: both strings live through the call; with size 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) }
}

#[test]
fn extended_attributes() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(0).join("x");
    fs::write(&path, "x").unwrap();
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    let mut buffer = [0u8; 64];
    assert_eq!(
        errno(getxattr(&path, "user.a", &mut buffer[..])),
        libc::ENODATA
    );
    setxattr(&path, "user.a", b"first", XattrFlags::CREATE).unwrap();
    assert_eq!(
        errno(setxattr(&path, "user.a", b"second", XattrFlags::CREATE)),
        libc::EEXIST
    );
    assert_eq!(
        errno(setxattr(&path, "user.b", b"second", XattrFlags::REPLACE)),
        libc::ENODATA
    );
    setxattr(&path, "user.a", b"second", XattrFlags::REPLACE).unwrap();
    setxattr(&path, "user.b", b"", XattrFlags::empty()).unwrap();
    let other = h.mount(3).join("x");
    let n = getxattr(&other, "user.a", &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..n], b"second");
    assert_eq!(getxattr(&other, "user.b", &mut buffer[..]).unwrap(), 0);
    assert_eq!(value_size(&other, "user.a"), 6);
    assert_eq!(
        errno(getxattr(&other, "user.a", &mut [0u8; 3][..])),
        libc::ERANGE
    );
    let n = listxattr(&other, &mut buffer[..]).unwrap();
    let names: BTreeSet<&[u8]> = buffer[..n]
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .collect();
    assert_eq!(names, [&b"user.a"[..], &b"user.b"[..]].into());
    removexattr(&other, "user.a").unwrap();
    assert_eq!(errno(removexattr(&path, "user.a")), libc::ENODATA);
    let big = pattern(5, 60_000);
    setxattr(&path, "user.big", &big, XattrFlags::empty()).unwrap();
    let mut back = vec![0; 65536];
    let n = getxattr(&other, "user.big", &mut back[..]).unwrap();
    assert!(back[..n] == big[..]);
    // A capability that the kernel finds well-formed: revision 2, no bits.
    let mut capability = [0u8; 20];
    capability[3] = 2;
    let set = setxattr(
        &path,
        "security.capability",
        &capability,
        XattrFlags::empty(),
    );
    if rustix::process::geteuid().is_root() {
        assert_eq!(errno(set), libc::EOPNOTSUPP);
    }
}

#[test]
fn fifos_and_sockets() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(2);
    let out = sh(
        &m,
        "mkfifo pipe; echo through > pipe & cat pipe; wait; stat -c %F pipe",
    );
    assert_eq!(out, "through\nfifo\n");
    assert_eq!(sh(&h.mount(1), "stat -c %F pipe"), "fifo\n");
    std::env::set_current_dir(&m).unwrap();
    // A short path, as socket names are limited.
    let listener = std::os::unix::net::UnixListener::bind("sock").unwrap();
    let mut client = std::os::unix::net::UnixStream::connect("sock").unwrap();
    std::env::set_current_dir("/").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(sh(&h.mount(0), "stat -c %F sock"), "socket\n");
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(m.join("u"))
        .unwrap();
    f.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(m.join("u")).unwrap();
    assert_eq!(errno(File::open(m.join("u"))), libc::ENOENT);
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    f.write_all_at(b"there", 6).unwrap();
    f.sync_all().unwrap();
    let mut text = vec![0; 11];
    f.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"still there");
    // Removed on another node while open on this one.
    fs::write(m.join("v"), "kept").unwrap();
    let mut v = File::open(m.join("v")).unwrap();
    fs::remove_file(h.mount(3).join("v")).unwrap();
    let mut text = String::new();
    v.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
    fs::create_dir(m.join("empty")).unwrap();
    fs::remove_dir(h.mount(2).join("empty")).unwrap();
    assert_eq!(errno(fs::read_dir(m.join("empty"))), libc::ENOENT);
}

#[test]
fn large_directories() {
    let Some(h) = Harness::four() else { return };
    let count = if soak() { 100_000 } else { 20_000 };
    let dir = h.mount(0).join("big");
    fs::create_dir(&dir).unwrap();
    for n in 0..count {
        rustix::fs::mknodat(
            CWD,
            dir.join(format!("entry-{n}")),
            FileType::RegularFile,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
    }
    for m in [1, 0] {
        let names: BTreeSet<_> = fs::read_dir(h.mount(m).join("big"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), count);
        assert!(names.contains("entry-0") && names.contains(&format!("entry-{}", count - 1)));
    }
    // Deleting while listing: every name is met.
    let mut removed = 0;
    for entry in fs::read_dir(h.mount(2).join("big")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, count);
    fs::remove_dir(h.mount(3).join("big")).unwrap();
}

#[test]
fn times_modes_and_owners() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(0).join("t");
    fs::write(&path, "").unwrap();
    let set = |secs, nanos| {
        let t = Timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        rustix::fs::utimensat(
            CWD,
            &path,
            &Timestamps {
                last_access: t,
                last_modification: t,
            },
            AtFlags::empty(),
        )
    };
    for (secs, nanos) in [
        (0, 0),
        (-2, 800_000_000),
        (1, 999_999_999),
        (-1, 0),
        (1 << 33, 1),
        (i64::MAX, 0),
        (i64::MIN, 0),
        (i64::MIN + 1, 5),
    ] {
        set(secs, nanos).unwrap();
        for m in [0, 2] {
            let meta = fs::metadata(h.mount(m).join("t")).unwrap();
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (secs, nanos));
            assert_eq!((meta.atime(), meta.atime_nsec()), (secs, nanos));
        }
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
    assert_eq!(
        fs::metadata(h.mount(1).join("t")).unwrap().mode() & 0o7777,
        0o4755
    );
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let meta = fs::metadata(h.mount(3).join("t")).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o7777),
            (12, 34, 0o755)
        );
    }
    let before = fs::metadata(&path).unwrap();
    fs::write(&path, "new").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert!(after.mtime() > before.mtime());
    let space = rustix::fs::statvfs(&path).unwrap();
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks && space.f_namemax == 255);
}

#[test]
fn a_service_of_one_member_caches_names() {
    let Some(h) = Harness::start(Setup {
        nodes: 1,
        ..Setup::default()
    }) else {
        return;
    };
    let m = h.mount(0);
    assert_eq!(errno(fs::metadata(m.join("soon"))), libc::ENOENT);
    fs::write(m.join("soon"), "now").unwrap();
    assert_eq!(fs::read(m.join("soon")).unwrap(), b"now");
    fs::rename(m.join("soon"), m.join("later")).unwrap();
    assert_eq!(errno(fs::metadata(m.join("soon"))), libc::ENOENT);
    assert_eq!(fs::metadata(m.join("later")).unwrap().len(), 3);
    let mut f = OpenOptions::new()
        .append(true)
        .open(m.join("later"))
        .unwrap();
    f.write_all(b" and then").unwrap();
    assert_eq!(fs::read(m.join("later")).unwrap(), b"now and then");
}

#[test]
fn data_survives_a_restart() {
    let Some(mut h) = Harness::four() else { return };
    let bytes = pattern(6, 5_000_000);
    for (n, m) in h.all().iter().enumerate() {
        fs::create_dir(m.join(format!("d{n}"))).unwrap();
        fs::write(m.join(format!("d{n}/f")), &bytes[n..]).unwrap();
    }
    let said = h.stop();
    assert!(
        said.contains("STOPPED") && !said.contains("STOP "),
        "{said}"
    );
    h.serve().unwrap();
    for (n, m) in h.all().iter().enumerate() {
        for k in 0..4 {
            assert!(
                fs::read(m.join(format!("d{k}/f"))).unwrap() == bytes[k..],
                "file {k} through mount {n}"
            );
        }
    }
    // Committed data survives a killed server, too; the dead mounts are cleared away by the next one.
    fs::write(h.mount(1).join("last"), "words").unwrap();
    h.kill();
    h.serve().unwrap();
    assert_eq!(fs::read(h.mount(2).join("last")).unwrap(), b"words");
}

#[test]
fn two_handles_on_one_node_commit_in_write_order() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(0).join("w");
    fs::write(&path, "....").unwrap();
    let older = OpenOptions::new().write(true).open(&path).unwrap();
    let newer = OpenOptions::new().write(true).open(&path).unwrap();
    older.write_all_at(b"old!", 0).unwrap();
    newer.write_all_at(b"NEW", 0).unwrap();
    drop(newer);
    drop(older);
    assert_eq!(fs::read(h.mount(1).join("w")).unwrap(), b"NEW!");
}

#[test]
fn programs_run_from_the_mount() {
    let Some(h) = Harness::four() else { return };
    fs::copy("/bin/echo", h.mount(0).join("echo")).unwrap();
    assert_eq!(
        run(&h.mount(1), h.mount(1).join("echo"), &["hello"]),
        "hello\n"
    );
}
