//! The serving process and the handle a test holds on it.
use super::{has_fuse, role, role_as, start_ready};
use forebay_fuse::{Mount, MountOptions, PendingMount, mounts, unmount};
use forebay_server::{Config, Consistency, Service, SettleConfig};
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Durability, Io, OsIo};
use forebay_testkit::seeds;
use forebay_testkit::turns::{self, Turn};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;
/// Bytes of a write that can be held up: more than one that the service makes for itself.
const HELD_WRITE: u64 = 512 << 10;

/// What a test asks of its service.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub nodes: u16,
    pub posix: bool,
    /// Rows of writes become patterns.
    pub patterns: bool,
    pub allow_other: bool,
    /// Most bytes of data, if limited. Then nothing is settled: the same bytes are to fill it again and again.
    pub quota: Option<u64>,
    /// The kernel may keep dirty pages, where there is one member.
    pub write_back: bool,
    /// The server runs as another user, who cannot mount without the helper. Needs root.
    pub nobody: bool,
    /// Large writes to the store's files can be held up ([`Harness::hold`]).
    pub holds: bool,
}

impl Setup {
    /// One member, whose kernel keeps dirty pages.
    pub const ALONE: Setup = Setup {
        nodes: 1,
        posix: false,
        patterns: true,
        allow_other: false,
        quota: None,
        write_back: true,
        nobody: false,
        holds: false,
    };
    /// One member, to whom the kernel sends each write at once.
    pub const ALONE_WRITE_THROUGH: Setup = Setup {
        write_back: false,
        ..Setup::ALONE
    };
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            nodes: 4,
            ..Setup::ALONE
        }
    }
}

/// The serving process: `store`, `mount root`, nodes, posix, patterns, allow_other, quota, write_back, and the file that holds up writes.
pub fn serve(args: &[&str]) {
    let [
        store,
        root,
        nodes,
        posix,
        patterns,
        allow_other,
        quota,
        write_back,
        hold,
    ] = args
    else {
        panic!("serve: {args:?}")
    };
    let consistency = match *posix {
        "1" => Consistency::Posix,
        _ => Consistency::Commit,
    };
    let config = Config {
        nodes: nodes.parse().unwrap(),
        consistency,
        patterns: *patterns == "1",
        quota: quota.parse().ok(),
        settle: SettleConfig {
            enabled: quota.parse::<u64>().is_err(),
            ..SettleConfig::default()
        },
        durability: Durability::Process,
        ..Config::default()
    };
    let options = MountOptions {
        allow_other: *allow_other == "1",
        write_back: *write_back == "1",
        ..MountOptions::default()
    };
    let io: Arc<dyn Io> = match *hold {
        "-" => Arc::new(OsIo),
        hold => Arc::new(holding(PathBuf::from(hold))),
    };
    match start(io, Path::new(store), Path::new(root), config, &options) {
        Ok((service, mounts)) => {
            println!("\nREADY");
            // Ends when the test closes its side, also by dying.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            for mount in mounts {
                if let Err(e) = mount.stop() {
                    println!("STOP {e}");
                }
            }
            match service.stop() {
                Ok(()) => println!("STOPPED"),
                Err(e) => println!("STOP {e}"),
            }
        }
        Err(e) => println!("\nFAILED {e}"),
    }
}

