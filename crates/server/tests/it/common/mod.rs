//! What the tests of a whole service share.
use forebay_fabric::Fabric;
use forebay_fabric::fault::Faults;
use forebay_server::delegate::{Delegate, Handle};
use forebay_server::{
    Caller, CodecConfig, CodecWhen, Config, Fid, OpenFlags, Service, SettleConfig,
};
use forebay_storage::OsIo;
use forebay_storage::fault::FaultIo;
pub use forebay_testkit::prerequisites::scratch;
use forebay_testkit::random::Random;
use forebay_testkit::wait::{LIMIT, until, until_or};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

pub const ROOT: Caller = Caller { uid: 0, gid: 0 };
pub const SLICE: u64 = 64 << 20;
pub const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
};
pub const BOTH: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    truncate: false,
};

pub fn config(nodes: u16) -> Config {
    Config {
        nodes,
        memory: 16 << 20,
        settle: settling(false),
        ..Config::default()
    }
}

/// All files are encoded when they are written out, when they settle, or never, by chance.
pub fn any_encoding(random: &mut Random, settles: bool) -> CodecConfig {
    encoding(match random.below(3) {
        0 => CodecWhen::Off,
        1 if settles => CodecWhen::Settle,
        _ => CodecWhen::Inline,
    })
}

/// All files are encoded then.
pub fn encoding(when: CodecWhen) -> CodecConfig {
    CodecConfig {
        when,
        names: Arc::new("*=auto".parse().unwrap()),
    }
}

/// Stored bytes are settled in the background, or not.
pub fn settling(enabled: bool) -> SettleConfig {
    SettleConfig {
        enabled,
        ..SettleConfig::default()
    }
}

pub fn start(dir: &TempDir, config: Config) -> Service {
    Service::start(Arc::new(OsIo), &dir.path().join("store"), config).unwrap()
}

/// The same with other ends of the fabric.
pub fn start_over(
    dir: &TempDir,
    config: Config,
    wrap: impl Fn(Arc<dyn Fabric>) -> Arc<dyn Fabric>,
) -> Service {
    let store = dir.path().join("store");
    Service::start_over(Arc::new(OsIo), &store, config, wrap).unwrap()
}

/// The same over a network with these faults.
pub fn start_faulty(dir: &TempDir, config: Config, faults: &Arc<Faults>) -> Service {
    start_over(dir, config, |end| faults.wrap(end))
}

/// On a disk that exists in memory only.
pub fn start_on(disk: &FaultIo, config: Config) -> Service {
    Service::start(Arc::new(disk.clone()), Path::new("/nowhere/store"), config).unwrap()
}

/// Creates and opens a file of the root directory.
pub fn create(delegate: &Delegate, name: &str) -> (Fid, Handle) {
    let opened = delegate
        .create(Fid::ROOT, name.as_bytes(), 0o644, false, BOTH, ROOT)
        .unwrap();
    (opened.attr.fid, opened.handle)
}

/// Opens a file as a mount does: the kernel's pages of before are gone.
pub fn open_as_mount(delegate: &Delegate, fid: Fid, flags: OpenFlags) -> Handle {
    let opened = delegate.open(fid, flags).unwrap();
    if let Some(stale) = opened.stale {
        delegate.kernel_pages.dropped_pages(stale);
    }
    opened.handle
}

/// All of a file as a new open on this node shows it.
pub fn contents(delegate: &Delegate, fid: Fid) -> Vec<u8> {
    let opened = delegate.open(fid, READ).unwrap();
    let mut all = Vec::new();
    loop {
        let bytes = delegate
            .read(opened.handle, all.len() as u64, 1 << 20)
            .unwrap();
        if bytes.is_empty() {
            break;
        }
        all.extend_from_slice(&bytes);
    }
    assert_eq!(all.len() as u64, opened.attr.size);
    delegate.release(opened.handle).unwrap();
    all
}

/// Does the background work of every member until nothing is left to do.
pub fn wait_until_idle(service: &Service) {
    let idle = |n: &Arc<forebay_server::MemberParts>| n.files.pending().unwrap() == 0;
    until("the background work ends", || {
        for node in service.nodes() {
            node.files.drain().unwrap();
        }
        service.nodes().iter().all(idle)
    });
}

/// By member: bytes of file data, and extents.
pub fn stored(service: &Service) -> Vec<(u64, u64)> {
    let status = service.status().unwrap();
    let figures = |s: &forebay_server::MemberStatus| (s.data_bytes, s.extents.unwrap());
    status.iter().map(figures).collect()
}

/// The files are all removed: waits until nothing is stored any more, or fails.
pub fn wait_until_empty(service: &Service) {
    let nothing = |s: &(u64, u64)| *s == (0, 0);
    let what = || {
        format!(
            "of removed files something is stored: {:?}",
            stored(service)
        )
    };
    until_or(LIMIT, what, || {
        wait_until_idle(service);
        stored(service).iter().all(nothing)
    });
}
