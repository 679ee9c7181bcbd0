//! Processes that ask for the same through mounts: as a team, by its directory; and each for itself, by plain system calls.
//!
//! The service runs in the test's own process, so that what it did can be counted; only child processes touch the mounts.
use crate::common::{Harness, Setup, has_fuse, has_program, role, role_apart, role_as};
use forebay_client::OpenOptions;
use forebay_client::team_ioctl::RankTeam;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_fuse::{Mount, MountOptions, PendingMount};
use forebay_server::{Config, MemberStatus, Service};
use forebay_storage::OsIo;
use forebay_testkit::turns::{self, Turn};
use forebay_testkit::wait::until;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        ("rank", [mount, here, place]) => {
            rank(
                Path::new(mount),
                here.parse().unwrap(),
                place.parse().unwrap(),
            );
            true
        }
        ("wait", [mount]) => {
            let mut team = RankTeam::join(Path::new(mount), 6, 2, &[]).unwrap();
            ready_go();
            let error = team.stat("/").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            println!("DONE");
            true
        }
        ("stuck", [mount]) => {
            let mut team = RankTeam::join(Path::new(mount), 8, 2, &[]).unwrap();
            ready_go();
            println!("CALLS");
            let _ = team.stat("/");
            println!("ENDED");
            true
        }
        ("plain", [mount]) => {
            plain(Path::new(mount));
            true
        }
        ("town", [dir]) => {
            town(Path::new(dir));
            true
        }
        ("citizen", [mount, here, place]) => {
            citizen(Path::new(mount), here, place);
            true
        }
        ("make", [mount]) => {
            ready_go();
            let mut options = File::options();
            options.read(true).write(true).create(true);
            let file = options.open(Path::new(mount).join("made")).unwrap();
            println!("DONE {}", file.metadata().unwrap().ino());
            let _ = std::io::stdin().read(&mut [0]);
            true
        }
        _ => false,
    }
}

fn ready_go() {
    println!("\nREADY");
    let _ = std::io::stdin().read(&mut [0]);
}

/// A process of a team.
fn rank(mount: &Path, here: u32, place: u64) {
    let mut team = RankTeam::join(mount, 5, here, &[]).unwrap();
    ready_go();
    let how = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o640)
        .clone();
    let file = team.open("/d/shared", &how).unwrap();
    file.write_all_at(&[place as u8 + 1; 100], 100 * place)
        .unwrap();
    let mut own = [0; 100];
    file.read_exact_at(&mut own, 100 * place).unwrap();
    assert_eq!(own, [place as u8 + 1; 100]);
    let all = 100 * 4 * u64::from(here);
    let closed = team.close(file).unwrap();
    let seen = team.stat("/d/shared").unwrap();
    assert_eq!((closed.size, seen.size, seen.mode), (all, all, 0o640));
    assert_eq!(closed.ino, seen.ino);
    // What it read is what plain calls read.
    let again = team
        .open("/d/shared", OpenOptions::new().read(true))
        .unwrap();
    let mut whole = Vec::new();
    (&*again).read_to_end(&mut whole).unwrap();
    let plain = std::fs::read(mount.join("d/shared")).unwrap();
    assert!(whole == plain && whole.len() as u64 == all);
    let meta = again.metadata().unwrap();
    assert_eq!((meta.ino(), meta.len()), (closed.ino, all));
    team.close(again).unwrap();
    // The same errors as anyone alone.
    let there = team.open("/d/shared", &how).unwrap_err();
    assert_eq!(there.raw_os_error(), Some(libc::EEXIST));
    let none = team.stat("/d/none").unwrap_err();
    assert_eq!(none.raw_os_error(), Some(libc::ENOENT));
    let bad = team
        .open("/d/shared", OpenOptions::new().create(true))
        .unwrap_err();
    assert_eq!(bad.raw_os_error(), Some(libc::EINVAL));
    // The directory is nobody's to change, and shows nothing.
    let directory = mount.join(".forebay-teams");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    let listed = std::fs::read_dir(mount)
        .unwrap()
        .map(|e| e.unwrap().file_name());
    assert!(!listed.into_iter().any(|name| name == ".forebay-teams"));
    let inside = directory.join("x");
    for refused in [
        std::fs::write(&inside, "x"),
        std::fs::create_dir(&inside),
        std::fs::rename(mount.join("d"), &inside),
        std::fs::hard_link(mount.join("d/shared"), &inside),
    ] {
        let errno = refused.unwrap_err().raw_os_error();
        assert!(
            matches!(errno, Some(libc::EPERM | libc::EACCES)),
            "{errno:?}"
        );
    }
    // One that is opened and left to the end of the process.
    let left = team
        .open("/d/shared", OpenOptions::new().read(true))
        .unwrap();
    std::mem::forget(left);
    println!("DONE {}", closed.ino);
}

