//! A kernel that keeps dirty pages (a service of one member), and where it must not.
use crate::common::{
    Harness, Map, Setup, has_fuse, has_program, open, open_to_write, role_apart, sh,
};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const PIECE: usize = 64 << 10;

/// Writes a new file, syncs and closes nothing, and says whether the service has its bytes.
fn arrive_at_once(file: &Path, append: bool) -> bool {
    let f = OpenOptions::new()
        .create_new(true)
        .write(true)
        .append(append)
        .open(file);
    let mut f = f.unwrap();
    f.write_all(&[7; PIECE]).unwrap();
    f.metadata().unwrap().blocks() * 512 >= PIECE as u64
}

#[test]
fn written_bytes_stay_in_the_kernel_of_one_member_alone() {
    for (nodes, posix, write_back) in [
        (2, false, true),
        (1, true, true),
        (1, false, false),
        (1, false, true),
    ] {
        let Some(h) = Harness::start(Setup {
            nodes,
            posix,
            write_back,
            ..Setup::default()
        }) else {
            return;
        };
        let keeps = nodes == 1 && !posix && write_back;
        let mut kept = 0;
        for (n, m) in h.all().iter().enumerate() {
            for append in [false, true] {
                for k in 0..10 {
                    let file = m.join(format!("{n}-{append}-{k}"));
                    kept += u32::from(!arrive_at_once(&file, append));
                }
            }
        }
        // A sync of another program may come between, so not all need be kept.
        assert_eq!(kept > 0, keeps, "{nodes} {posix} {write_back}: {kept}");
    }
}

#[test]
fn a_handle_for_writing_alone_writes_parts_of_pages() {
    let Some(mut h) = Harness::alone() else {
        return;
    };
    let mut bytes = seeded_bytes(31, 10 << 10);
    fs::write(h.mount(0).join("f"), &bytes).unwrap();
    h.stop();
    h.serve().unwrap();
    let f = open_to_write(&h.mount(0).join("f"));
    for (at, len) in [(5000, 100), (1, 1), (10_239, 1), (4096, 4095)] {
        bytes[at..at + len].fill(at as u8);
        f.write_all_at(&bytes[at..at + len], at as u64).unwrap();
    }
    f.write_all_at(b"behind a hole", 20_000).unwrap();
    drop(f);
    bytes.resize(20_000, 0);
    bytes.extend(b"behind a hole");
    h.stop();
    h.serve().unwrap();
    assert!(fs::read(h.mount(0).join("f")).unwrap() == bytes);
}

#[test]
fn appended_bytes_go_behind_those_that_the_kernel_keeps() {
    let Some(mut h) = Harness::alone() else {
        return;
    };
    let path = h.mount(0).join("log");
    let mut appending = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    let beside = open_to_write(&path);
    let mut expected: Vec<u8> = Vec::new();
    for n in 0..200u32 {
        let line = seeded_bytes(n.into(), 1 + n as usize * 7 % 900);
        appending.write_all(&line).unwrap();
        expected.extend(&line);
        if n % 3 == 0 {
            let at = expected.len() as u64;
            beside.write_all_at(b"beside", at).unwrap();
            expected.extend(b"beside");
        }
        if n == 150 {
            expected.truncate(5001);
            beside.set_len(5001).unwrap();
        }
    }
    assert!(fs::read(&path).unwrap() == expected);
    drop((appending, beside));
    h.stop();
    h.serve().unwrap();
    assert!(fs::read(&path).unwrap() == expected);
}

/// Seconds and nanoseconds.
fn mtime(path: &Path) -> (i64, i64) {
    let seen = fs::metadata(path).unwrap();
    (seen.mtime(), seen.mtime_nsec())
}

#[test]
fn times_are_those_of_the_changes_and_not_of_their_way_to_the_service() {
    let Some(mut h) = Harness::alone() else {
        return;
    };
    let m = h.mount(0);
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let later = || std::thread::sleep(Duration::from_millis(30));
    let names = [
        "written",
        "set",
        "set-between",
        "renamed",
        "linked",
        "mode",
        "mapped",
        "cut",
        "emptied",
        "grown",
        "punched",
    ];
    for name in names {
        let path = m.join(name);
        let f = open(&path);
        f.write_all_at(&[1; 10_000], 0).unwrap();
        later();
        match name {
            "set" => f.set_times(FileTimes::new().set_modified(past)).unwrap(),
            "set-between" => {
                f.set_times(FileTimes::new().set_modified(past)).unwrap();
                later();
                f.write_all_at(&[2; 100], 500).unwrap();
            }
            "renamed" => {
                fs::rename(&path, m.join("other")).unwrap();
                fs::rename(m.join("other"), &path).unwrap();
            }
            "linked" => fs::hard_link(&path, m.join("again")).unwrap(),
            "mode" => {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                f.set_permissions(mode).unwrap();
            }
            "mapped" => {
                let mut map = Map::new(&f, 10_000, libc::MAP_SHARED).unwrap();
                map.bytes()[9_000..9_006].copy_from_slice(b"mapped");
            }
            "cut" => f.set_len(777).unwrap(),
            "emptied" => drop(File::create(&path).unwrap()),
            "grown" => f.set_len(20_000).unwrap(),
            "punched" => {
                let punch =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&f, punch, 0, 4096).unwrap();
            }
            _ => {}
        }
        later();
        drop(f);
    }
    let seen = names.map(|name| mtime(&m.join(name)));
    let set = seen[1];
    assert_eq!(set, (1_000_000_000, 123_456_789));
    // A time set through a name, when the kernel knows another.
    let set_by_name = FileTimes::new().set_modified(past + Duration::from_secs(5));
    File::open(m.join("written"))
        .unwrap()
        .set_times(set_by_name)
        .unwrap();
    h.stop();
    h.serve().unwrap();
    for (name, seen) in names.iter().zip(seen).skip(1) {
        assert_eq!(mtime(&m.join(name)), seen, "{name}");
    }
    assert_eq!(mtime(&m.join("written")), (1_000_000_005, 123_456_789));
}

