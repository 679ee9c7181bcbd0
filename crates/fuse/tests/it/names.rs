//! What POSIX says about names and attributes, asked through the kernel.
use crate::common::{Harness, Setup, errno, sh, truncate};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::{seeds, turns};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

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
    assert_eq!(errno(truncate(&m.join("none"), 0)), libc::ENOENT);
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
    let big = seeded_bytes(5, 60_000);
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
    // The working directory is the process's.
    let _turn = turns::exclusive();
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
fn large_directories() {
    let Some(h) = Harness::four() else { return };
    let count = seeds::count(8_000, 100_000);
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

/// Whether this user may make device files: root may, unless a container keeps it from that.
fn makes_devices() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (path, kind) = (dir.path().join("null"), FileType::CharacterDevice);
    let may = rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR, rustix::fs::makedev(1, 3)).is_ok();
    if !may {
        eprintln!("skipped: this user may not make device files");
    }
    may
}

#[test]
fn device_files_are_made_listed_and_archived_and_do_not_open() {
    if !makes_devices() {
        return;
    }
    let Some(mut h) = Harness::four() else { return };
    let m = h.mount(1);
    let devices = [
        ("null", FileType::CharacterDevice, (1, 3)),
        ("disk", FileType::BlockDevice, (4095, 1_048_575)),
    ];
    fs::create_dir(m.join("d")).unwrap();
    for (name, kind, (major, minor)) in devices {
        let mode = Mode::from_raw_mode(0o640);
        let number = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, m.join("d").join(name), kind, mode, number).unwrap();
        std::os::unix::fs::chown(m.join("d").join(name), Some(12), Some(34)).unwrap();
    }
    let all_right = |dir: &Path| {
        let listed: BTreeSet<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| {
                (
                    e.file_name(),
                    FileType::from_raw_mode(e.metadata().unwrap().mode()),
                )
            })
            .map(|(name, kind)| format!("{name:?} {kind:?}"))
            .collect();
        assert_eq!(listed.len(), devices.len(), "{listed:?}");
        for (name, kind, (major, minor)) in devices {
            let meta = fs::symlink_metadata(dir.join(name)).unwrap();
            let number = rustix::fs::makedev(major, minor);
            assert_eq!(FileType::from_raw_mode(meta.mode()), kind, "{dir:?} {name}");
            assert_eq!((meta.rdev(), meta.mode() & 0o7777), (number, 0o640));
            assert_eq!((meta.uid(), meta.gid(), meta.len()), (12, 34, 0));
        }
    };
    for mount in h.all() {
        all_right(&mount.join("d"));
        // The mount is `nodev`, whoever asks.
        assert_eq!(errno(File::open(mount.join("d/null"))), libc::EACCES);
    }
    // Out to a plain directory and in again, by the programs that people use.
    let plain = tempfile::tempdir().unwrap();
    let (out, root) = (plain.path().to_str().unwrap(), m.to_str().unwrap());
    sh(&m, &format!("tar cf {out}/archive d && cp -a d {out}/copy"));
    all_right(&plain.path().join("copy"));
    sh(
        &m,
        &format!("mkdir tar && tar xpf {out}/archive -C tar && cp -a {out}/copy copied"),
    );
    all_right(&m.join("tar/d"));
    all_right(&m.join("copied"));
    if crate::common::has_program("rsync") {
        sh(
            plain.path(),
            &format!("rsync -aH {root}/d/ r && rsync -aH r/ {root}/r"),
        );
        all_right(&plain.path().join("r"));
        all_right(&m.join("r"));
    }
    assert_eq!(h.stop(), "STOPPED\n");
    h.serve().unwrap();
    let m = h.mount(3);
    all_right(&m.join("d"));
    fs::hard_link(m.join("d/null"), m.join("again")).unwrap();
    fs::rename(m.join("again"), m.join("d/disk")).unwrap();
    assert_eq!(
        fs::symlink_metadata(h.mount(0).join("d/disk"))
            .unwrap()
            .nlink(),
        2
    );
    fs::remove_dir_all(m.join("d")).unwrap();
}

/// Linux passes `O_TMPFILE` on to FUSE from 6.2 on.
fn kernel_passes_tmpfile() -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 2) {
        eprintln!("skipped: Linux {release} knows no O_TMPFILE on FUSE");
    }
    version >= (6, 2)
}

/// A file in `dir` without a name.
fn unnamed(dir: &Path, also: i32) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640);
    options.custom_flags(libc::O_TMPFILE | also).open(dir)
}

/// Gives an open file a name.
fn name(file: &File, to: &Path) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