/// A process without a team.
fn plain(mount: &Path) {
    ready_go();
    let file = File::open(mount.join("shared")).unwrap();
    let meta = file.metadata().unwrap();
    println!("DONE {} {}", meta.ino(), meta.len());
    let _ = std::io::stdin().read(&mut [0]);
}

/// What a rank may do, as one line.
fn citizen(mount: &Path, here: &str, place: &str) {
    let errno = |e: std::io::Error| e.raw_os_error().unwrap_or(-1);
    let team = RankTeam::join(mount, 7, here.parse().unwrap(), &[]);
    ready_go();
    let mut team = match team {
        Ok(team) => team,
        Err(e) => return println!("DONE refused {}", errno(e)),
    };
    // A file of their own, one that only the first may read, and one that is nobody's to write.
    let how = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .clone();
    let file = team.open("/all", &how).unwrap();
    file.write_all_at(b"x", place.parse().unwrap()).unwrap();
    let size = team.close(file).unwrap().size;
    let mut heard = vec![size.to_string()];
    for (path, how) in [
        ("/closed/f", OpenOptions::new().read(true).clone()),
        ("/secret", OpenOptions::new().read(true).clone()),
        (
            "/kept",
            OpenOptions::new().write(true).truncate(true).clone(),
        ),
    ] {
        heard.push(match team.open(path, &how) {
            Ok(file) => {
                team.close(file).unwrap();
                "0".into()
            }
            Err(e) => {
                // Who did not get it takes part in the close of those who did.
                let _ = team.stat("/");
                errno(e).to_string()
            }
        });
    }
    println!("DONE {}", heard.join(" "));
}

struct World {
    mounts: Vec<Mount>,
    service: Service,
    faults: Arc<Faults>,
    dir: tempfile::TempDir,
    _turn: Turn,
}

impl World {
    fn start(nodes: u16) -> Option<World> {
        World::hasty(nodes, Duration::from_secs(30))
    }

    fn hasty(nodes: u16, deadline: Duration) -> Option<World> {
        if !has_fuse() {
            return None;
        }
        let turn = turns::shared();
        let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::new(1));
        let config = Config {
            nodes,
            memory: 16 << 20,
            deadline,
            ..Config::default()
        };
        let wrap = |end| faults.wrap(end);
        let store = dir.path().join("store");
        let service = Service::start_over(Arc::new(OsIo), &store, config, wrap).unwrap();
        let mount = |n: u16| {
            let point = dir.path().join(format!("m{n}"));
            std::fs::create_dir(&point).unwrap();
            let pending = PendingMount::mount(point, MountOptions::default()).unwrap();
            pending.answer(service.delegate(n)).unwrap()
        };
        Some(World {
            mounts: (0..nodes).map(mount).collect(),
            service,
            faults,
            dir,
            _turn: turn,
        })
    }

    fn point(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("m{n}"))
    }

    fn status(&self) -> Vec<MemberStatus> {
        self.service.status().unwrap()
    }

    fn stop(self) {
        for mount in self.mounts {
            mount.stop().unwrap();
        }
        self.service.stop().unwrap();
    }
}

/// Processes that wait for each other where they say so.
struct Crowd(Vec<(Child, BufReader<std::process::ChildStdout>)>);

impl Crowd {
    fn start(name: &str, args: impl Iterator<Item = Vec<String>>) -> Crowd {
        Crowd::of(args.map(|args| {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            role(name, &args)
        }))
    }

    fn of(commands: impl Iterator<Item = Command>) -> Crowd {
        let start = |mut command: Command| {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let out = BufReader::new(child.stdout.take().unwrap());
            (child, out)
        };
        Crowd(commands.map(start).collect())
    }

    /// What each says after the word.
    fn hear(&mut self, word: &str) -> Vec<String> {
        let hear = |(child, out): &mut (Child, BufReader<std::process::ChildStdout>)| {
            loop {
                let mut line = String::new();
                if out.read_line(&mut line).unwrap() == 0 {
                    panic!("a process ended: {:?}", child.wait());
                }
                if let Some(rest) = line.strip_prefix(word) {
                    return rest.trim().to_string();
                }
            }
        };
        self.0.iter_mut().map(hear).collect()
    }

