//! Closes a race: a lookup reply with old attributes may be on its way to the kernel while the file is changed around the mount.
//! The kernel creates its inode from that reply later, and nothing reports when. So a file that the kernel did not know at the
//! change is checked again, twice.
//!
//! Invariant: one thread runs while there is such a file, and none otherwise. It keeps no mount alive.
use super::task_threads::spawn_task;
use forebay_server::Fid;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When a file is checked again: the first delay after its change, and the second after the first check. The second is far longer than
/// a runnable thread waits for a processor.
const RECHECK_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

#[derive(Default)]
struct RecheckQueue {
    /// Those to be checked for the first time, and for the second, each by the time of that.
    due: [VecDeque<(Instant, Fid)>; RECHECK_DELAYS.len()],
    /// There is the thread.
    has_thread: bool,
    ended: bool,
}

impl RecheckQueue {
    /// The first that is due, when and for which look.
    fn first(&self) -> Option<(Instant, usize)> {
        let fronts = self.due.iter().zip(0..);
        let fronts = fronts.filter_map(|(due, look)| Some((due.front()?.0, look)));
        fronts.min()
    }
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct InFlightInodes {
    waiting: Mutex<RecheckQueue>,
    added: Condvar,
}

/// The thread's part. Should there be no thread, the next file is another chance.
struct RecheckThread(Arc<InFlightInodes>);

impl Drop for RecheckThread {
    fn drop(&mut self) {
        self.0.waiting.lock().has_thread = false;
    }
}

impl InFlightInodes {
    /// Has `look` check the file again; it says whether there is still a mount.
    pub fn add(self: &Arc<InFlightInodes>, fid: Fid, look: impl Fn(Fid) -> bool + Send + 'static) {
        let has_thread = {
            let mut waiting = self.waiting.lock();
            if waiting.ended {
                return;
            }
            waiting.due[0].push_back((Instant::now() + RECHECK_DELAYS[0], fid));
            std::mem::replace(&mut waiting.has_thread, true)
        };
        self.added.notify_all();
        if has_thread {
            return;
        }
        let rechecker = RecheckThread(self.clone());
        let work = move || while rechecker.0.next().is_some_and(&look) {};
        spawn_task("to look at files changed past the mount again", work);
    }

    /// The mount ends: nothing is checked any more, because each check uses it.
    pub fn end(&self) {
        let mut waiting = self.waiting.lock();
        waiting.ended = true;
        waiting.due = Default::default();
        drop(waiting);
        self.added.notify_all();
    }

    /// Waits for the next file that is due; `None`: there is none.
    fn next(&self) -> Option<Fid> {
        let mut waiting = self.waiting.lock();
        loop {
            let (at, look) = waiting.first()?;
            if Instant::now() >= at {
                let (_, fid) = waiting.due[look].pop_front()?;
                if let Some(later) = RECHECK_DELAYS.get(look + 1) {
                    waiting.due[look + 1].push_back((at + *later, fid));
                }
                return Some(fid);
            }
            self.added.wait_until(&mut waiting, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn each_file_is_looked_at_twice_and_none_after_the_mount() {
        let inodes = Arc::<InFlightInodes>::default();
        let (looked, looks) = channel();
        let add = |fid| {
            let looked = looked.clone();
            inodes.add(Fid(fid), move |fid| looked.send(fid.0).is_ok());
        };
        add(1);
        add(2);
        let limit = Duration::from_secs(60);
        let mut seen: Vec<u64> = (0..3).map(|_| looks.recv_timeout(limit).unwrap()).collect();
        add(3);
        seen.extend((0..3).map(|_| looks.recv_timeout(limit).unwrap()));
        seen.sort_unstable();
        assert_eq!(seen, [1, 1, 2, 2, 3, 3]);
        let thread_ends = || {
            let end = Instant::now() + limit;
            while inodes.waiting.lock().has_thread {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
        };
        // With no mount the thread ends at its first look; at the end of the mount at once.
        drop(looks);
        add(4);
        add(5);
        thread_ends();
        inodes.end();
        add(6);
        thread_ends();
        assert!(inodes.waiting.lock().first().is_none());
    }
}
