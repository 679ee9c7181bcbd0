//! A service whose nodes each have a client, over either backend.
use forebay_client::Client;
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use forebay_server::fsck::{self, ByteCheck};
use forebay_server::{Config, Service};
use forebay_storage::{Io, OsIo};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Makes a test over each backend of a function that takes a [`BackendKind`].
macro_rules! over_both_backends {
    ($($test:ident),+ $(,)?) => {
        $(
            mod $test {
                use crate::backends::BackendKind;

                #[test]
                fn embedded() {
                    super::$test(BackendKind::Embedded);
                }

                #[test]
                fn link() {
                    super::$test(BackendKind::Link);
                }
            }
        )+
    };
}
pub(crate) use over_both_backends;

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let found = entries.map(|path| match path.is_dir() {
        true => walk(&path),
        false => vec![path],
    });
    found.flatten().collect()
}

/// How a client reaches its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    Embedded,
    Link,
}

/// See the head of this file.
pub struct World {
    /// A client for each node.
    pub clients: Vec<Client>,
    pub service: Service,
    links: Vec<LinkServer>,
    dir: tempfile::TempDir,
}

impl World {
    pub fn start(nodes: u16, kind: BackendKind) -> World {
        let config = Config {
            nodes,
            ..Config::default()
        };
        World::with(config, LinkLimits::default(), kind)
    }

    pub fn with(config: Config, limits: LinkLimits, kind: BackendKind) -> World {
        World::on(Arc::new(OsIo), config, limits, kind)
    }

    /// The same on this disk.
    pub fn on(io: Arc<dyn Io>, config: Config, limits: LinkLimits, kind: BackendKind) -> World {
        let dir = tempfile::tempdir().unwrap();
        let nodes = config.nodes;
        let store = dir.path().join("store");
        let service = Service::start(io, &store, config).unwrap();
        let links = (0..nodes).map(|node| {
            let socket = socket_of(dir.path(), node);
            LinkServer::start(&socket, service.delegate(node), limits).unwrap()
        });
        let links: Vec<_> = links.collect();
        let client = |node| match kind {
            BackendKind::Embedded => Client::new(service.delegate(node)),
            BackendKind::Link => Client::connect_member(dir.path(), node).unwrap(),
        };
        World {
            clients: (0..nodes).map(client).collect(),
            service,
            links,
            dir,
        }
    }

    /// Where the sockets are.
    pub fn place(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    /// Changes these bytes, which are somewhere in a segment, on the disk.
    pub fn damage(&self, bytes: &[u8]) {
        let segments = walk(&self.dir.path().join("store"))
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "seg"));
        let places: Vec<_> = segments
            .filter_map(|path| {
                let content = std::fs::read(&path).unwrap();
                let at = content.windows(bytes.len()).position(|w| w == bytes)?;
                Some((path, at as u64))
            })
            .collect();
        let [(path, at)] = &places[..] else {
            panic!("they are in {} places", places.len());
        };
        let segment = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        segment.write_all_at(&[!bytes[0]], *at).unwrap();
    }

    pub fn link(&self, node: u16) -> &LinkServer {
        &self.links[usize::from(node)]
    }

    /// Stops, and looks at the store.
    pub fn stop_and_check(self) {
        self.stop_links();
        let World { service, dir, .. } = self;
        service.stop().unwrap();
        let stores = [dir.path().join("store")];
        let bytes = ByteCheck::Bytes;
        let report = fsck::check(Arc::new(OsIo), &stores, bytes, &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{report:?}");
    }

    fn stop_links(&self) {
        self.links
            .iter()
            .for_each(|link| link.stop(Duration::from_secs(10)));
    }

    pub fn stop(self) {
        self.stop_links();
        self.service.stop().unwrap();
    }
}