    fn go(&mut self) {
        for (child, _) in &mut self.0 {
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        }
    }

    fn end(self) {
        for (mut child, _) in self.0 {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
    }
}

#[test]
fn sixteen_processes_are_one_team_through_four_mounts() {
    let Some(world) = World::start(4) else { return };
    let client = forebay_client::Client::new(world.service.delegate(0));
    client.create_dir("/d").unwrap();
    let args = |place: u64| {
        let mount = world.point(place as usize % 4).display().to_string();
        vec![mount, "4".into(), place.to_string()]
    };
    let mut crowd = Crowd::start("rank", (0..16).map(args));
    crowd.hear("READY");
    crowd.go();
    let inodes = crowd.hear("DONE");
    assert!(inodes.windows(2).all(|two| two[0] == two[1]), "{inodes:?}");
    crowd.end();
    // Five opens, two of which fail, two closes and two stats; the last close is each process's own.
    for member in world.status() {
        assert_eq!((member.team_calls, member.team_failures), (9, 0));
    }
    until("every handle is released", || {
        world.status().iter().all(|m| m.open_files == 0)
            && world
                .service
                .nodes()
                .iter()
                .all(|n| n.files.open_files() == 0)
    });
    world.stop();
}

#[test]
fn a_killed_process_fails_the_call_of_its_team_and_leaves_it() {
    let Some(world) = World::hasty(2, Duration::from_secs(1)) else {
        return;
    };
    for _ in 0..2 {
        let mounts = [0, 0, 1, 1].map(|n| vec![world.point(n).display().to_string()]);
        let mut crowd = Crowd::start("wait", mounts.into_iter());
        crowd.hear("READY");
        let (mut victim, _) = crowd.0.remove(2);
        victim.kill().unwrap();
        victim.wait().unwrap();
        crowd.go();
        crowd.hear("DONE");
        crowd.end();
    }
    world.stop();
}

#[test]
fn a_process_that_waits_for_its_team_can_be_killed() {
    // The call would last longer than the test may take.
    let Some(world) = World::hasty(2, Duration::from_secs(300)) else {
        return;
    };
    let mount = world.point(0).display().to_string();
    let mut crowd = Crowd::start("stuck", [vec![mount]].into_iter());
    crowd.hear("READY");
    crowd.go();
    crowd.hear("CALLS");
    // Most likely it is in the call by then.
    std::thread::sleep(Duration::from_millis(300));
    let (mut victim, _) = crowd.0.remove(0);
    victim.kill().unwrap();
    let gone = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        victim.try_wait().unwrap().is_some()
    });
    if !gone {
        // Only the end of the mount frees it.
        drop(world);
        panic!("a killed process waits for its team");
    }
    world.stop();
}

/// Sixteen processes in this role open one file of member 0 through node 1, slowly enough that they meet. What each says, and how many
/// messages of node 1 that took, and requests that it combined with others.
fn sixteen_open_one_file(world: &World, role: &str) -> (Vec<String>, u64, u64) {
    let mount = world.point(1).display().to_string();
    let mut crowd = Crowd::start(role, (0..16).map(|_| vec![mount.clone()]));
    crowd.hear("READY");
    world.faults.set(FaultRates {
        latency: Duration::from_millis(20),
        ..FaultRates::default()
    });
    let before = &world.status()[1];
    crowd.go();
    let seen = crowd.hear("DONE");
    let after = &world.status()[1];
    assert_eq!(world.service.nodes()[0].files.open_files(), 1);
    world.faults.set(FaultRates::default());
    crowd.end();
    until("every handle is released", || {
        world.service.nodes()[0].files.open_files() == 0
    });
    let (asked, combined) = (after.asked - before.asked, after.combined - before.combined);
    (seen, asked, combined)
}

#[test]
fn sixteen_processes_that_open_one_file_cost_few_messages() {
    let Some(world) = World::start(2) else { return };
    let client = forebay_client::Client::new(world.service.delegate(0));
    client.write("/shared", b"sixteen").unwrap();
    let (seen, asked, combined) = sixteen_open_one_file(&world, "plain");
    assert!(seen.iter().all(|s| s.ends_with(" 7")), "{seen:?}");
    assert!(combined > 0, "{asked} messages, {combined} combined");
    println!("16 opens: {asked} messages, {combined} requests combined");
    world.stop();
}

