//! A service of one member: what programs are promised holds whether the kernel keeps dirty pages (the writeback cache) or sends each
//! write at once. What was written is looked at through a server that was started again, so that no cache of the kernel answers.
mod bypass;
mod programs;
mod room;
mod times;
mod writer;

use crate::common::{Harness, Map, Setup, create_new, errno, open_to_write, role, truncate};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::turns;
use forebay_testkit::wait::until;
use rustix::fs::FallocateFlags;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use writer::{close, used};

const MIB: usize = 1 << 20;

/// Both ways in which a service of one member may be mounted.
const WAYS: [Setup; 2] = [Setup::ALONE, Setup::ALONE_WRITE_THROUGH];

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        // Appends records of its own, through one handle or, every tenth, through a new one.
        ("appender", [path, number, records]) => {
            let append = || OpenOptions::new().append(true).open(path).unwrap();
            let mut file = append();
            for n in 0..records.parse().unwrap() {
                if n % 10 == 0 {
                    file = append();
                }
                file.write_all(record(number.parse().unwrap(), n).as_bytes())
                    .unwrap();
            }
        }
        // Opens a file for writing and does what it is told, a line at a time; says what became of it.
        ("writer", [path]) => writer::run(Path::new(path)),
        // Serves a store with one mount, and uses it around the mount as it is told.
        ("library", [store, mount, write_back]) => {
            bypass::serve(Path::new(store), Path::new(mount), *write_back == "true");
        }
        // Writes file after file until it is told to end.
        ("dirtier", [directory, number]) => programs::dirtier(Path::new(directory), number),
        _ => return false,
    }
    true
}

fn record(writer: u64, n: u64) -> String {
    format!("{writer:03} {n:08} {}\n", "x".repeat(85))
}

/// Whether this kernel can keep dirty pages of a mount: Linux 6.6 and later.
fn keeps_dirty_pages() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_str().unwrap();
    let mut parts = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < (6, 6) {
        eprintln!(
            "skipped: Linux {release} does not offer what the writeback cache needs; 6.6 does"
        );
    }
    version >= (6, 6)
}

#[test]
fn two_members_never_leave_written_bytes_in_the_kernel() {
    let _turn = turns::exclusive();
    const LEN: u64 = 64 << 10;
    let bytes = seeded_bytes(1, LEN as usize);
    // How many bytes more a service has when a write has returned, by mount and kind of handle.
    let risen = |setup: Setup| {
        let h = Harness::start(setup)?;
        let mut risen = Vec::new();
        for (n, m) in h.all().into_iter().enumerate() {
            for append in [false, true] {
                let mut options = OpenOptions::new();
                let options = options.write(true).append(append).create_new(true);
                let mut file = options.open(m.join(format!("f{n}{append}"))).unwrap();
                let before = used(&m);
                file.write_all(&bytes).unwrap();
                risen.push(used(&m) - before);
            }
        }
        Some(risen)
    };
    let two = Setup {
        nodes: 2,
        ..Setup::ALONE
    };
    let posix = |setup| Setup {
        posix: true,
        ..setup
    };
    for setup in [
        two,
        posix(two),
        posix(Setup::ALONE),
        Setup::ALONE_WRITE_THROUGH,
    ] {
        let Some(risen) = risen(setup) else { return };
        assert!(risen.iter().all(|r| *r >= LEN), "{setup:?}: {risen:?}");
    }
    if keeps_dirty_pages() {
        // The control: else the look at the used space would show nothing.
        let risen = risen(Setup::ALONE).unwrap();
        assert!(risen.contains(&0), "{risen:?}");
    }
}

