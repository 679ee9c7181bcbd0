//! What the tests of the command share: running it with a limit, and stores with mounts that never stay behind.
pub mod left;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod rounds;
pub mod server_memory;

pub use forebay_testkit::prerequisites::has_fuse;
use forebay_testkit::turns::{self, Turn};
use forebay_testkit::wait::until_or;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time any command of a test may take.
const LIMIT: Duration = Duration::from_secs(90);

/// The command under test, with an environment of its own.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FOREBAY_") {
            command.env_remove(name);
        }
    }
    // Nobody's own configuration file takes part.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    // Help is wrapped to this width, whatever the terminal.
    command.env("COLUMNS", "100");
    command
}

/// Puts a copy of the command under test at `path`, where another user may run it.
///
/// Another process copies: one that a test beside this starts has whatever this process holds open for writing until it runs
/// its own program, and a program that somebody holds open for writing cannot be run.
pub fn install(path: &Path) {
    let mut copy = Command::new("install");
    copy.args(["-m", "755", env!("CARGO_BIN_EXE_forebay")])
        .arg(path);
    let (code, _, err) = outcome(&run(&mut copy));
    assert_eq!(code, 0, "{err}");
}

/// Runs a command to its end; kills it if that takes too long, so that it counts as failed.
pub fn run(command: &mut Command) -> Output {
    run_within(command, LIMIT)
}

/// As [`run`], with a limit of its own.
pub fn run_within(command: &mut Command, limit: Duration) -> Output {
    let _turn = turns::shared();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |stream: &mut dyn Read| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut out));
        let err = scope.spawn(move || read(&mut err));
        let end = Instant::now() + limit;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > end => {
                    eprintln!(
                        "{command:?} hangs:\n{}",
                        forebay_node::processes::stacks(child.id())
                    );
                    child.kill().unwrap();
                    break child.wait().unwrap();
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        Output {
            status,
            stdout: out.join().unwrap(),
            stderr: err.join().unwrap(),
        }
    })
}

/// Runs the command with arguments; gives exit code, standard output, standard error.
pub fn forebay(args: &[&str]) -> (i32, String, String) {
    outcome(&run(&mut command(args)))
}

/// The parts of an outcome.
pub fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Asserts a failure: the exit code, one line on standard error, and what it must mention.
#[track_caller]
pub fn assert_fails(result: &(i32, String, String), code: i32, parts: &[&str]) {
    let (got, out, err) = result;
    assert_eq!(*got, code, "exit code; output: {out}; error: {err}");
    assert_eq!(err.trim_end().lines().count(), 1, "one line: {err}");
    assert!(err.starts_with("forebay: "), "{err}");
    for part in parts {
        assert!(err.contains(part), "'{part}' is missing in: {err}");
    }
}

/// A directory with a store and a mount point; whatever is mounted or runs below it ends with it.
pub struct Place {
    dir: tempfile::TempDir,
    _turn: Turn,
}

impl Place {
    /// A new directory on a disk.
    pub fn new() -> Place {
        let turn = turns::shared();
        let dir = tempfile::Builder::new()
            .prefix("forebay-test-")
            .tempdir_in("/var/tmp")
            .unwrap();
        std::fs::create_dir(dir.path().join("m")).unwrap();
        Place { dir, _turn: turn }
    }

    /// The same, if there can be mounts.
    #[track_caller]
    pub fn mountable() -> Option<Place> {
        has_fuse().then(Place::new)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// The store.
    pub fn store(&self) -> String {
        self.text("s")
    }

    /// The mount point, or the directory above the mount points.
    pub fn mount_point(&self) -> String {
        self.text("m")
    }

    /// Starts the service with further arguments; gives the outcome.
    pub fn mount(&self, args: &[&str]) -> (i32, String, String) {
        let (store, point) = (self.store(), self.mount_point());
        forebay(&[&["mount", &store, &point], args].concat())
    }

    /// Starts the service and insists.
    #[track_caller]
    pub fn mount_well(&self, args: &[&str]) {
        let (code, out, err) = self.mount(args);
        assert_eq!(code, 0, "{out}{err}{}", self.log());
    }

    /// Stops the service and insists.
    #[track_caller]
    pub fn umount_well(&self) {
        let (code, out, err) = forebay(&["umount", &self.store()]);
        assert_eq!(code, 0, "{out}{err}{}", self.log());
    }

    /// Process id of the running service.
    pub fn pid(&self) -> u32 {
        let (code, out, err) = forebay(&["status", &self.store(), "--json"]);
        assert_eq!(code, 0, "{err}");
        let status: serde_json::Value = serde_json::from_str(&out).unwrap();
        status["pid"].as_u64().unwrap() as u32
    }

    /// Kills the service without a word and waits until it is gone.
    pub fn kill(&self) {
        kill(self.pid());
    }

    /// What the service has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("s/log")).unwrap_or_default()
    }
}

/// Kills a process with SIGKILL and waits until it is gone.
pub fn kill(pid: u32) {
    let Some(process) = rustix::process::Pid::from_raw(pid as i32) else {
        return;
    };
    // Fails only if it is gone.
    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    let stacks = || {
        let stacks = forebay_node::processes::stacks(pid);
        format!("process {pid} dies:\n{stacks}")
    };
    let is_gone = || !forebay_node::processes::is_alive(pid);
    until_or(Duration::from_secs(20), stacks, is_gone);
}

/// Detaches every mount below `dir`, whether its server lives or not.
pub fn detach_below(dir: &Path) {
    for mount in forebay_node::mount_table::all()
        .unwrap_or_default()
        .iter()
        .rev()
    {
        if mount.point.starts_with(dir) {
            let _ = forebay_node::mount_table::detach(&mount.point);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let lock = std::fs::read_to_string(self.path("s/lock")).unwrap_or_default();
        let holder = lock.trim().parse().ok().filter(|pid| {
            // The number may be another process by now; only one that runs this very store is ended.
            let program =
                std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != std::process::id() && program.starts_with("forebay\0__serve")
        });
        if let Some(pid) = holder {
            kill(pid);
        }
        detach_below(self.dir.path());
    }
}
