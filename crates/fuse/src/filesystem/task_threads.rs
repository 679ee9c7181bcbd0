//! Threads for tasks that may wait, in place of the threads that answer requests.
//!
//! Invariants:
//! - Each task gets a thread at once: a queued task might be what a running one waits for (deadlock). There are at most as many threads
//!   as unanswered requests plus invalidations from other nodes.
//! - Threads with nothing to do are used again; few are kept, and not for long.
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// Stack of such a thread; it does little.
const TASK_STACK: usize = 256 << 10;
/// Threads that are kept with nothing to do, and for how long.
const MAX_IDLE: usize = 8;
const IDLE_THREAD_LIFE: Duration = Duration::from_secs(10);

type Task = Box<dyn FnOnce() + Send>;

struct TaskQueue {
    /// For which there is an idle thread each.
    work: VecDeque<Task>,
    idle: usize,
}

/// See the head of this file.
struct TaskThreads {
    waiting: Mutex<TaskQueue>,
    wake: Condvar,
}

static TASK_THREADS: TaskThreads = TaskThreads {
    waiting: Mutex::new(TaskQueue {
        work: VecDeque::new(),
        idle: 0,
    }),
    wake: Condvar::new(),
};

/// Does `work` on a thread that nothing else waits for. If there is none, `work` is dropped, and a reply in it has said `EIO`; the log
/// says that there was none `purpose` ("to ...").
pub(super) fn spawn_task(purpose: &str, work: impl FnOnce() + Send + 'static) {
    TASK_THREADS.start(purpose, Box::new(work));
}

impl TaskThreads {
    fn start(&'static self, purpose: &str, work: Task) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.work.len() < waiting.idle {
                waiting.work.push_back(work);
                drop(waiting);
                self.wake.notify_one();
                return;
            }
        }
        let run = move || {
            work();
            while let Some(work) = self.next() {
                work();
            }
        };
        let thread = std::thread::Builder::new().name("waiter".into());
        if let Err(error) = thread.stack_size(TASK_STACK).spawn(run) {
            tracing::error!(%error, "no thread {purpose}; raise the limit of processes");
        }
    }

    /// The next work; `None`: the thread ends.
    fn next(&self) -> Option<Task> {
        let mut waiting = self.waiting.lock();
        if waiting.idle - waiting.work.len().min(waiting.idle) >= MAX_IDLE {
            return None;
        }
        waiting.idle += 1;
        let mut late = false;
        let work = loop {
            let work = waiting.work.pop_front();
            if work.is_some() || late {
                break work;
            }
            late = (self.wake.wait_for(&mut waiting, IDLE_THREAD_LIFE)).timed_out();
        };
        waiting.idle -= 1;
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    fn threads() -> &'static TaskThreads {
        Box::leak(Box::new(TaskThreads {
            waiting: Mutex::new(TaskQueue {
                work: VecDeque::new(),
                idle: 0,
            }),
            wake: Condvar::new(),
        }))
    }

    #[test]
    fn work_that_waits_for_later_work_is_done() {
        let threads = threads();
        let (done, all) = channel();
        let mut last = None;
        for _ in 0..100 {
            let (go, goes) = channel::<()>();
            let (done, before) = (done.clone(), last.replace(go));
            let work = move || {
                goes.recv().unwrap();
                before.inspect(|before: &std::sync::mpsc::Sender<()>| before.send(()).unwrap());
                done.send(()).unwrap();
            };
            threads.start("", Box::new(work));
        }
        last.unwrap().send(()).unwrap();
        (0..100).for_each(|_| all.recv_timeout(Duration::from_secs(60)).unwrap());
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while threads.waiting.lock().idle != MAX_IDLE {
            assert!(std::time::Instant::now() < end);
            std::thread::yield_now();
        }
    }

    #[test]
    fn idle_threads_are_used_again() {
        let threads = threads();
        let (done, all) = channel();
        let mut ids = HashSet::new();
        for _ in 0..200 {
            let done = done.clone();
            let work = move || done.send(std::thread::current().id()).unwrap();
            threads.start("", Box::new(work));
            ids.insert(all.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        assert!(ids.len() < 100, "{}", ids.len());
    }
}
