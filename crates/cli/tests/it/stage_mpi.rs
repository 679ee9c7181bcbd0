//! Staging over four servers in processes of their own, started by `mpirun`.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::left::nothing;
use crate::common::mpi::{N, args, job_place};
use crate::common::{Place, command, forebay, kill};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::seeds;
use forebay_testkit::tree_compare::assert_same;
use forebay_testkit::wait::until;
use std::io::BufRead;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn ran(place: &Place, more: &[&str], script: &str) -> (i32, String, String) {
    let args = args(place, more, script);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output =
        crate::common::run_within(&mut command(&args), std::time::Duration::from_secs(600));
    crate::common::outcome(&output)
}

/// A service that runs until its standard input is closed, or it is killed.
fn service(place: &Place) -> Child {
    let args = args(place, &[], "echo ready; cat");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = command(&args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// Small files, a large one with holes that is divided, further names, attributes.
fn plant(dir: &Path, files: u64, large: u64) {
    for n in 0..files {
        let below = dir.join(format!("d{}", n % 7));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(
            below.join(format!("f{n}")),
            seeded_bytes(n, 4000 + n as usize % 977),
        )
        .unwrap();
    }
    let file = std::fs::File::create(dir.join("large")).unwrap();
    for at in (0..large).step_by(16 << 20) {
        let len = (large - at).min(seeds::count(1 << 20, 16 << 20));
        file.write_all_at(&seeded_bytes(at + 1, len as usize), at)
            .unwrap();
    }
    file.set_len(large).unwrap();
    std::fs::hard_link(dir.join("d1/f1"), dir.join("d2/again")).unwrap();
    std::os::unix::fs::symlink("d1/f1", dir.join("link")).unwrap();
    let value = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(dir.join("d3/f3"), "user.colour", b"blue", value).unwrap();
}

#[track_caller]
fn same(a: &Path, b: &Path) {
    assert_same(a, b);
    let inode = |name: &str| b.join(name).metadata().unwrap().ino();
    assert_eq!(inode("d1/f1"), inode("d2/again"));
    let blocks = |dir: &Path| dir.join("large").metadata().unwrap().blocks();
    assert!(blocks(b) <= blocks(a) + 256, "{} {}", blocks(a), blocks(b));
}

fn job(args: &[&str]) -> serde_json::Value {
    let (code, out, err) = forebay(args);
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_tree_goes_in_before_the_command_and_out_after_it() {
    let Some(place) = job_place() else { return };
    let (src, out) = (place.path("src"), place.path("out"));
    plant(&src, 300, 300 << 20);
    let into = format!("{}:/tree", src.display());
    std::fs::write(place.path("list"), format!("/tree {}\n", out.display())).unwrap();
    let list = format!("@{}", place.text("list"));
    let script =
        "sha256sum < ${FOREBAY_MOUNTS##*:}/tree/large; stat -c %h $FOREBAY_MOUNT/tree/d1/f1";
    let (code, said, err) = ran(&place, &["--stage-in", &into, "--stage-out", &list], script);
    assert_eq!(code, 0, "{said}{err}");
    let mut sum = Command::new("sha256sum");
    sum.stdin(std::fs::File::open(src.join("large")).unwrap());
    let sum = String::from_utf8(sum.output().unwrap().stdout).unwrap();
    assert_eq!(said, format!("{sum}2\n"));
    assert!(
        err.contains("staged in: 301 files") && err.contains("staged out: 301 files"),
        "{err}"
    );
    same(&src, &out);
    nothing(&place);
    for k in 0..N {
        let journals = std::fs::read_dir(place.path(&format!("n{k}/stage"))).unwrap();
        assert_eq!(journals.count(), 0, "a job that is done is forgotten");
        let log = std::fs::read_to_string(place.path(&format!("n{k}/log"))).unwrap();
        let copied =
            log.contains("its part of stage job 1 ended") || log.contains("stage job 1 ended");
        assert!(copied, "every server had a part: {log}");
    }
}

#[test]
fn after_a_server_is_killed_the_same_command_goes_on_at_another() {
    let Some(place) = job_place() else { return };
    let (src, out) = (place.path("src"), place.text("out"));
    plant(
        &src,
        seeds::count(2000, 10_000),
        seeds::count(300 << 20, 4 << 30),
    );
    let files = seeds::count(2001, 10_001);
    let mut servers = service(&place);
    let staged = job(&[
        "stage",
        "in",
        src.to_str().unwrap(),
        &place.text("m2/tree"),
        "--json",
    ]);
    assert_eq!(staged["counts"]["files"], files);
    let status = job(&["status", &place.text("n3"), "--json"]);
    let from = place.text("m1/tree");
    let mut stage = command(&["stage", "out", &from, &out]);
    let stage = stage
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // As any server shows it, also one that does not lead it.
    until("the job is half done", || {
        let seen = job(&["stage", "status", &place.text("n0"), "--json"]);
        let jobs = seen["services"][0]["jobs"].as_array().unwrap();
        assert_eq!(jobs[0]["what"].as_str().unwrap().get(..3), Some("in "));
        let out = jobs
            .iter()
            .find(|j| j["what"].as_str().unwrap().starts_with("out "));
        out.is_some_and(|j| {
            j["counts"]["files"].as_u64().unwrap() >= files / 3 || j["state"] != "running"
        })
    });
    kill(status["pid"].as_u64().unwrap() as u32);
    let ended = stage.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    let failed = !ended.status.success();
    assert!(!failed || err.contains("same command"), "{err}");
    // A job that has ended is forgotten by all servers, maybe before its command has heard of it.
    let known = |k| {
        let mut journals = std::fs::read_dir(place.path(&format!("n{k}/stage"))).unwrap();
        journals.next().is_some()
    };
    let hit = failed && (0..N).all(known);
    println!("the kill hit a running job: {hit}");
    drop(servers.stdin.take());
    // It says that a server ended before its time.
    servers.wait().unwrap();
    for k in 0..N {
        // A server that was killed has no time to remove it.
        let _ = std::fs::remove_file(place.path(&format!("n{k}/control")));
    }
    nothing(&place);
    let mut servers = service(&place);
    let again = job(&["stage", "out", &place.text("m3/tree"), &out, "--json"]);
    let count = |name: &str| again["counts"][name].as_u64().unwrap();
    assert_eq!(count("files") + count("kept_files"), files, "{again}");
    assert!(!hit || count("kept_files") >= files / 4, "{again}");
    same(&src, Path::new(&out));
    let left = Command::new("find")
        .arg(&out)
        .args(["-name", ".forebay-stage-*"])
        .output()
        .unwrap();
    assert!(left.stdout.is_empty());
    drop(servers.stdin.take());
    assert!(servers.wait().unwrap().success());
    nothing(&place);
}
