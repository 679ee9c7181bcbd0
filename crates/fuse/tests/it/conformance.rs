//! What others' suites find: pjdfstest asks some 400 questions about names, modes, owners, times and errors of every kind of file,
//! as root and as two other users.
use crate::common::{Harness, Setup, has_program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `scripts/setup.sh` puts it, or wherever it is.
fn pjdfstest() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let installed = home.map(|home| home.join("bin/pjdfstest"));
    installed
        .filter(|path| path.exists())
        .or_else(|| has_program("pjdfstest").then(|| PathBuf::from("pjdfstest")))
}

fn group_of_nobody() -> String {
    let out = Command::new("id").args(["-gn", "nobody"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_string()
}

/// It writes a program and runs it, while other tests of the suite start processes in the same program: one of those may hold the
/// program open for writing at that moment. So it counts if it fails alone too.
const BUSY: &str = "::etxtbsy";

/// Runs the suite in a new directory of the mount.
/// `nap`: how long it waits, seconds, where times of files are to differ.
fn finds_nothing(mount: &Path, nap: f64) {
    let Some(program) = pjdfstest() else { return };
    let settings = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nutime_now = {{}}\nutimensat = {{}}\nrename_ctime = {{}}\n\
         [settings]\nnaptime = {nap}\nallow_remount = false\n\
         [dummy_auth]\nentries = [[\"nobody\", \"{}\"], [\"daemon\", \"daemon\"]]\n",
        group_of_nobody()
    );
    fs::write(settings.path(), text).unwrap();
    let inside = mount.join("suite");
    fs::create_dir(&inside).unwrap();
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(settings.path())
        .arg("-p")
        .arg(&inside);
    // Another file system, for links and renames that must not reach it.
    command.args(["-s", "/dev/shm"]);
    let out = command.env("RUST_BACKTRACE", "0").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    let mut failed = said.lines().filter_map(|line| line.strip_suffix("FAILED"));
    if failed.clone().all(|test| test.trim_end().ends_with(BUSY)) && failed.next().is_some() {
        let alone = command.arg(BUSY).output().unwrap();
        let again = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success(), "{said}\n{errors}\nalone: {again}");
    } else {
        assert!(out.status.success(), "{said}\n{errors}");
    }
    let summary = said.lines().find(|line| line.starts_with("Summary:"));
    let passed = summary
        .and_then(|line| line.split(' ').nth(5))
        .map(str::parse);
    // Those left out need another size of disk, a mount that is made read-only, or what Linux does not have.
    assert!(matches!(passed, Some(Ok(380u32..))), "{summary:?}");
}

fn suite(nodes: u16) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be every user that the suite asks for");
        return;
    }
    let setup = Setup {
        nodes,
        allow_other: true,
        ..Setup::default()
    };
    if let Some(h) = Harness::start(setup) {
        // With one member times are those of the clock's ticks, as on a local disk.
        let nap = if nodes == 1 { 0.02 } else { 0.001 };
        finds_nothing(&h.mount(usize::from(nodes) / 2), nap);
    }
}

#[test]
fn pjdfstest_finds_nothing_with_one_member() {
    suite(1);
}

#[test]
fn pjdfstest_finds_nothing_with_four_members() {
    suite(4);
}