#[test]
fn sixteen_processes_that_create_one_file_get_one() {
    let Some(world) = World::start(2) else { return };
    let (seen, asked, combined) = sixteen_open_one_file(&world, "make");
    assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
    // Not few: the kernel lets one at a time create in a directory, and looks the name up for each.
    println!("16 creates: {asked} messages, {combined} requests combined");
    world.stop();
}

/// The user of the service, and one that has nothing here.
const OWNER: u32 = 65534;
const STRANGER: u32 = 65533;

/// An ordinary user's service on a mount for all users: its own ranks and root's act together; a stranger's get nothing.
#[test]
fn the_service_of_an_ordinary_user_lets_its_user_and_root_act_together() {
    let root = rustix::process::geteuid().is_root();
    if !root
        || !has_fuse()
        || !["setpriv", "unshare", "fusermount3"]
            .iter()
            .all(|p| has_program(p))
    {
        eprintln!("skipped: only root can make a place for an ordinary user with /dev/fuse");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _turn = turns::shared();
    let out = role_apart("town", &[dir.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    if said.contains("SKIP") {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(out.status.success() && said.contains("TOWN DONE"), "{said}");
}

/// In a mount namespace of its own, where all may use `/dev/fuse` and mount for all.
fn town(dir: &Path) {
    let prepare = "set -e; cd \"$0\"; mkdir dev; mount -t tmpfs town dev; mknod -m 666 dev/fuse c 10 229;
        mount --bind dev/fuse /dev/fuse; echo user_allow_other > fuse.conf; mount --bind fuse.conf /etc/fuse.conf";
    let prepared = Command::new("sh")
        .args(["-c", prepare])
        .arg(dir)
        .output()
        .unwrap();
    let exe = std::env::current_exe().unwrap();
    let reach = Command::new("setpriv")
        .args([
            &format!("--reuid={STRANGER}"),
            "--clear-groups",
            "test",
            "-x",
        ])
        .arg(&exe)
        .status()
        .unwrap();
    if !prepared.status.success() || !reach.success() {
        return println!("SKIP: no world of its own here: {prepared:?}, {reach}");
    }
    let Some(harness) = Harness::start(Setup {
        nodes: 2,
        allow_other: true,
        nobody: true,
        ..Setup::default()
    }) else {
        panic!("/dev/fuse is there");
    };
    let m = harness.mount(0);
    let as_owner = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={OWNER}"), &format!("--regid={OWNER}")]);
        command.args(["--clear-groups", "sh", "-ec", script]);
        assert!(
            command.current_dir(&m).status().unwrap().success(),
            "{script}"
        );
    };
    as_owner(
        "mkdir closed; echo f > closed/f; chmod 700 closed; echo s > secret; chmod 600 secret",
    );
    as_owner("echo kept > kept; chmod 444 kept");
    let crowd = |users: &[u32], here: u32| {
        let start = |(place, user): (usize, &u32)| {
            let mount = harness.mount(place % 2).display().to_string();
            role_as(
                *user,
                "citizen",
                &[&mount, &here.to_string(), &place.to_string()],
            )
        };
        let mut crowd = Crowd::of(users.iter().enumerate().map(start));
        crowd.hear("READY");
        crowd.go();
        let heard = crowd.hear("DONE");
        crowd.end();
        heard
    };
    let eacces = libc::EACCES;
    // The stranger does not even get in; nor does the directory tell it anything.
    let refused = format!("refused {eacces}");
    assert_eq!(crowd(&[STRANGER, STRANGER], 1), [refused.clone(), refused]);
    // The user of the service: its own mode keeps it from writing.
    let own = format!("2 0 0 {eacces}");
    assert_eq!(crowd(&[OWNER, OWNER], 1), [own.clone(), own]);
    assert_eq!(std::fs::read(m.join("kept")).unwrap(), b"kept\n");
    // With root in the team, what one may not the team does not.
    let both = format!("4 0 0 {eacces}");
    assert_eq!(
        crowd(&[0, OWNER, OWNER, 0], 2),
        [both.clone(), both.clone(), both.clone(), both]
    );
    assert_eq!(std::fs::read(m.join("kept")).unwrap(), b"kept\n");
    assert_eq!(crowd(&[0, 0], 1), ["4 0 0 0", "4 0 0 0"]);
    assert_eq!(std::fs::read(m.join("kept")).unwrap(), b"");
    drop(harness);
    println!("TOWN DONE");
}