#[test]
fn a_removed_file_is_written_and_closed_without_an_error() {
    let Some(mut h) = Harness::alone() else {
        return;
    };
    let m = h.mount(0);
    for n in 0..100 {
        let path = m.join(format!("f{n}"));
        let f = open(&path);
        f.write_all_at(&[1; 5000], 0).unwrap();
        fs::remove_file(&path).unwrap();
        f.write_all_at(&[2; 5000], 5000).unwrap();
        f.sync_all().unwrap();
        f.write_all_at(&[3; 5000], 10_000).unwrap();
        // The standard library says nothing of a close that fails.
        close(f);
    }
    sh(&m, "for i in $(seq 200); do echo $i > r$i; done; rm r*");
    let said = h.stop();
    assert!(
        said.contains("STOPPED") && !said.contains("STOP "),
        "{said}"
    );
}

/// Closes a file and fails the test if that fails.
fn close(f: File) {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor was this file's alone, and is used no more.
    assert_eq!(unsafe { libc::close(f.into_raw_fd()) }, 0);
}

/// The user `nobody`, who runs the server.
const OWNER: u32 = 65534;

/// Does the work of a role of this module; `false`: there is no such role.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        ("users-mount", [dir]) => users_mount(Path::new(dir)),
        _ => return false,
    }
    true
}

#[test]
fn the_kernels_own_thread_hands_over_times_on_a_users_mount() {
    let root = rustix::process::geteuid().is_root();
    let programs = ["setpriv", "unshare", "fusermount3"];
    if !root || !has_fuse() || !programs.iter().all(|p| has_program(p)) {
        eprintln!("skipped: only root can make a place for an ordinary user with /dev/fuse");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _turn = turns::shared();
    let out = role_apart("users-mount", &[dir.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if said.contains("SKIP") {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(
        out.status.success() && said.contains("TIMES KEPT"),
        "{said}"
    );
}

/// In a mount namespace of its own, where all may use `/dev/fuse`.
fn users_mount(dir: &Path) {
    let prepare = "mkdir dev && mount -t tmpfs users dev && mknod -m 666 dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse";
    let prepared = Command::new("sh")
        .args(["-c", prepare])
        .current_dir(dir)
        .output()
        .unwrap();
    let as_owner = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={OWNER}"), format!("--regid={OWNER}")]);
        command
            .args(["--clear-groups", "sh", "-ec", script])
            .output()
            .unwrap()
    };
    let exe = std::env::current_exe().unwrap();
    let reach = as_owner(&format!("test -x {} && test -w /dev/fuse", exe.display()));
    if !prepared.status.success() || !reach.status.success() {
        return println!("SKIP: no world of its own here: {prepared:?}, {reach:?}");
    }
    let mut h = Harness::start(Setup {
        nodes: 1,
        nobody: true,
        ..Setup::default()
    })
    .unwrap();
    let file = h.mount(0).join("f");
    let file = file.display();
    let run = |script: &str| {
        let out = as_owner(script);
        assert!(out.status.success(), "{script}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    // Another writes and syncs all, which has the kernel's thread hand over the time, as root.
    let script = format!(
        "exec 3>> {file}; echo one >&3; echo two >&3; sleep 0.1; sync; sleep 0.5; stat -c %.9Y {file}; exec 3>&-; stat -c %.9Y {file}"
    );
    let seen = run(&script);
    let times: Vec<&str> = seen.lines().collect();
    assert_eq!(times[0], times[1]);
    h.kill();
    h.serve().unwrap();
    assert_eq!(
        run(&format!("stat -c %.9Y {file}; cat {file}")),
        format!("{}\none\ntwo\n", times[1])
    );
    println!("TIMES KEPT");
}