/// A disk on which large writes wait as long as `hold` is there. The first says so by a file beside it.
fn holding(hold: PathBuf) -> HookedIo {
    HookedIo::new(OsIo, move |_, call| {
        if matches!(call, Call::Write { len, .. } if len >= HELD_WRITE) && hold.exists() {
            fs::write(hold.with_extension("held"), b"")?;
            while hold.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    })
}

fn start(
    io: Arc<dyn Io>,
    store: &Path,
    root: &Path,
    config: Config,
    options: &MountOptions,
) -> Result<(Service, Vec<Mount>), Box<dyn std::error::Error>> {
    let nodes = config.nodes;
    let service = Service::start(io, store, config)?;
    let mut mounts = Vec::new();
    for n in 0..nodes {
        let pending = PendingMount::mount(root.join(n.to_string()), options.clone())?;
        mounts.push(pending.answer(service.delegate(n))?);
    }
    Ok((service, mounts))
}

/// A running service with a mount per member.
pub struct Harness {
    dir: Option<tempfile::TempDir>,
    setup: Setup,
    server: Option<Child>,
    watchdog: Sender<()>,
    _turn: Turn,
}

impl Harness {
    /// `None` where mounts are impossible (said on standard error).
    pub fn start(setup: Setup) -> Option<Harness> {
        if !has_fuse() {
            return None;
        }
        let turn = turns::shared();
        let dir = tempfile::tempdir().unwrap();
        // Another user may come to the mounts; the store keeps itself closed.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for n in 0..setup.nodes {
            std::fs::create_dir_all(dir.path().join(format!("mnt/{n}"))).unwrap();
        }
        if setup.nobody {
            chown_all(dir.path());
        }
        let watchdog = watchdog(dir.path().join("mnt"));
        let mut harness = Harness {
            dir: Some(dir),
            setup,
            server: None,
            watchdog,
            _turn: turn,
        };
        harness.serve().unwrap();
        Some(harness)
    }

    /// The usual service: four members, commit consistency.
    pub fn four() -> Option<Harness> {
        Harness::start(Setup::default())
    }

    /// One member, whose kernel keeps dirty pages.
    pub fn alone() -> Option<Harness> {
        Harness::start(Setup::ALONE)
    }

    /// So many members that show each write before it returns.
    pub fn posix(nodes: u16) -> Option<Harness> {
        Harness::start(Setup {
            posix: true,
            nodes,
            ..Setup::default()
        })
    }

    fn path(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    /// The serving process.
    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// The root of member `n`'s mount.
    pub fn mount(&self, n: usize) -> PathBuf {
        self.path().join(format!("mnt/{n}"))
    }

    /// The mount of member `n`, or of another where there are fewer.
    pub fn at(&self, n: usize) -> PathBuf {
        self.mount(n % usize::from(self.setup.nodes))
    }

    /// Every mount.
    pub fn all(&self) -> Vec<PathBuf> {
        (0..usize::from(self.setup.nodes))
            .map(|n| self.mount(n))
            .collect()
    }

    /// Starts the serving process on the store and mount points that are there.
    pub fn serve(&mut self) -> Result<(), String> {
        let setup = self.setup;
        let flag = |b: bool| if b { "1" } else { "0" };
        let quota = setup.quota.map_or("-".to_string(), |q| q.to_string());
        let (store, root) = (self.store(), self.path().join("mnt"));
        let hold = self.path().join("hold");
        let hold = match setup.holds {
            true => hold.to_str().unwrap(),
            false => "-",
        };
        let args = [
            store.to_str().unwrap(),
            root.to_str().unwrap(),
            &setup.nodes.to_string(),
            flag(setup.posix),
            flag(setup.patterns),
            flag(setup.allow_other),
            &quota,
            flag(setup.write_back),
            hold,
        ];
        let command = if setup.nobody {
            role_as(NOBODY, "serve", &args)
        } else {
            role("serve", &args)
        };
        let server = start_ready(command).map_err(|said| format!("the server ended: {said}"))?;
        self.server = Some(server);
        Ok(())
    }

    /// From now on large writes to the store wait ([`Setup::holds`]).
    pub fn hold(&self) {
        fs::write(self.path().join("hold"), b"").unwrap();
    }

    /// Returns once one waits.
    pub fn wait_held(&self) {
        let held = self.path().join("hold.held");
        while !held.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// They go on.
    pub fn let_go(&self) {
        let _ = fs::remove_file(self.path().join("hold.held"));
        fs::remove_file(self.path().join("hold")).unwrap();
    }

    /// Ends the service in order and returns what it said about it.
    pub fn stop(&mut self) -> String {
        let Some(mut server) = self.server.take() else {
            return String::new();
        };
        drop(server.stdin.take());
        let mut said = String::new();
        if let Some(mut out) = server.stdout.take() {
            let _ = out.read_to_string(&mut said);
        }
        let _ = server.wait();
        said
    }

    /// Ends the service in order and starts it again: the kernel has nothing of it any more.
    pub fn restart(&mut self) {
        let said = self.stop();
        // A process that a test beside this one is just starting may have this one's files, and the mount then be cut off from it.
        assert!(said.contains("STOPPED"), "{said}");
        self.serve().unwrap();
    }

    /// Kills the server without warning; its mounts stay behind, dead.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let said = self.stop();
        if !said.is_empty() && !said.contains("STOPPED") {
            eprintln!("the server said: {said}");
        }
        let Some(dir) = self.dir.take() else { return };
        let root = std::fs::canonicalize(dir.path()).unwrap_or_else(|_| dir.path().to_path_buf());
        if !clear(&root) {
            // Never remove files through a mount.
            eprintln!("left behind: {}", dir.keep().display());
        }
        let _ = self.watchdog.send(());
    }
}

/// Gives the directory and what is in it to the user nobody.
fn chown_all(dir: &Path) {
    let status = std::process::Command::new("chown")
        .arg("-R")
        .arg(format!("{NOBODY}:{NOBODY}"))
        .arg(dir)
        .status();
    assert!(status.unwrap().success());
}

/// Cuts off every mount of ours below `root`; whether none is left.
fn clear(root: &Path) -> bool {
    for _ in 0..3 {
        let table = mounts().unwrap();
        let ours: Vec<_> = table
            .into_iter()
            .filter(|e| e.is_forebay() && e.point.starts_with(root))
            .collect();
        if ours.is_empty() {
            return true;
        }
        for entry in ours {
            let _ = unmount(&entry.point, true);
        }
    }
    false
}

/// Aborts the mounts of a test that still runs after two minutes, and ends the whole test program if that does not end the test.
fn watchdog(root: PathBuf) -> Sender<()> {
    let (send, receive) = channel();
    let limit = std::env::var("FOREBAY_TEST_TIMEOUT")
        .ok()
        .and_then(|s| s.parse().ok());
    let limit = Duration::from_secs(limit.unwrap_or(seeds::count(120, 3600)));
    let test = std::thread::current().name().unwrap_or("?").to_string();
    let root = std::fs::canonicalize(&root).unwrap_or(root);
    std::thread::spawn(move || {
        let start = Instant::now();
        if let Err(RecvTimeoutError::Timeout) = receive.recv_timeout(limit) {
            eprintln!(
                "WATCHDOG: test {test} is stuck after {:?}; cutting off its mounts",
                start.elapsed()
            );
            clear(&root);
            if let Err(RecvTimeoutError::Timeout) = receive.recv_timeout(Duration::from_secs(30)) {
                eprintln!("WATCHDOG: test {test} does not end; ending the test program");
                std::process::abort();
            }
        }
    });
    send
}
