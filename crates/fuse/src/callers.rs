//! Which processes use a mount, as far as it takes to know whether any of them still runs when the service stops.
//!
//! Kept are process groups, for what opens a file is often a child that lives for that alone. A group that was seen stays; a request
//! costs one look at a table of the processes seen last.
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places in the table of processes seen last.
const LAST: usize = 1024;

/// See the head of this file.
pub(crate) struct Callers {
    last: Vec<AtomicU32>,
    groups: Mutex<BTreeSet<u32>>,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers {
            last: (0..LAST).map(|_| AtomicU32::new(0)).collect(),
            groups: Mutex::default(),
        }
    }
}

impl Callers {
    /// The process has asked for something. 0 is one that this process cannot see.
    pub fn note(&self, process: u32) {
        let place = &self.last[process as usize % LAST];
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
            self.groups.lock().insert(group as u32);
        }
    }

    /// The groups of all that were noted.
    pub fn groups(&self) -> BTreeSet<u32> {
        self.groups.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_group_also_when_it_has_ended() {
        let callers = Callers::default();
        let mut child = Command::new("sleep");
        let mut child = child.arg("1000").process_group(0).spawn().unwrap();
        callers.note(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        callers.note(0);
        assert_eq!(callers.groups(), BTreeSet::from([child.id()]));
    }
}
