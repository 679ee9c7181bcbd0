//! A recording disk with a store on it, a service over that store with a mount for each member, and the same again on what a
//! cut leaves.
use crate::common::{role, start_ready};
use forebay_fuse::{Mount, MountOptions, PendingMount};
use forebay_server::{Config, Service, fsck};
use forebay_storage::{Durability, OsIo};
use forebay_testkit::disk::{IMAGE, Loss, Mounted, Recording, make_ext4, position};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

const BYTES: u64 = 512 << 20;

/// What a service is started as.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub nodes: u16,
    /// Durability `disk`, else `process`.
    pub disk: bool,
}

/// The serving process: store, root of the mounts, nodes, whether its durability is `disk`.
pub fn serve(args: &[&str]) {
    let [store, root, nodes, disk] = args else {
        panic!("service: {args:?}")
    };
    let config = Config {
        nodes: nodes.parse().unwrap(),
        memory: 32 << 20,
        durability: match *disk {
            "true" => Durability::Disk,
            _ => Durability::Process,
        },
        ..Config::default()
    };
    let nodes = config.nodes;
    let service = Service::start(Arc::new(OsIo), Path::new(store), config).unwrap();
    let mount = |n: u16| {
        let point = Path::new(root).join(n.to_string());
        PendingMount::mount(point, MountOptions::default())?.answer(service.delegate(n))
    };
    let mounts: Vec<Mount> = (0..nodes).map(|n| mount(n).unwrap()).collect();
    println!("\nREADY");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    mounts.into_iter().for_each(|m| m.stop().unwrap());
    service.stop().unwrap();
}

/// A started child that has said `READY`.
fn ready(name: &str, args: &[&str]) -> Child {
    start_ready(role(name, args)).unwrap_or_else(|said| panic!("{name} {args:?} ended: {said}"))
}

/// A running service.
pub struct Served {
    child: Child,
    mounts: Vec<PathBuf>,
    store: PathBuf,
    /// What a cut left, if this is what runs on it.
    on: Option<Mounted>,
}

impl Served {
    pub fn mount(&self, n: usize) -> &Path {
        &self.mounts[n]
    }

    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Kills it, and unmounts what it leaves.
    fn kill(mut self) -> Option<Mounted> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for mount in &self.mounts {
            let status = Command::new("umount")
                .arg("--lazy")
                .arg(mount)
                .status()
                .unwrap();
            assert!(status.success());
        }
        self.on.take()
    }
}

pub struct Rig {
    dir: tempfile::TempDir,
    disk: Child,
    mounted: std::cell::RefCell<Option<Mounted>>,
}

impl Rig {
    pub fn start() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        for name in ["disk", "ext4", "after"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let path = |name: &str| dir.path().join(name);
        let bytes = BYTES.to_string();
        let (at, spool) = (path("disk"), path("spool"));
        let disk = ready(
            "disk",
            &[at.to_str().unwrap(), spool.to_str().unwrap(), &bytes],
        );
        make_ext4(&at.join(IMAGE)).unwrap();
        let mounted = Mounted::new(&at.join(IMAGE), &path("ext4")).unwrap();
        Rig {
            disk,
            mounted: std::cell::RefCell::new(Some(mounted)),
            dir,
        }
    }

    /// The store on the recording disk.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("ext4/store")
    }

    /// Events of the disk so far.
    pub fn position(&self) -> usize {
        position(&self.dir.path().join("disk")).unwrap()
    }

    pub fn serve(&self, store: &Path, setup: Setup) -> Served {
        let root = tempfile::Builder::new()
            .prefix("mounts")
            .tempdir_in(self.dir.path())
            .unwrap()
            .keep();
        let mounts: Vec<PathBuf> = (0..setup.nodes).map(|n| root.join(n.to_string())).collect();
        mounts.iter().for_each(|m| std::fs::create_dir(m).unwrap());
        let args = [
            store.to_str().unwrap(),
            root.to_str().unwrap(),
            &setup.nodes.to_string(),
            &setup.disk.to_string(),
        ];
        Served {
            child: ready("service", &args),
            mounts,
            store: store.to_path_buf(),
            on: None,
        }
    }

    /// Kills the service on the recording disk, and answers all that the disk saw.
    pub fn end(&self, served: Served) -> Recording {
        served.kill();
        drop(self.mounted.borrow_mut().take());
        Recording::read(&self.dir.path().join("spool"), BYTES).unwrap()
    }

    /// A service on what is left after a cut behind `at` events. What else is lost, `seed` says.
    pub fn cut(&self, recording: &Recording, at: usize, seed: u64, setup: Setup) -> (Loss, Served) {
        let loss = match seed % 4 {
            0 => Loss::All,
            1 => Loss::None,
            _ => Loss::Some(seed),
        };
        let image = self.dir.path().join("cut.img");
        recording.cut(at, loss, &image).unwrap();
        let mounted = Mounted::new(&image, &self.dir.path().join("after")).unwrap();
        let mut served = self.serve(&mounted.point().join("store"), setup);
        served.on = Some(mounted);
        (loss, served)
    }

    /// Ends a service that started after a cut, in order; what is wrong with the records of its store then.
    pub fn end_of_cut(&self, mut after: Served) -> Vec<String> {
        drop(after.child.stdin.take());
        assert!(after.child.wait().unwrap().success());
        let report = fsck::check(
            Arc::new(OsIo),
            &[after.store().to_path_buf()],
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        )
        .unwrap();
        // Bytes that were never synced may be lost, and so what lies in segments; names, attributes and records may not.
        let ours = |problem: &&fsck::FsckProblem| {
            !["data", "segments", "extents"].contains(&&problem.part[..])
        };
        let wrong: Vec<_> = report.problems.iter().filter(ours).collect();
        let wrong: Vec<String> = wrong.iter().map(|p| p.text.clone()).collect();
        drop(after.on.take());
        wrong
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.mounted.borrow_mut().take());
        drop(self.disk.stdin.take());
        let _ = self.disk.wait();
    }
}