#[test]
fn appends_by_many_processes_of_one_member_lose_nothing() {
    const WRITERS: u64 = 8;
    const RECORDS: u64 = 500;
    const HEAD: usize = 10_000;
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let path = h.mount(0).join("log");
        fs::write(&path, "of before, longer than the head".repeat(1000)).unwrap();
        // Emptied by a process that has it open for writing alone and keeps it so: its handle is one that pages may be sent through.
        let first = File::create(&path).unwrap();
        first.write_all_at(&[b'h'; HEAD], 0).unwrap();
        let text = path.to_str().unwrap();
        let mut appenders: Vec<Child> = (0..WRITERS)
            .map(|n| {
                let args = [text, &n.to_string(), &RECORDS.to_string()];
                role("appender", &args)
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        // The head is written again meanwhile, through handles that do not append.
        let mut rng = Random::new(5);
        let mut rounds = 0;
        while appenders
            .iter_mut()
            .any(|a| a.try_wait().unwrap().is_none())
        {
            let (at, byte) = (rng.below(HEAD as u64 - 300), b'a' + rng.below(20) as u8);
            open_to_write(&path).write_all_at(&[byte; 300], at).unwrap();
            rounds += 1;
        }
        for mut appender in appenders {
            assert!(appender.wait().unwrap().success());
        }
        first.write_all_at(&[b'H'; HEAD], 0).unwrap();
        drop(first);
        let look = |h: &Harness| {
            let text = fs::read(h.mount(0).join("log")).unwrap();
            let (head, records) = text.split_at(HEAD);
            assert!(head.iter().all(|b| *b == b'H'), "{setup:?}");
            let mut found: Vec<&str> = std::str::from_utf8(records).unwrap().lines().collect();
            found.sort_unstable();
            let all = (0..WRITERS).flat_map(|w| (0..RECORDS).map(move |n| record(w, n)));
            let all: Vec<String> = all.collect();
            let all: Vec<&str> = all.iter().map(|r| r.trim_end()).collect();
            assert!(found == all, "{setup:?}: {} of {}", found.len(), all.len());
        };
        look(&h);
        h.restart();
        look(&h);
        // Cut inside a record, and appended behind that.
        truncate(&path, HEAD as i64 + 50).unwrap();
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"tail")
            .unwrap();
        h.restart();
        let end = fs::read(&path).unwrap();
        assert_eq!((end.len(), &end[HEAD + 50..]), (HEAD + 54, &b"tail"[..]));
        println!("{setup:?}: {rounds} rounds");
    }
}

#[test]
fn sizes_follow_truncates_between_kept_pages() {
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let path = h.mount(0).join("f");
        let mut model = Vec::new();
        let put = |model: &mut Vec<u8>, f: &File, at: usize, len: usize, seed| {
            let bytes = seeded_bytes(seed, len);
            f.write_all_at(&bytes, at as u64).unwrap();
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&bytes);
        };
        let same = |model: &[u8], what: &str| {
            assert_eq!(
                fs::metadata(&path).unwrap().len(),
                model.len() as u64,
                "{what}"
            );
            assert!(fs::read(&path).unwrap() == *model, "{setup:?}: {what}");
        };
        let f = create_new(&path);
        put(&mut model, &f, 0, MIB, 1);
        truncate(&path, 300_001).unwrap();
        model.truncate(300_001);
        same(&model, "cut by path");
        put(&mut model, &f, 700_000, 5000, 2);
        same(&model, "written behind the cut");
        f.set_len(2_000_001).unwrap();
        model.resize(2_000_001, 0);
        put(&mut model, &f, 1_999_000, 50, 3);
        same(&model, "made longer by handle");
        f.set_len(700_100).unwrap();
        f.set_len(900_000).unwrap();
        model.truncate(700_100);
        model.resize(900_000, 0);
        same(&model, "cut inside what is written, and made longer");
        let second = File::create(&path).unwrap();
        model.clear();
        same(&model, "emptied by a second open");
        put(&mut model, &f, 100, 100, 4);
        put(&mut model, &second, 5000, 1, 5);
        same(&model, "written by both");
        drop((f, second));
        same(&model, "closed");
        h.restart();
        same(&model, "after a restart");
    }
}

#[test]
fn random_sizes_and_writes_of_one_file_agree_with_a_model() {
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        for seed in 0..4 {
            let name = format!("f{seed}");
            let path = h.mount(0).join(&name);
            let (mut rng, mut model) = (Random::new(seed), Vec::<u8>::new());
            let mut handles = vec![create_new(&path)];
            for step in 0..150 {
                let n = rng.index(handles.len());
                let (f, far) = (&handles[n], 400_000);
                match rng.below(10) {
                    0..=4 => {
                        let (at, len) = (rng.index(far), 1 + rng.index(9000));
                        let bytes = seeded_bytes(rng.next(), len);
                        f.write_all_at(&bytes, at as u64).unwrap();
                        model.resize(model.len().max(at + len), 0);
                        model[at..at + len].copy_from_slice(&bytes);
                    }
                    5 => {
                        let len = rng.index(far);
                        f.set_len(len as u64).unwrap();
                        model.resize(len, 0);
                    }
                    6 => {
                        let (at, len) = (rng.index(far), 1 + rng.index(50_000));
                        let how = *rng.pick(&[
                            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                            FallocateFlags::ZERO_RANGE,
                            FallocateFlags::empty(),
                        ]);
                        rustix::fs::fallocate(f, how, at as u64, len as u64).unwrap();
                        if !how.contains(FallocateFlags::KEEP_SIZE) {
                            model.resize(model.len().max(at + len), 0);
                        }
                        if how != FallocateFlags::empty() {
                            let end = model.len().min(at + len);
                            model[at.min(end)..end].fill(0);
                        }
                    }
                    7 => f.sync_all().unwrap(),
                    8 if handles.len() < 4 => {
                        let direct = *rng.pick(&[0, libc::O_DIRECT]);
                        let mut options = OpenOptions::new();
                        let options = options.read(true).write(true).custom_flags(direct);
                        handles.push(options.open(&path).unwrap());
                    }
                    _ if handles.len() > 1 => drop(handles.swap_remove(n)),
                    _ => {}
                }
                let seen = fs::read(&path).unwrap();
                assert_eq!(
                    seen.len(),
                    model.len(),
                    "{setup:?}, seed {seed}, step {step}"
                );
                assert!(seen == model, "{setup:?}, seed {seed}, step {step}");
                let len = handles[0].metadata().unwrap().len();
                assert_eq!(
                    len,
                    model.len() as u64,
                    "{setup:?}, seed {seed}, step {step}"
                );
            }
            drop(handles);
            h.restart();
            let seen = fs::read(h.mount(0).join(&name)).unwrap();
            assert!(seen == model, "{setup:?}, seed {seed}, after a restart");
        }
    }
}

