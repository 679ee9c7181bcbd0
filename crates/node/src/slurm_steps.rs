//! The steps of this process's Slurm job on this machine: what a command has started, or is starting, with `srun`.
use crate::process_handle::wait_for_exit;
use crate::processes::{pids, start_ticks};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What a step of Slurm takes at most from the request for it until this machine has its first process.
const STEP_LAUNCH_LIMIT: Duration = Duration::from_secs(2);

/// Between two looks for such a process: nothing tells that one has begun.
const STEP_SCAN_INTERVAL: Duration = Duration::from_millis(20);

/// Waits, until `end` at most, for the steps of this process's Slurm job on this machine that began at `since` ([`start_ticks`]) or later,
/// also for those that a command has asked for and Slurm still starts: they may use the mounts though they have not yet. From the call on
/// no other step is asked for. Outside of Slurm there are none.
pub fn wait_for_launched(since: Option<u64>, end: Instant) {
    let (Some(since), Ok(job)) = (since, std::env::var("SLURM_JOB_ID")) else {
        return;
    };
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_step(&String::from_utf8_lossy(&line), &job)
            && start_ticks(*pid).is_some_and(|start| start >= since)
    };
    let launched = end.min(Instant::now() + STEP_LAUNCH_LIMIT);
    let mut steps = BTreeSet::new();
    while Instant::now() < launched {
        steps.extend(pids().into_iter().filter(is_one));
        std::thread::sleep(STEP_SCAN_INTERVAL);
    }
    for step in steps {
        wait_for_exit(step, end.saturating_duration_since(Instant::now()));
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
