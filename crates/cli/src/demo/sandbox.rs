//! The place of the demo, removed at its end: one directory with a store, mount points and a plain directory, and the server
//! process, which is stopped before the directory is removed.
use crate::output::print_error_line;
use crate::scratch_dir::ScratchDir;
use crate::settings::ResolvedSettings;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::server_process::ServerProcess;
use forebay_node::spec::ServerSpec;
use forebay_node::units;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the shared file, before its number.
const FILE: &str = "checkpoint-";

/// The directory and the server; both are gone when it is dropped.
pub struct Sandbox {
    /// Ends before the directory goes.
    server: Option<ServerProcess>,
    spec: ServerSpec,
    limit: Duration,
    base: ScratchDir,
}

impl Sandbox {
    /// Makes the directories below `parent`, after checking that the disk has room for `size` bytes three times.
    ///
    /// # Errors
    /// If it has not, or they cannot be made.
    pub fn new(parent: &Path, size: u64, settings: &ResolvedSettings) -> Result<Sandbox> {
        let shown = parent.display();
        let parent = parent.canonicalize().or_fail(
            format!("cannot open the directory {shown}"),
            "create it, or name another with --dir",
        )?;
        let space = rustix::fs::statvfs(&parent).or_fail(
            format!("cannot read the free space of {shown}"),
            "name another with --dir",
        )?;
        let (free, need) = (
            space.f_bavail * space.f_frsize,
            size.saturating_mul(3).saturating_add(256 << 20),
        );
        if free < need {
            return Err(Failure::new(
                format!(
                    "{shown} has {} free and the demo needs {}",
                    units::size(free),
                    units::size(need)
                ),
                "name a directory on a larger disk with --dir, or give a smaller --size",
            ));
        }
        let base = parent.join(format!("forebay-demo-{}", std::process::id()));
        let made = ScratchDir::new(&base).and_then(|base| {
            std::fs::create_dir(base.path().join("mounts"))?;
            std::fs::create_dir(base.path().join("plain"))?;
            Ok(base)
        });
        let base = made.or_fail(
            format!("cannot create the directory {}", base.display()),
            "name a directory of your own with --dir",
        )?;
        let mount = |n: u16| base.path().join("mounts").join(n.to_string());
        Ok(Sandbox {
            server: None,
            spec: ServerSpec {
                store: base.path().join("store"),
                mounts: (0..settings.values.service.nodes).map(mount).collect(),
                settings: settings.texts(),
                with_parent: true,
                salvage: None,
            },
            limit: settings.values.start_limit,
            base,
        })
    }

    /// Starts the server.
    ///
    /// # Errors
    /// What the server says.
    pub fn start(&mut self) -> Result {
        self.server = Some(ServerProcess::start(
            &self.spec,
            self.limit,
            |line| print_error_line(line),
            |_| {},
        )?);
        Ok(())
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// The store.
    pub fn store(&self) -> &Path {
        &self.spec.store
    }

    /// The server.
    ///
    /// # Errors
    /// If it does not run.
    pub fn server(&self) -> Result<&ServerProcess> {
        self.server
            .as_ref()
            .ok_or_else(|| Failure::new("the demo's service does not run", "report this"))
    }

    /// A shared file, seen from a node.
    pub fn shared(&self, node: usize, checkpoint: u64) -> PathBuf {
        self.spec.mounts[node % self.spec.mounts.len()].join(format!("{FILE}{checkpoint}"))
    }

    /// The file on the plain disk.
    pub fn plain(&self) -> PathBuf {
        self.base.path().join("plain").join(format!("{FILE}0"))
    }

    /// Stops the server cleanly, if it runs.
    ///
    /// # Errors
    /// If it did not stop cleanly.
    pub fn stop(&mut self, limit: Duration) -> Result {
        self.server
            .take()
            .map_or(Ok(()), |server| server.stop(limit))
    }
}

/// Writes back and drops the page cache, so that reads come from the disk.
///
/// # Errors
/// If this user may not.
pub fn cold_cache() -> std::io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
