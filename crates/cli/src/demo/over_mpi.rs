//! The demo's last part: the same kind of checkpoint on servers that are processes of an MPI job.
//!
//! ```text
//!  demo -- forebay run -+- mpirun -- forebay serve, one process and one mount a node
//!                       +- forebay __over-mpi -- writers, then readers on other mounts
//! ```
//!
//! `run` sees to it that nothing stays behind; the demo asks it to end when the user wants to stop.
use super::phase::Phase;
use super::{WRITERS, reader};
use crate::scratch_dir::ScratchDir;
use crate::settings::ResolvedSettings;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::process_handle::wait_for_child;
use forebay_node::transport;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most bytes of this part: it shows that it works, the first part how fast.
const MAX_BYTES: u64 = 256 << 20;

/// The user's Ctrl-C is seen after this long at most.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);

/// What it found; `Some` only if every byte was right.
#[derive(Debug, Serialize, Deserialize)]
pub struct OverMpi {
    /// Which MPI, and of which version.
    pub library: String,
    /// Server processes, and mounts.
    pub servers: u16,
    /// Size of the file, bytes; as much was verified.
    pub size: u64,
    /// Time to write it, seconds.
    pub write_seconds: f64,
    /// Time to read it through other mounts, seconds.
    pub read_seconds: f64,
}

/// Runs this part in a new directory below `parent`; `None` where there is no `mpirun`.
///
/// # Errors
/// What `run` or the processes say; the user's Ctrl-C.
pub fn show(
    parent: &Path,
    size: u64,
    settings: &ResolvedSettings,
    interrupted: &AtomicBool,
) -> Result<Option<OverMpi>> {
    if !transport::IS_BUILT_IN || !crate::run::has_mpirun() {
        return Ok(None);
    }
    let base = parent.join(format!("forebay-demo-mpi-{}", std::process::id()));
    let nodes = settings.values.service.nodes;
    let made = ScratchDir::new(&base).and_then(|base| {
        let mut mounts = (0..nodes).map(|k| base.path().join(format!("m{k}")));
        mounts.try_for_each(std::fs::create_dir)?;
        Ok(base)
    });
    let base = made.or_fail(
        format!("cannot make directories in {}", base.display()),
        "name a directory of your own with --dir",
    )?;
    job(base.path(), size.min(MAX_BYTES), settings, interrupted).map(Some)
}

fn job(
    base: &Path,
    size: u64,
    settings: &ResolvedSettings,
    interrupted: &AtomicBool,
) -> Result<OverMpi> {
    let program = std::env::current_exe().or_fail("cannot find this program", "report this")?;
    let mut command = Command::new(&program);
    command.args(["run", "--launcher", "mpirun"]);
    command.arg("--store").arg(base.join("n{rank}"));
    command.arg("--mount").arg(base.join("m{rank}"));
    command.args(settings.flags(|_| true));
    command.arg("--").arg(&program);
    command.args(["__over-mpi", &size.to_string()]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .or_fail("cannot start a process", "raise the limit on processes")?;
    let mut asked = false;
    let status = loop {
        match wait_for_child(&mut child, INTERRUPT_CHECK) {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => {
                return Err(Failure::new(
                    format!("cannot wait for `forebay run`: {e}"),
                    "report this",
                ));
            }
        }
        if interrupted.load(Ordering::Relaxed) && !asked {
            asked = true;
            // Fails only if it has ended.
            let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TERM);
        }
    };
    // A few lines, which fit the pipe.
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        let _ = out.read_to_string(&mut said);
    }
    if asked {
        return Err(super::interrupted());
    }
    if !status.success() {
        return Err(Failure::new(
            format!("the part of the demo over MPI failed ({status})"),
            "see above; `forebay run --launcher mpirun` shows whether MPI works here",
        ));
    }
    serde_json::from_str(said.trim()).or_fail(
        format!("the part of the demo over MPI said: {said}"),
        "report this",
    )
}

/// The hidden subcommand, below `run`: writes on all mounts of the service, reads on others, and says what it took.
///
/// # Errors
/// Any wrong byte or failed call.
pub fn inside(size: u64) -> Result {
    let mounts = std::env::var_os("FOREBAY_MOUNTS").unwrap_or_default();
    let mounts: Vec<PathBuf> = std::env::split_paths(&mounts).collect();
    if mounts.len() < 2 {
        return Err(Failure::new(
            "this is an internal command",
            "use `forebay demo`",
        ));
    }
    let servers = mounts.len() as u16;
    let interrupted = AtomicBool::new(false);
    let seed = super::seed();
    let phase = |label: &str, write: bool| {
        let path = |rank: u64| {
            let node = match write {
                true => (rank % mounts.len() as u64) as usize,
                false => reader(rank, WRITERS, servers),
            };
            mounts[node].join("checkpoint")
        };
        Phase {
            label,
            write,
            ranks: WRITERS,
            path: &path,
            size,
            seed,
            checkpoint: 0,
            interrupted: &interrupted,
        }
        .run()
    };
    let (write, _) = phase("over MPI: write", true)?;
    let (read, verified) = phase("over MPI: read", false)?;
    let library = transport::library().unwrap_or_default();
    let library = library.split([',', '\n']).next().unwrap_or_default();
    let found = OverMpi {
        library: library.split_whitespace().collect::<Vec<_>>().join(" "),
        servers,
        size: verified,
        write_seconds: write.as_secs_f64(),
        read_seconds: read.as_secs_f64(),
    };
    crate::output::print(crate::output::json(&found)?)
}
