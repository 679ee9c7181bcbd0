//! Processor time.
use crate::fail::{Context, Failure, Result};
use rustix::time::ClockId;

/// User and system seconds of a process so far, all its threads; to a clock tick (10 ms).
///
/// # Errors
/// If there is no such process.
pub fn of_process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    read_stat(&path, UTIME)
}

/// User and system seconds so far of those threads of a process that have one of these names and still run; to a clock tick each.
///
/// # Errors
/// If there is no such process, or none of its threads has one of the names.
pub fn of_threads(pid: u32, names: &[&str]) -> Result<f64> {
    let tasks = format!("/proc/{pid}/task");
    let mut seconds = None;
    for task in std::fs::read_dir(&tasks).doing(&tasks)? {
        let task = task.doing(&tasks)?.path();
        // A thread that has just ended has no files any more.
        let read = |file: &str| std::fs::read_to_string(task.join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("stat")) else {
            continue;
        };
        if names.contains(&name.trim_end()) {
            let place = task.join("stat");
            *seconds.get_or_insert(0.0) += seconds_of_stat(&place.display(), &stat, UTIME)?;
        }
    }
    seconds.ok_or_else(|| {
        Failure::new(format!(
            "{tasks}: no thread is named {}",
            names.join(" or ")
        ))
    })
}

/// User and system seconds of all children of this process that have ended and were waited for, and of theirs; to a clock tick.
///
/// # Errors
/// If the kernel does not tell.
pub fn of_ended_children() -> Result<f64> {
    read_stat("/proc/self/stat", CUTIME)
}

/// Numbers of fields behind the name: utime is field 14 of all, cutime 16; each is followed by the system's time.
const UTIME: usize = 11;
const CUTIME: usize = 13;

fn read_stat(path: &str, first: usize) -> Result<f64> {
    let text = std::fs::read_to_string(path).doing(path)?;
    seconds_of_stat(&path, &text, first)
}

fn seconds_of_stat(path: &dyn std::fmt::Display, text: &str, first: usize) -> Result<f64> {
    parse_stat(text, first, rustix::param::clock_ticks_per_second())
        .ok_or_else(|| Failure::new(format!("{path}: not understood")))
}

fn parse_stat(text: &str, first: usize, ticks: u64) -> Option<f64> {
    // The name in brackets may hold anything; numbers follow the last bracket, and state is field 3.
    let mut fields = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(first);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some((utime + stime) as f64 / ticks as f64)
}

/// User and system seconds of this process.
pub fn of_self() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// User and system seconds of this thread.
pub fn of_thread() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// What a clock of the kernel says, in seconds.
pub fn seconds(clock: ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_was_waited_for_counts() {
        let before = of_ended_children().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh");
        assert!(child.args(["-c", script]).status().unwrap().success());
        assert!(of_ended_children().unwrap() > before);
    }

    #[test]
    fn threads_are_counted_by_their_names() {
        let me = std::process::id();
        let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let work = std::thread::Builder::new().name("counts-a-while".into());
            let spin = || {
                while of_thread() < 0.05 {
                    std::hint::spin_loop();
                }
                ready.wait();
                go.wait();
            };
            work.spawn_scoped(scope, spin).unwrap();
            ready.wait();
            let counted = of_threads(me, &["counts-a-while", "another"]);
            go.wait();
            let counted = counted.unwrap();
            assert!((0.03..=of_self() + 0.02).contains(&counted), "{counted}");
        });
        let none = of_threads(me, &["no-such-thread"]).err().unwrap();
        assert!(none.0.contains("no-such-thread"), "{}", none.0);
    }

    #[test]
    fn time_is_read_behind_a_strange_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        assert_eq!(parse_stat(stat, UTIME, 100), Some(3.0));
        assert_eq!(parse_stat(stat, CUTIME, 100), Some(0.0));
        assert!(of_process(std::process::id()).is_ok_and(|s| s >= 0.0));
        assert!(of_self() > 0.0 && of_thread() > 0.0);
    }
}
