//! The specification that a server process is started with, and its reports while it starts. Both travel as JSON over pipes.
use crate::failure::{Failure, Result};
use crate::limits::within;
use forebay_server::escape::escaped_name;
use forebay_storage::OsIo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything a server process needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerSpec {
    /// The store, absolute.
    pub store: PathBuf,
    /// One mount point a member, absolute; none: a service without mounts.
    pub mounts: Vec<PathBuf>,
    /// The settings as texts.
    pub settings: BTreeMap<String, String>,
    /// The server ends with the process that started it (demo and replay).
    pub with_parent: bool,
    /// Only what is whole is served, and only to read.
    #[serde(default)]
    pub salvage: Option<SalvageSpec>,
}

/// What a server that salvages needs to know besides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SalvageSpec {
    /// The store of a whole service, or the stores of its members, absolute.
    pub stores: Vec<PathBuf>,
    /// Where new records are made, absolute.
    pub scratch: PathBuf,
}

impl SalvageSpec {
    /// Where the list of what is not whole goes.
    pub fn list(store: &Path) -> PathBuf {
        store.join("salvage.txt")
    }
}

/// One line from a starting server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ServerReport {
    /// What it does now.
    Step(String),
    /// The server of a job has begun, on this host.
    Begun {
        /// The name of its machine.
        host: String,
    },
    /// The program does not run on this host; said by the shell that was to become the server.
    CannotRun {
        /// The name of its machine.
        host: String,
        /// What the attempt said there.
        said: String,
    },
    /// It holds the store's lock: from here on every mount of the store is its own, or dead.
    Opened,
    /// All mounts answer.
    Ready,
    /// All mounts of all processes answer.
    AllReady(Vec<MemberLocation>),
    /// This member, of another process, has died.
    Died(u16),
    /// The service stops though the command has not ended.
    Stopping {
        /// The member that stopped first, as far as the reporting one knows.
        member: u16,
        /// Why.
        why: String,
    },
    /// The reporting member has stopped, well or not.
    Stopped(u16),
    /// It gave up.
    Failed(ServerFailure),
}

/// Why a server gave up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerFailure {
    /// Exit code; what, where, next step.
    #[serde(flatten)]
    pub failure: Failure,
    /// It gave up only because another server did.
    #[serde(default)]
    pub follows: bool,
    /// It gave up waiting for the servers on other hosts.
    #[serde(default)]
    pub for_others: bool,
}

impl From<Failure> for ServerFailure {
    fn from(failure: Failure) -> ServerFailure {
        ServerFailure {
            failure,
            follows: false,
            for_others: false,
        }
    }
}

/// Where one member of a service over several processes is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLocation {
    /// The member.
    pub member: u16,
    /// The name of its machine, as the machine itself says it.
    pub host: String,
    /// Where.
    pub mount: PathBuf,
    /// Its process, as its machine numbers it.
    pub pid: u32,
}

/// The name of this machine.
pub fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// What `run` is told names the host that it comes from; `serve` itself runs where it is read.
pub fn on_this_host(launched: bool, text: &str) -> String {
    match launched {
        true => format!("on {}: {text}", host()),
        false => text.into(),
    }
}

impl ServerSpec {
    /// The service of `store` with `nodes` nodes, mounted below `mountpoint`.
    ///
    /// # Errors
    /// If a path is missing or in use, or one lies in the other.
    pub fn new(
        store: &Path,
        mountpoint: &Path,
        nodes: u16,
        settings: BTreeMap<String, String>,
    ) -> Result<ServerSpec> {
        let spec = ServerSpec::of_nodes(store, mountpoint, nodes, settings)?;
        outside_stores(&spec.store)?;
        Ok(spec)
    }

    /// The service of `store`, which only programs reach that use Forebay's libraries.
    ///
    /// # Errors
    /// As [`ServerSpec::new`].
    pub fn without_mounts(store: &Path, settings: BTreeMap<String, String>) -> Result<ServerSpec> {
        let store = crate::mount_table::absolute(store)?;
        outside_stores(&store)?;
        Ok(ServerSpec {
            store,
            mounts: Vec::new(),
            settings,
            with_parent: false,
            salvage: None,
        })
    }

    /// What is whole of the stores, mounted at one place; the first of them has the log and the socket.
    ///
    /// # Errors
    /// As [`ServerSpec::new`].
    pub fn to_salvage(
        salvage: SalvageSpec,
        mountpoint: &Path,
        settings: BTreeMap<String, String>,
    ) -> Result<ServerSpec> {
        let Some(first) = salvage.stores.first() else {
            return Err(Failure::usage("no store is there", "name one that is"));
        };
        let spec = ServerSpec::of_nodes(first, mountpoint, 1, settings)?;
        Ok(ServerSpec {
            salvage: Some(salvage),
            ..spec
        })
    }

    fn of_nodes(
        store: &Path,
        mountpoint: &Path,
        nodes: u16,
        settings: BTreeMap<String, String>,
    ) -> Result<ServerSpec> {
        let store = crate::mount_table::absolute(store)?;
        let mounts = points(mountpoint, nodes)?;
        mounts
            .iter()
            .try_for_each(|point| check_mount_outside_store(&store, point))?;
        Ok(ServerSpec {
            store,
            mounts,
            settings,
            with_parent: false,
            salvage: None,
        })
    }
}

/// Whether a store and a mount point do not lie in each other.
///
/// # Errors
/// A usage failure that names both.
pub fn check_mount_outside_store(store: &Path, point: &Path) -> Result {
    if !point.starts_with(store) && !store.starts_with(point) {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "the mount point {} and the store {} lie in each other",
            point.display(),
            store.display()
        ),
        "name two separate directories",
    ))
}

/// A store inside another one's directory would be lost with that one, and is no part of it.
///
/// # Errors
/// A usage failure that names the store it lies in.
pub fn outside_stores(store: &Path) -> Result {
    let above: Vec<PathBuf> = store.ancestors().skip(1).map(PathBuf::from).collect();
    let shown = name(store);
    let is_store = |dir: &PathBuf| forebay_server::superblock::is_in(&OsIo, dir).unwrap_or(false);
    let found = within(
        Duration::from_secs(10),
        &format!("looking at the directories above {shown}"),
        move || above.into_iter().find(is_store),
    )?;
    match found {
        None => Ok(()),
        Some(outer) => Err(Failure::usage(
            format!("{shown} lies in the store {}", name(&outer)),
            "name a directory outside of it",
        )),
    }
}

fn name(path: &Path) -> String {
    escaped_name(path.as_os_str().as_bytes())
}

/// The mount point of every node.
fn points(mountpoint: &Path, nodes: u16) -> Result<Vec<PathBuf>> {
    let text = mountpoint.to_string_lossy();
    if text.contains("{node}") {
        let path = |node: u16| {
            crate::mount_table::absolute(Path::new(&text.replace("{node}", &node.to_string())))
        };
        return (0..nodes).map(path).collect();
    }
    let base = crate::mount_table::absolute(mountpoint)?;
    Ok(if nodes == 1 {
        vec![base]
    } else {
        (0..nodes).map(|node| base.join(node.to_string())).collect()
    })
}