#[test]
fn a_file_without_a_name_gets_one_and_is_whole_everywhere() {
    if !kernel_passes_tmpfile() {
        return;
    }
    let Some(mut h) = Harness::four() else { return };
    let content = seeded_bytes(7, 300_000);
    for (n, mount) in h.all().iter().enumerate() {
        let dir = mount.join(format!("of{n}"));
        fs::create_dir(&dir).unwrap();
        let mut file = unnamed(&dir, 0).unwrap();
        file.write_all(&content).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.nlink(), meta.len()), (0, content.len() as u64));
        assert_eq!(meta.mode(), libc::S_IFREG | 0o640);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        name(&file, &dir.join("first")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        // Directories lie with members: some of these with another one than the file.
        for other in 0..4 {
            fs::create_dir_all(mount.join(format!("also{other}"))).unwrap();
            name(&file, &mount.join(format!("also{other}/{n}"))).unwrap();
        }
        assert_eq!(errno(name(&file, &dir.join("first"))), libc::EEXIST);
        drop(file);
        for other in h.all() {
            let path = other.join(format!("of{n}/first"));
            assert_eq!(fs::metadata(&path).unwrap().nlink(), 5);
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }
    // A name that is taken is no reason to lose the file.
    let file = unnamed(&h.mount(2), 0).unwrap();
    for taken in 0..4 {
        let taken = h.mount(2).join(format!("also{taken}/0"));
        assert_eq!(errno(name(&file, &taken)), libc::EEXIST);
    }
    name(&file, &h.mount(2).join("also3/free")).unwrap();
    drop(file);
    assert_eq!(h.stop(), "STOPPED\n");
    h.serve().unwrap();
    for n in 0..4 {
        assert_eq!(fs::read(h.mount(n).join("also1/3")).unwrap(), content);
        fs::remove_file(h.mount(n).join(format!("of{n}/first"))).unwrap();
        for also in 0..4 {
            fs::remove_file(h.mount(n).join(format!("also{also}/{n}"))).unwrap();
        }
    }
}

#[test]
fn a_file_that_never_gets_a_name_goes_with_its_last_close_or_its_server() {
    if !kernel_passes_tmpfile() {
        return;
    }
    let Some(mut h) = Harness::four() else { return };
    let m = h.mount(1);
    fs::create_dir(m.join("d")).unwrap();
    let file = unnamed(&m.join("d"), libc::O_EXCL).unwrap();
    assert_eq!(errno(name(&file, &m.join("d/never"))), libc::ENOENT);
    // What has lost its last name, here or through another mount, gets none again.
    fs::write(m.join("was"), "x").unwrap();
    let open = File::open(m.join("was")).unwrap();
    fs::remove_file(h.mount(3).join("was")).unwrap();
    assert_eq!(errno(name(&open, &m.join("again"))), libc::ENOENT);
    assert_eq!(errno(unnamed(&m.join("was"), 0)), libc::ENOENT);
    assert_eq!(errno(unnamed(&m.join("none"), 0)), libc::ENOENT);
    drop((file, open));
    // Removing the directory that it was made in does not touch it; nor does it keep that from going.
    let mut file = unnamed(&m.join("d"), 0).unwrap();
    fs::remove_dir(m.join("d")).unwrap();
    file.write_all(b"still here").unwrap();
    name(&file, &m.join("kept")).unwrap();
    drop(file);
    assert_eq!(fs::read(h.mount(0).join("kept")).unwrap(), b"still here");
    let mut lost = unnamed(&m, 0).unwrap();
    lost.write_all(&seeded_bytes(3, 1 << 20)).unwrap();
    lost.sync_all().unwrap();
    h.kill();
    h.serve().unwrap();
    drop(lost);
    assert_eq!(fs::read(h.mount(0).join("kept")).unwrap(), b"still here");
    assert_eq!(fs::read_dir(h.mount(2)).unwrap().count(), 1);
    assert_eq!(h.stop(), "STOPPED\n");
    let io = std::sync::Arc::new(forebay_storage::OsIo);
    let found = forebay_server::fsck::check(
        io,
        &[h.store()],
        forebay_server::fsck::ByteCheck::Bytes,
        &mut |_| {},
    )
    .unwrap();
    assert!(found.is_sound(), "{found:?}");
}

#[test]
fn with_one_member_a_file_without_a_name_is_shown_as_it_is() {
    if !kernel_passes_tmpfile() {
        return;
    }
    let setup = Setup {
        nodes: 1,
        ..Setup::default()
    };
    let Some(h) = Harness::start(setup) else {
        return;
    };
    let m = h.mount(0);
    // The kernel keeps names and attributes here, also that there is no such name.
    assert_eq!(errno(fs::metadata(m.join("f"))), libc::ENOENT);
    let mut file = unnamed(&m, 0).unwrap();
    file.write_all(b"text").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    name(&file, &m.join("f")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    name(&file, &m.join("g")).unwrap();
    assert_eq!(fs::metadata(m.join("f")).unwrap().nlink(), 2);
    assert_eq!(fs::read(m.join("g")).unwrap(), b"text");
    fs::remove_file(m.join("f")).unwrap();
    fs::remove_file(m.join("g")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(errno(name(&file, &m.join("f"))), libc::ENOENT);
}
