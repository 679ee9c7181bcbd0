//! The process groups that have used a mount. When the service stops, they tell whether a program that used it still runs.
//!
//! Groups are kept instead of processes, because a file is often opened by a short-lived child process. Once there are many
//! groups, those without a process are dropped. A request costs one lookup in a table of the processes seen last.
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places in the table of processes seen last.
const RECENT_SLOTS: usize = 1024;

/// Groups that are kept without a look whether they still have processes.
const GROUPS_BEFORE_CHECK: usize = 1024;

/// See the head of this file.
pub(crate) struct CallerGroups {
    last: Vec<AtomicU32>,
    groups: Mutex<ProcessGroups>,
}

struct ProcessGroups {
    seen: BTreeSet<u32>,
    /// At this number of groups, those without a process are dropped.
    limit: usize,
}

impl ProcessGroups {
    fn add(&mut self, group: u32) {
        self.seen.insert(group);
        if self.seen.len() > self.limit {
            self.seen.retain(|group| has_processes(*group));
            // Half of them at least are new before the next look.
            self.limit = GROUPS_BEFORE_CHECK.max(2 * self.seen.len());
        }
    }
}

/// Whether a process group has one, if only one that nobody has waited for yet.
fn has_processes(group: u32) -> bool {
    let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) else {
        return false;
    };
    // Others' processes answer that they may not be signalled.
    rustix::process::test_kill_process_group(group) != Err(Errno::SRCH)
}

impl Default for CallerGroups {
    fn default() -> CallerGroups {
        CallerGroups {
            last: (0..RECENT_SLOTS).map(|_| AtomicU32::new(0)).collect(),
            groups: Mutex::new(ProcessGroups {
                seen: BTreeSet::new(),
                limit: GROUPS_BEFORE_CHECK,
            }),
        }
    }
}

impl CallerGroups {
    /// The process has asked for something. 0 is one that this process cannot see.
    pub fn add(&self, process: u32) {
        let place = &self.last[process as usize % RECENT_SLOTS];
        if place.load(Ordering::Relaxed) == process {
            return;
        }
        place.store(process, Ordering::Relaxed);
        // `getpgid(0)` is this process's own.
        if process == 0 {
            return;
        }
        // SAFETY: takes and gives numbers. Not `rustix`, which takes a group that this process cannot see, 0, for impossible.
        let group = unsafe { libc::getpgid(process as libc::pid_t) };
        // Fails only if it has ended: then its request was cut off.
        if group > 0 {
            self.groups.lock().add(group as u32);
        }
    }

    /// The groups of all that were noted.
    pub fn groups(&self) -> BTreeSet<u32> {
        self.groups.lock().seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_group_also_when_it_has_ended() {
        let callers = CallerGroups::default();
        let mut child = Command::new("sleep");
        let mut child = child.arg("1000").process_group(0).spawn().unwrap();
        callers.add(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        callers.add(0);
        assert_eq!(callers.groups(), BTreeSet::from([child.id()]));
    }

    #[test]
    fn groups_without_a_process_do_not_pile_up() {
        let mut child = Command::new("sleep");
        let mut child = child.arg("1000").process_group(0).spawn().unwrap();
        let callers = CallerGroups::default();
        callers.add(child.id());
        // Above the greatest number that Linux gives a process.
        for gone in 1 << 22..(1 << 22) + 10 * GROUPS_BEFORE_CHECK as u32 {
            callers.groups.lock().add(gone);
        }
        let groups = callers.groups();
        assert!(
            groups.len() <= GROUPS_BEFORE_CHECK + 1,
            "{} groups",
            groups.len()
        );
        assert!(groups.contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
