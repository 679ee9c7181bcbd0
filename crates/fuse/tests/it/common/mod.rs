//! A service with one mount per member in a process of its own, for tests that use it through the kernel.
//!
//! The test executable starts itself again as that process (see [`run_role`]). It lives as long as its standard input is open,
//! so it cannot outlast the test, and it unmounts when it ends. A watchdog cuts a stuck test off: it aborts the mounts, so that
//! every call returns and the test fails, and says so; if the test still does not end, it ends the test program.

mod map;
mod service;

use forebay_testkit::hosts::LEAVE_FUSE_MOUNTS;
pub use forebay_testkit::prerequisites::{has_fuse, has_program};
use forebay_testkit::turns;
pub use map::{Map, is_resident, resident};
pub use service::{Harness, Setup};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ROLE: &str = "FOREBAY_TEST_ROLE";
const ARGS: &str = "FOREBAY_TEST_ARGS";

/// Does the work of this process's role, if a test has started it through [`role`]; in the test run itself, nothing. Each of
/// `modules` does the work of its own roles, and says whether it is one of them.
pub fn run_role(modules: &[fn(&str, &[&str]) -> bool]) {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    let args = std::env::var(ARGS).unwrap_or_default();
    let args: Vec<&str> = if args.is_empty() {
        Vec::new()
    } else {
        args.split('\n').collect()
    };
    let known = if name == "serve" {
        service::serve(&args);
        true
    } else {
        modules.iter().any(|run_role| run_role(&name, &args))
    };
    std::process::exit(if known { 0 } else { 99 });
}

/// This executable in another role, not started yet.
pub fn role(name: &str, args: &[&str]) -> Command {
    in_role(Command::new(std::env::current_exe().unwrap()), name, args)
}

/// The same as another user, in the group of the same number and no other.
pub fn role_as(user: u32, name: &str, args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.arg("--clear-groups");
    command.arg(std::env::current_exe().unwrap());
    in_role(command, name, args)
}

/// The same in a mount namespace of its own, where it can make its own world of devices and settings. Needs root.
pub fn role_apart(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("{LEAVE_FUSE_MOUNTS}exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &script]);
    command.arg(std::env::current_exe().unwrap());
    in_role(command, name, args)
}

fn in_role(mut command: Command, name: &str, args: &[&str]) -> Command {
    command.args(["roles", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, name).env(ARGS, args.join("\n"));
    command
}

/// Starts a role and returns it with its output as lines.
pub fn start_role(name: &str, args: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = role(name, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out.lines().map_while(Result::ok))
}

/// Starts a role that serves until its standard input closes, and returns it once it has said `READY`; else what it said.
pub fn start_ready(mut command: Command) -> Result<Child, String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.ends_with("\nREADY\n") {
        if out.read_line(&mut said).unwrap() == 0 {
            let _ = child.wait();
            return Err(said);
        }
    }
    child.stdout = Some(out.into_inner());
    Ok(child)
}

/// Runs a program in `dir`; fails the test with everything it said.
pub fn run(dir: &Path, program: impl AsRef<OsStr>, args: &[&str]) -> String {
    let _turn = turns::shared();
    let mut child = Command::new(program.as_ref())
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{:?}: {e}", program.as_ref()));
    let mut stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let status = child.wait().unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&out).into_owned(),
        errors.join().unwrap(),
    );
    assert!(
        status.success(),
        "{:?} {args:?}: {status}\n{out}\n{errors}",
        program.as_ref()
    );
    out
}

pub fn sh(dir: &Path, script: &str) -> String {
    run(dir, "sh", &["-e", "-c", script])
}

/// The number a failed call gave.
pub fn errno<T: std::fmt::Debug, E: Into<std::io::Error>>(result: Result<T, E>) -> i32 {
    match result {
        Ok(value) => panic!("expected a failure, got {value:?}"),
        Err(e) => e.into().raw_os_error().expect("an error of the system"),
    }
}

/// Opens a file for reading and writing, made if it is not there.
pub fn open(path: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

/// Makes a file, which must not be there, and opens it for reading and writing.
pub fn create_new(path: &Path) -> File {
    File::create_new(path).unwrap()
}

/// Opens a file that is there, for writing only.
pub fn open_to_write(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

/// `truncate` by path; the standard library has only the one by handle.
pub fn truncate(path: &Path, len: i64) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a valid C string for the length of the call.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
