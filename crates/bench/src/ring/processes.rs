//! Servers as processes of an MPI job on this machine: this program started again under `mpirun`.

use super::measure::{self, MeetingPoint, RingLoad, RingMeasurement};
use crate::fail::{Context, Failure, Result};
use forebay_fabric::session::{Identity, Timing};
use forebay_mpi as mpi;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Marks the line that a rank says its results in; `mpirun` may say something too.
const RESULTS: &str = "ring-results ";
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `n` processes.
///
/// # Errors
/// If `mpirun` does not start, or a rank fails.
pub fn start(n: u32, work: &RingLoad) -> Result<Vec<RingMeasurement>> {
    let open = mpi::library().contains("Open MPI");
    let name = match open {
        true => "mpirun.openmpi",
        false => "mpirun.mpich",
    };
    let name = std::env::var("FOREBAY_MPIRUN").unwrap_or_else(|_| name.into());
    let mut command = Command::new(&name);
    if open {
        command.args(["--oversubscribe", "--allow-run-as-root"]);
    }
    let program = std::env::current_exe().doing("the path of this program")?;
    command.arg("-n").arg(n.to_string()).arg(program);
    command.arg("__ring-rank");
    command.args(["--clients", &work.clients.to_string()]);
    command.args(["--rounds", &work.rounds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().doing(&name)?;
    if !output.status.success() {
        return Err(Failure::new(format!("{name}: {}", output.status)));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let results = said.lines().find_map(|line| line.strip_prefix(RESULTS));
    let results = results.ok_or_else(|| Failure::new("the ranks found nothing"))?;
    Ok(serde_json::from_str(results)?)
}

/// What each process does.
///
/// # Errors
/// If it was not started by `mpirun`, or a message is lost.
pub fn rank(work: &RingLoad) -> Result<()> {
    let job = mpi::start()?;
    let identity = Identity {
        version: 1,
        secret: b"benchmark".to_vec(),
        member: job.process,
        members: job.processes,
        service: [0; 16],
    };
    let timing = Timing {
        heartbeat: Duration::from_secs(1),
        limit: OPERATION_TIMEOUT,
        join: OPERATION_TIMEOUT,
    };
    let session = job.join(identity, timing)?;
    let meeting = MeetingPoint::new(session.fabric())?;
    let found = measure::serve(session.fabric(), meeting, work)?;
    if session.rank() == 0 {
        println!("{RESULTS}{}", serde_json::to_string(&found)?);
    }
    session.stop(OPERATION_TIMEOUT);
    Ok(())
}
