//! Detects what tests need of a machine. A test that lacks something is skipped, saying so; it fails instead if a variable says that the
//! machine must have it:
//!
//! | variable | what must be there |
//! |---|---|
//! | `FOREBAY_REQUIRE_FUSE` | the kernel's FUSE |
//! | `FOREBAY_REQUIRE_PROGRAMS` | the programs that tests run on the mount |
//! | `FOREBAY_REQUIRE_MPI` | the `mpirun` of the MPI that the program was built for |
//! | `FOREBAY_REQUIRE_SLURM` | a Slurm that can be started |
//! | `FOREBAY_REQUIRE_HOSTS` | what [`hosts`](crate::hosts) need |
//! | `FOREBAY_REQUIRE_DISK` | what a [`disk`](crate::disk) needs |
//! | `FOREBAY_REQUIRE_PYTHON` | a Python from 3.11 on, with `venv`: `scripts/python.sh` looks |
use std::fmt::Display;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Says that a test is skipped, and why.
///
/// # Panics
/// If `FOREBAY_REQUIRE_` and `what` is set.
#[track_caller]
pub fn skip(what: &str, why: impl Display) {
    let required = std::env::var_os(format!("FOREBAY_REQUIRE_{what}")).is_some();
    assert!(!required, "FOREBAY_REQUIRE_{what} is set, but {why}");
    eprintln!("skipped: {why}");
}

/// Whether there can be mounts. Skips otherwise.
#[track_caller]
pub fn has_fuse() -> bool {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(e) = &device {
        skip("FUSE", format_args!("/dev/fuse: {e}"));
    }
    device.is_ok()
}

/// Where a program is, of those that can be run by name.
pub fn program(name: &str) -> Option<PathBuf> {
    let can_run = |path: &PathBuf| {
        let meta = std::fs::metadata(path);
        meta.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join(name));
    all.find(can_run)
}

/// Whether there is such a program. Skips otherwise.
#[track_caller]
pub fn has_program(name: &str) -> bool {
    let found = program(name).is_some();
    if !found {
        skip("PROGRAMS", format_args!("{name} is not installed"));
    }
    found
}

/// A new directory; in memory where there is such a place, for tests that are not about disks.
///
/// # Panics
/// If it cannot be made.
#[track_caller]
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    };
    made.unwrap_or_else(|e| panic!("no directory for a test: {e}"))
}

/// Runs a command to its end.
///
/// # Errors
/// If it cannot be started or fails; names it and what it said.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    let text = match command.stdin(Stdio::null()).output() {
        Ok(out) if out.status.success() => return Ok(()),
        Ok(out) => format!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr)),
        Err(e) => format!("it cannot be started: {e}"),
    };
    Err(io::Error::other(format!("{command:?}: {}", text.trim())))
}
