//! The steps of this process's Slurm job on this machine: what a command has started, or is starting, with `srun`.
//!
//! A step whose `srun` was killed runs until the job ends: nobody else ends its tasks. One that Slurm starts only after its `srun` has ended
//! does not reach its `srun`, and ends without a task.
use crate::process_handle::{ProcessHandle, wait_for_any};
use crate::processes::{below, has_variable, pids, start_ticks};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The variable that tells the processes of a command which `forebay run` it belongs to, as `PID@HOST`. What `srun` starts inherits it.
pub const COMMAND_VARIABLE: &str = "FOREBAY_COMMAND";

/// The longest time until the process of a step appears after its `srun` has ended.
const STEP_LAUNCH_LIMIT: Duration = Duration::from_secs(2);

/// The interval between scans for such a process: nothing tells that one has begun.
const STEP_SCAN_INTERVAL: Duration = Duration::from_millis(20);

/// The interval between scans for new tasks of steps that have not ended.
const TASK_SCAN_INTERVAL: Duration = Duration::from_millis(200);

/// The tasks of a command that is over, in steps that run on. They are known by [`COMMAND_VARIABLE`]: a task that `srun` gave another
/// environment (`--export`) is not found.
pub struct OrphanedTasks {
    /// Their [`COMMAND_VARIABLE`].
    pub command: String,
    /// They are killed from then on: until then whoever started them may end them.
    pub kill_from: Instant,
}

/// Waits, until `end` at most, for the steps of this process's Slurm job on this machine that began at `since` ([`start_ticks`]) or later,
/// also for those that a command has asked for and Slurm still starts: they may use the mounts though they have not yet. From the call on
/// no other step is asked for. Meanwhile kills the tasks `orphaned`. Outside of Slurm there are none.
pub fn wait_for_launched(since: Option<u64>, orphaned: Option<&OrphanedTasks>, end: Instant) {
    let (Some(since), Ok(job)) = (since, std::env::var("SLURM_JOB_ID")) else {
        return;
    };
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_step(&String::from_utf8_lossy(&line), &job)
            && start_ticks(*pid).is_some_and(|start| start >= since)
    };
    let launched = Instant::now() + STEP_LAUNCH_LIMIT;
    loop {
        let steps: Vec<u32> = pids().into_iter().filter(is_one).collect();
        let now = Instant::now();
        if let Some(tasks) = orphaned.filter(|tasks| now >= tasks.kill_from) {
            steps.iter().for_each(|step| tasks.kill_below(*step));
        }
        if now >= end || (steps.is_empty() && now >= launched) {
            return;
        }
        let interval = match now < launched {
            true => STEP_SCAN_INTERVAL,
            false => TASK_SCAN_INTERVAL,
        };
        match &steps[..] {
            [] => std::thread::sleep(interval),
            steps => wait_for_any(steps, &[], interval.min(end.saturating_duration_since(now))),
        }
    }
}

impl OrphanedTasks {
    /// Kills those that have `step` above them. The step has other processes too, which are not the command's.
    fn kill_below(&self, step: u32) {
        for pid in below(step, &[]) {
            // Held first, so that the process that is looked at is the one that is killed.
            let Ok(process) = ProcessHandle::open(pid) else {
                continue;
            };
            if has_variable(pid, COMMAND_VARIABLE, &self.command) {
                // Fails only if it has ended.
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}

/// Whether a process of this command line is the one that Slurm has for a step of `job` that `srun` has started: `slurmstepd: [JOB.STEP]`.
/// It runs from before the step's first task until after its last one.
fn is_step(line: &str, job: &str) -> bool {
    let name = line.strip_prefix("slurmstepd: [");
    let name = name.and_then(|rest| rest.split_once(']')?.0.split_once('.'));
    // Other steps have names instead of numbers: `batch`, `extern`.
    name.is_some_and(|(of, step)| of == job && step.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_step_the_tasks_of_the_command_are_killed_and_no_others() {
        use std::process::{Command, Stdio};
        // A step that has three tasks, of which one is the command's.
        let script = format!(
            "{COMMAND_VARIABLE}=7@here sleep 1000 & {COMMAND_VARIABLE}=7@there sleep 1000 & sleep 1000 & \
             wait $(jobs -p | head -1); echo one ended; kill $(jobs -p)"
        );
        let mut step = Command::new("bash");
        step.args(["-c", &script]).stdout(Stdio::piped());
        let step = step.spawn().unwrap();
        while below(step.id(), &[]).len() < 3 {
            std::thread::sleep(STEP_SCAN_INTERVAL);
        }
        let tasks = OrphanedTasks {
            command: "7@here".into(),
            kill_from: Instant::now(),
        };
        let alive = || below(step.id(), &[]);
        let is_ours = |pid: &u32| has_variable(*pid, COMMAND_VARIABLE, &tasks.command);
        while !alive().iter().any(is_ours) {
            std::thread::sleep(STEP_SCAN_INTERVAL);
        }
        let others: Vec<u32> = alive().into_iter().filter(|pid| !is_ours(pid)).collect();
        assert_eq!(others.len(), 2);
        tasks.kill_below(step.id());
        let said = step.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "one ended\n");
    }

    #[test]
    fn a_step_of_slurm_is_known_by_the_command_line_of_its_process() {
        assert!(is_step("slurmstepd: [12.0]\0\0", "12"));
        assert!(is_step("slurmstepd: [12.10] node", "12"));
        for line in [
            "slurmstepd: [112.4]",
            "slurmstepd: [12.batch]",
            "slurmstepd: [12.extern]",
            "slurmstepd infinity",
            "slurmstepd: [12",
            "",
        ] {
            assert!(!is_step(line, "12"), "{line}");
        }
    }
}
