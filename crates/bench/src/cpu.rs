//! Processor time.
use crate::fail::{Context, Failure, Result};
use rustix::time::ClockId;

/// User and system seconds of a process so far, all its threads; to a clock tick (10 ms).
///
/// # Errors
/// If there is no such process.
pub fn of_process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).doing(&path)?;
    parse_stat(&text, rustix::param::clock_ticks_per_second())
        .ok_or_else(|| Failure::new(format!("{path}: not understood")))
}

fn parse_stat(text: &str, ticks: u64) -> Option<f64> {
    // The name in brackets may hold anything; numbers follow the last bracket: state is field 3, utime 14, stime 15.
    let mut fields = text[text.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
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
    fn time_is_read_behind_a_strange_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        assert_eq!(parse_stat(stat, 100), Some(3.0));
        assert!(of_process(std::process::id()).is_ok_and(|s| s >= 0.0));
        assert!(of_self() > 0.0 && of_thread() > 0.0);
    }
}