#[test]
fn unlinking_a_written_file_leaves_no_error() {
    for setup in WAYS {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        let m = h.mount(0);
        let f = create_new(&m.join("f"));
        f.write_all_at(&[1; 100_000], 0).unwrap();
        fs::remove_file(m.join("f")).unwrap();
        f.write_all_at(&[2; 100_000], 50_000).unwrap();
        f.sync_all().unwrap();
        f.write_all_at(&[3; 10], 0).unwrap();
        let mut back = [0; 10];
        f.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, [3; 10]);
        close(f).unwrap();
        // Many that have just been written, with another handle open or not.
        for n in 0..1000 {
            let path = m.join(format!("n{n}"));
            let f = create_new(&path);
            f.write_all_at(&[n as u8; 3000], 0).unwrap();
            let kept = (n % 3 == 0).then(|| File::open(&path).unwrap());
            if n % 2 == 0 {
                fs::remove_file(&path).unwrap();
            }
            close(f).unwrap();
            if n % 2 == 1 {
                fs::remove_file(&path).unwrap();
            }
            kept.map_or(Ok(()), close).unwrap();
        }
        assert_eq!(fs::read_dir(&m).unwrap().count(), 0, "{setup:?}");
    }
}

#[repr(align(4096))]
struct Aligned([u8; 65536]);

#[test]
fn direct_mapped_copied_and_kept_bytes_agree() {
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let path = h.mount(0).join("f");
        let mut model = seeded_bytes(1, MIB);
        let f = create_new(&path);
        f.write_all_at(&model, 0).unwrap();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let direct = options.open(&path).unwrap();
        let mut buffer = Box::new(Aligned([0; 65536]));
        // Read past the pages that are kept, and written past them.
        direct.read_exact_at(&mut buffer.0, 131_072).unwrap();
        assert!(buffer.0 == model[131_072..][..65536], "{setup:?}");
        f.write_all_at(&[1; 5000], 200_000).unwrap();
        model[200_000..205_000].fill(1);
        buffer.0.fill(2);
        direct.write_all_at(&buffer.0, 196_608).unwrap();
        model[196_608..262_144].fill(2);
        f.write_all_at(&[3; 100], 200_000).unwrap();
        model[200_000..200_100].fill(3);
        assert!(fs::read(&path).unwrap() == model, "{setup:?}: direct");
        // Mapped, beside all that.
        let mut map = Map::new(&f, MIB, libc::MAP_SHARED).unwrap();
        map.bytes()[300_000..300_005].copy_from_slice(b"mapis");
        model[300_000..300_005].copy_from_slice(b"mapis");
        f.write_all_at(b"written", 300_003).unwrap();
        model[300_003..300_010].copy_from_slice(b"written");
        assert!(
            map.bytes() == &model[..],
            "{setup:?}: a mapping shows a write"
        );
        direct.read_exact_at(&mut buffer.0, 294_912).unwrap();
        assert!(
            buffer.0 == model[294_912..][..65536],
            "{setup:?}: a direct read shows a mapping"
        );
        map.sync();
        map.bytes()[0] = 77;
        model[0] = 77;
        // Copied by the kernel, from and to what is kept.
        let other = create_new(&h.mount(0).join("copy"));
        other.write_all_at(&[9; MIB], 0).unwrap();
        let (mut from, mut to, mut left) = (100_000u64, 1000u64, 500_000);
        while left > 0 {
            let n = rustix::fs::copy_file_range(&f, Some(&mut from), &other, Some(&mut to), left);
            left -= n.unwrap();
        }
        let mut copy = vec![9; MIB];
        copy[1000..501_000].copy_from_slice(&model[100_000..600_000]);
        // Punched, in pages that are kept.
        f.write_all_at(&[4; 20_000], 700_000).unwrap();
        model[700_000..720_000].fill(4);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&f, hole, 705_000, 10_000).unwrap();
        model[705_000..715_000].fill(0);
        assert!(
            map.bytes() == &model[..],
            "{setup:?}: a mapping shows a hole"
        );
        drop((map, direct));
        let look = |h: &Harness, what: &str| {
            assert!(
                fs::read(h.mount(0).join("f")).unwrap() == model,
                "{setup:?}: {what}"
            );
            assert!(
                fs::read(h.mount(0).join("copy")).unwrap() == copy,
                "{setup:?}: {what}"
            );
        };
        look(&h, "before they are closed");
        drop((f, other));
        h.restart();
        look(&h, "after a restart");
    }
}

