//! What the tests of staging share: a service, trees to copy, and comparing them in all that is kept.
use forebay_client::Client;
use forebay_client::stage::{
    Direction, LocalNode, PathPair, ReportLine, StageCounts, StageOptions, StageOutcome, StageRun,
    StopReason,
};
use forebay_server::{Config, Service};
use forebay_storage::OsIo;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::tree_compare::listing;
use rustix::fs::{Mode, SeekFrom, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A running service, a directory for its stores and trees, and mounts to end with the test.
pub struct StagingFixture {
    service: Option<Service>,
    config: Config,
    mounts: Mounts,
    dir: tempfile::TempDir,
}

/// Mounts to end with the test.
#[derive(Default)]
struct Mounts(std::sync::Mutex<Vec<PathBuf>>);

/// How a run ended.
pub struct RunResult {
    pub outcome: StageOutcome,
    pub counts: StageCounts,
    pub lines: Vec<ReportLine>,
    pub stop: Option<StopReason>,
}

impl RunResult {
    pub fn of(job: &StageRun, outcome: StageOutcome) -> RunResult {
        let report = job.report();
        RunResult {
            outcome,
            counts: report.counts(),
            lines: report.lines(0, 1000),
            stop: report.stop(),
        }
    }
}

impl StagingFixture {
    pub fn new(nodes: u16) -> StagingFixture {
        StagingFixture::start(Config {
            nodes,
            ..Config::default()
        })
    }

    pub fn with_quota(nodes: u16, quota: u64) -> StagingFixture {
        StagingFixture::start(Config {
            nodes,
            quota: Some(quota),
            ..Config::default()
        })
    }

    fn start(config: Config) -> StagingFixture {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let service = Service::start(Arc::new(OsIo), &dir.path().join("store"), config.clone());
        StagingFixture {
            service: Some(service.unwrap()),
            config,
            mounts: Mounts::default(),
            dir,
        }
    }

    /// Stops the service, does something to its store, and starts it again.
    pub fn restart(&mut self, between: impl FnOnce(&Path)) {
        let store = self.dir.path().join("store");
        self.service.take().unwrap().stop().unwrap();
        between(&store);
        self.service = Some(Service::start(Arc::new(OsIo), &store, self.config.clone()).unwrap());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    pub fn clients(&self) -> Vec<Client> {
        let client = |n| Client::new(self.service().delegate(n));
        (0..self.config.nodes).map(client).collect()
    }

    pub fn bytes_read(&self) -> Vec<u64> {
        let read = |n| self.service().delegate(n).counters.totals().read_bytes;
        (0..self.config.nodes).map(read).collect()
    }

    pub fn job(
        &self,
        direction: Direction,
        from: &Path,
        to: &Path,
        options: &StageOptions,
    ) -> StageRun {
        self.job_of(self.clients(), direction, from, to, options)
    }

    /// Done by these clients, one for each node.
    pub fn job_of(
        &self,
        clients: Vec<Client>,
        direction: Direction,
        from: &Path,
        to: &Path,
        options: &StageOptions,
    ) -> StageRun {
        let local = |(node, client)| LocalNode {
            node: node as u16,
            client,
            journals: self.path("store").join(format!("node-{node}/stage")),
        };
        let pair = PathPair {
            from: from.into(),
            to: to.into(),
        };
        let local = clients.into_iter().enumerate().map(local).collect();
        let nodes = self.config.nodes;
        StageRun::new(direction, vec![pair], options.clone(), nodes, local, "test").unwrap()
    }

    pub fn run(
        &self,
        direction: Direction,
        from: &Path,
        to: &Path,
        options: &StageOptions,
    ) -> RunResult {
        let job = self.job(direction, from, to, options);
        let outcome = job.run();
        RunResult::of(&job, outcome)
    }

    /// A small file system; `None` where it may not be mounted.
    pub fn tmpfs(&self, name: &str, size: u64) -> Option<PathBuf> {
        let point = self.path(name);
        std::fs::create_dir(&point).unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        match rustix::mount::mount(
            "tmpfs",
            &point,
            "tmpfs",
            MountFlags::empty(),
            data.as_c_str(),
        ) {
            Ok(()) => {
                self.mounts.0.lock().unwrap().push(point.clone());
                Some(point)
            }
            Err(e) => {
                eprintln!("skipped: cannot mount a tmpfs ({e})");
                None
            }
        }
    }

    pub fn grow(&self, point: &Path, size: u64) {
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        rustix::mount::mount_remount(point, MountFlags::empty(), data.as_c_str()).unwrap();
    }

    pub fn read_only(&self, point: &Path) {
        rustix::mount::mount_remount(point, MountFlags::RDONLY, c"").unwrap();
    }
}

impl Drop for StagingFixture {
    fn drop(&mut self) {
        self.service.take();
        for point in self.mounts.0.lock().unwrap().iter() {
            let _ = rustix::mount::unmount(point, UnmountFlags::DETACH);
        }
    }
}

/// A tree with one of everything.
pub fn plant(top: &Path) {
    std::fs::create_dir_all(top.join("a/b/c")).unwrap();
    for n in 0..40 {
        let path = top.join(format!("a/f{n}"));
        std::fs::write(&path, seeded_bytes(n, n as usize * 997)).unwrap();
        let mode = [0o644, 0o600, 0o755, 0o444, 0o4711][n as usize % 5];
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::write(top.join("a/b/large"), seeded_bytes(77, (7 << 20) + 123)).unwrap();
    std::fs::write(
        top.join("a/b").join(OsStr::from_bytes(b"odd \xff\n name")),
        "odd",
    )
    .unwrap();
    std::fs::write(top.join("a/b/c/empty"), "").unwrap();
    // Holes before, between and behind data, in a small file and in one that is divided.
    for (name, size) in [("small-holes", 1u64 << 20), ("large-holes", 12 << 20)] {
        let file = std::fs::File::create(top.join(name)).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&seeded_bytes(5, 70_000), size / 4)
            .unwrap();
        file.write_all_at(&seeded_bytes(6, 9), size / 2).unwrap();
    }
    std::os::unix::fs::symlink("f1", top.join("a/link")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at all", top.join("a/dangling")).unwrap();
    std::fs::hard_link(top.join("a/f3"), top.join("a/b/f3 again")).unwrap();
    std::fs::hard_link(top.join("a/f3"), top.join("f3 too")).unwrap();
    std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        top.join("pipe"),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let set = |name: &str, value: &[u8], path: &Path| {
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    set("user.colour", b"blue\0green", &top.join("a/f2"));
    set("user.empty", b"", &top.join("a/f2"));
    set("user.long", &seeded_bytes(1, 2000), &top.join("a/b/large"));
    set("user.of-a-directory", b"x", &top.join("a/b"));
    std::fs::set_permissions(top.join("a/b/c"), PermissionsExt::from_mode(0o511)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(top.join("a/f1"), Some(1234), Some(4321)).unwrap();
        // Not those that do anything, should somebody open them.
        for (name, kind, number) in [
            ("zero", rustix::fs::FileType::CharacterDevice, (1, 5)),
            ("disk", rustix::fs::FileType::BlockDevice, (4095, 1_048_575)),
        ] {
            let number = rustix::fs::makedev(number.0, number.1);
            // A container may keep root from it.
            match rustix::fs::mknodat(rustix::fs::CWD, top.join(name), kind, mode, number) {
                Ok(()) | Err(rustix::io::Errno::PERM) => {}
                Err(e) => panic!("{name}: {e}"),
            }
        }
        std::os::unix::fs::lchown(top.join("a/link"), Some(12), Some(21)).unwrap();
    }
    let old = |path: PathBuf, secs: u64| {
        let file = std::fs::File::open(path).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(secs, 123_456_789);
        let times = std::fs::FileTimes::new()
            .set_modified(time)
            .set_accessed(time);
        file.set_times(times).unwrap();
    };
    old(top.join("a/f0"), 1_000_000_000);
    old(top.join("a/b"), 1_100_000_000);
}

/// Where a file has data: the first bytes of each run, for files with holes.
fn data_runs(path: &Path) -> Vec<(u64, u64)> {
    let file = std::fs::File::open(path).unwrap();
    let (mut runs, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        runs.push((start, at));
    }
    runs
}

/// Compares where files with holes have data.
#[track_caller]
pub fn assert_same_holes(a: &Path, b: &Path) {
    let names = listing(a).unwrap();
    let holes = names
        .keys()
        .filter(|p| p.to_string_lossy().ends_with("holes"));
    for path in holes {
        let (want, have) = (data_runs(&a.join(path)), data_runs(&b.join(path)));
        assert!(want.len() > 1, "the source has holes: {want:?}");
        assert_eq!(want, have, "{}", path.display());
    }
}

/// How many temporary names are left below a directory.
pub fn temporary_names(dir: &Path) -> usize {
    let temporary = |p: &&PathBuf| {
        let name = p.file_name().unwrap().as_bytes();
        name.starts_with(b".forebay-stage-")
    };
    listing(dir).unwrap().keys().filter(temporary).count()
}

/// Flips a bit of these bytes in the segment files of a stopped store.
pub fn flip(store: &Path, bytes: &[u8]) {
    for node in 0..64 {
        let data = store.join(format!("node-{node}/data"));
        for entry in std::fs::read_dir(data).into_iter().flatten() {
            let path = entry.unwrap().path();
            let mut content = std::fs::read(&path).unwrap();
            if let Some(at) = content.windows(bytes.len()).position(|w| w == bytes) {
                content[at] ^= 1;
                std::fs::write(&path, content).unwrap();
                return;
            }
        }
    }
    panic!("the bytes are in no segment");
}