#[test]
fn a_laminated_file_has_no_kept_pages() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    const NAME: &str = "user.forebay.laminated";
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let bytes = seeded_bytes(3, 3 * MIB);
        let state = |path: &Path| {
            let mut buffer = [0u8; 16];
            let n = getxattr(path, NAME, &mut buffer[..]).unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        };
        // Softly: its last write bit goes while it is written; it is laminated once it is closed.
        let soft = h.mount(0).join("soft");
        let f = create_new(&soft);
        f.write_all_at(&bytes[..MIB], 0).unwrap();
        fs::set_permissions(&soft, PermissionsExt::from_mode(0o444)).unwrap();
        assert_eq!(state(&soft), "none");
        f.write_all_at(&bytes[MIB..], MIB as u64).unwrap();
        close(f).unwrap();
        until("the file is laminated", || state(&soft) == "soft");
        // For ever: at once after the close; mapped pages come at the end of the mapping alone.
        let hard = h.mount(0).join("hard");
        let f = create_new(&hard);
        f.write_all_at(&bytes, 0).unwrap();
        let refused = setxattr(&hard, NAME, b"1", XattrFlags::empty());
        assert_eq!(errno(refused), libc::EBUSY);
        let mut map = Map::new(&f, bytes.len(), libc::MAP_SHARED).unwrap();
        close(f).unwrap();
        map.bytes().iter_mut().for_each(|b| *b ^= 1);
        drop(map);
        setxattr(&hard, NAME, b"1", XattrFlags::empty()).unwrap();
        assert_eq!(state(&hard), "hard");
        let opened = OpenOptions::new().write(true).open(&hard);
        let refused = errno(opened);
        assert!(
            [libc::EPERM, libc::EROFS, libc::EACCES].contains(&refused),
            "{refused}"
        );
        h.restart();
        assert!(
            fs::read(h.mount(0).join("soft")).unwrap() == bytes,
            "{setup:?}"
        );
        let mapped: Vec<u8> = bytes.iter().map(|b| b ^ 1).collect();
        assert!(
            fs::read(h.mount(0).join("hard")).unwrap() == mapped,
            "{setup:?}"
        );
    }
}

#[test]
fn a_killed_server_is_told() {
    for setup in WAYS {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let m = h.mount(0);
        let bytes = seeded_bytes(3, MIB);
        let synced = create_new(&m.join("synced"));
        synced.write_all_at(&bytes, 0).unwrap();
        synced.sync_all().unwrap();
        fs::write(m.join("closed"), &bytes).unwrap();
        let open = [0, 1].map(|n| create_new(&m.join(format!("open{n}"))));
        for f in &open {
            f.write_all_at(&bytes, 0).unwrap();
        }
        synced.write_all_at(&[0; 100], 0).unwrap();
        h.kill();
        let [first, second] = open;
        // Not what is said, but that it is: what was written is not there.
        assert!(first.sync_all().is_err(), "{setup:?}");
        assert!(close(second).is_err(), "{setup:?}");
        assert!(synced.sync_all().is_err(), "{setup:?}");
        drop((first, synced));
        h.serve().unwrap();
        let read = fs::read(m.join("synced")).unwrap();
        assert!(read[100..] == bytes[100..], "{setup:?}");
        assert!(read[..100] == bytes[..100] || read[..100] == [0; 100]);
        assert!(fs::read(m.join("closed")).unwrap() == bytes, "{setup:?}");
    }
}
