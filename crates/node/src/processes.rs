//! Facts about processes from `/proc`: memory, open files, stacks.
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Memory of one process in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessMemory {
    /// Now.
    pub resident: u64,
    /// The most it ever was (`VmHWM`).
    pub peak: u64,
}

/// Memory of process `pid`; `None` if it is gone, or the kernel does not tell.
pub fn memory(pid: u32) -> Option<ProcessMemory> {
    memory_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// What a text like that of `/proc/PID/status` says.
fn memory_in(status: &str) -> Option<ProcessMemory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        let kib = line.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(kib << 10)
    };
    Some(ProcessMemory {
        resident: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// Is there a process `pid` with a thread that has not ended? Only then may it still hold a lock or a file.
pub fn is_alive(pid: u32) -> bool {
    // A zombie's other threads may go on for a while, so the first thread alone says nothing.
    tasks(pid)
        .map(|task| std::fs::read_to_string(task.join("stat")).unwrap_or_default())
        .any(|stat| {
            // The name is in parentheses and may hold anything; the state follows it.
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        })
}

/// The directories of a process's threads.
fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    tasks.flatten().flatten().map(|task| task.path())
}

/// The process of a thread, and its name; `None` if it is gone or cannot be seen.
pub fn of_thread(thread: u32) -> Option<(u32, String)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let pid = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    let pid = pid.trim().parse().ok()?;
    Some((pid, name(Path::new(&format!("/proc/{pid}")))))
}

/// The words of `/proc/PID/stat` from the third one, the state, on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the state follows it.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(String::from).collect())
}

/// When a process was started, in ticks of the machine's clock.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// The processes that have `top` above them and have not ended, without `spared` and those below them.
pub fn below(top: u32, spared: &[u32]) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> { stat(pid)?.get(1)?.parse().ok() };
    let all: Vec<(u32, u32)> = pids()
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let (mut found, mut next) = (Vec::new(), vec![top]);
    while let Some(above) = next.pop() {
        for (pid, _) in all.iter().filter(|(_, parent)| *parent == above) {
            if !spared.contains(pid) && !found.contains(pid) {
                found.push(*pid);
                next.push(*pid);
            }
        }
    }
    // One whose first thread has ended looks like one that has ended, and may still have threads and children.
    found.retain(|pid| is_alive(*pid));
    found
}

/// The process that started this one; `None` if it has ended or is in another PID namespace.
pub fn parent() -> Option<u32> {
    let parent = rustix::process::getppid()?;
    Some(parent.as_raw_nonzero().get() as u32)
}

/// Whether the process runs the program that this one does.
pub fn runs_this_program(pid: u32) -> bool {
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid).is_some_and(|path| Some(path) == program(std::process::id()))
}

/// Variables that the launchers of MPI and Slurm give each of their processes.
const RANK_VARIABLES: [&[u8]; 5] = [
    b"OMPI_COMM_WORLD_RANK=",
    b"PMIX_RANK=",
    b"PMI_RANK=",
    b"PMI_ID=",
    b"SLURM_PROCID=",
];

/// The ranks of an MPI or Slurm job, and what they have started, that still run on this machine, are of one of these process groups,
/// and began after this process did.
pub fn ranks(groups: &BTreeSet<u32>) -> Vec<u32> {
    let Some(since) = start_ticks(std::process::id()).filter(|_| !groups.is_empty()) else {
        return Vec::new();
    };
    let of_these = |pid: u32| {
        let stat = stat(pid)?;
        let group: u32 = stat.get(2)?.parse().ok()?;
        let start: u64 = stat.get(19)?.parse().ok()?;
        Some(groups.contains(&group) && start >= since)
    };
    let is_rank = |pid: u32| {
        let of_a_rank = |variable: &[u8]| {
            let mut names = RANK_VARIABLES.iter();
            names.any(|name| variable.starts_with(name))
        };
        any_variable(pid, of_a_rank)
    };
    let mut all = pids();
    all.retain(|pid| of_these(*pid) == Some(true) && is_rank(*pid) && is_alive(*pid));
    all
}

/// Whether `matches` holds for one of the variables, each `NAME=VALUE`, that a process was started with. Those of another user's processes
/// cannot be read.
fn any_variable(pid: u32, matches: impl FnMut(&[u8]) -> bool) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(matches)
}

/// Whether a process of this user was started with this variable.
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    any_variable(pid, |variable| variable == wanted.as_bytes())
}

/// The guards of the commands of `forebay run` that still run, where the process of `run` is or was one of `runs`.
pub fn guards(runs: &[u32]) -> Vec<u32> {
    let runs: Vec<String> = runs.iter().map(u32::to_string).collect();
    let is_guard = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        let run = words.next() == Some(&b"__guard"[..]);
        run && words
            .next()
            .is_some_and(|of| runs.iter().any(|run| run.as_bytes() == of))
    };
    let mut all = pids();
    all.retain(|pid| is_guard(*pid) && is_alive(*pid));
    all
}

/// Processes with something open at or below `point`, as far as this user may see them, and as far as that can be found out in
/// five seconds: what a process has mapped cannot be read while it waits in `exec` for a server that does not answer.
pub fn holders(point: &Path) -> Vec<(u32, String)> {
    let point = point.to_path_buf();
    gather(HOLDERS_LIMIT, move |found| {
        let holds_open = |base: &Path| {
            let files = std::fs::read_dir(base.join("fd")).into_iter().flatten();
            let links = [base.join("cwd"), base.join("root")].into_iter();
            links
                .chain(files.flatten().map(|e| e.path()))
                // The text of the link; the file itself is not touched.
                .filter_map(|link| std::fs::read_link(link).ok())
                .any(|target| target.starts_with(&point))
        };
        let all = pids().into_iter().map(|pid| {
            let base = PathBuf::from(format!("/proc/{pid}"));
            (pid, base)
        });
        // What may wait comes last.
        let (open, others): (Vec<_>, Vec<_>) = all.partition(|(_, base)| holds_open(base));
        let mapped = others.into_iter().filter(|(_, base)| maps(base, &point));
        for (pid, base) in open.into_iter().chain(mapped) {
            // Nobody listens any more: it took too long.
            if found.send((pid, name(&base))).is_err() {
                return;
            }
        }
    })
}

/// The longest look for those that hold files open.
const HOLDERS_LIMIT: Duration = Duration::from_secs(5);

/// What `look` finds, on a thread of its own, until it ends or the limit is over.
fn gather<T: Send + 'static>(
    limit: Duration,
    look: impl FnOnce(Sender<T>) + Send + 'static,
) -> Vec<T> {
    let (send, receive) = channel();
    let end = Instant::now() + limit;
    // Without a thread nothing is found.
    let _ = std::thread::Builder::new()
        .name("look at processes".into())
        .spawn(move || look(send));
    let mut found = Vec::new();
    while let Ok(one) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        found.push(one);
    }
    found
}

fn maps(base: &Path, point: &Path) -> bool {
    let maps = std::fs::read_to_string(base.join("maps")).unwrap_or_default();
    maps.lines()
        .filter_map(|l| l.find('/').map(|at| &l[at..]))
        .any(|path| Path::new(path).starts_with(point))
}

pub(crate) fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

fn name(base: &Path) -> String {
    std::fs::read_to_string(base.join("comm"))
        .unwrap_or_default()
        .trim()
        .to_string()
}

/// Where every thread of `pid` is, for a report about a process that hangs.
pub fn stacks(pid: u32) -> String {
    let mut out = String::new();
    for task in tasks(pid) {
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let thread = task
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let _ = writeln!(
            out,
            "thread {thread} {} waits in {} ({})",
            name(&task),
            read("wchan"),
            read("syscall").trim()
        );
        for line in read("stack").lines() {
            let _ = writeln!(out, "    {line}");
        }
    }
    if out.is_empty() {
        format!("process {pid} has no threads: it has ended\n")
    } else {
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_hangs_ends_with_what_was_found() {
        let (_kept, never) = channel::<()>();
        let found = gather(Duration::from_millis(50), move |found| {
            found.send(1).unwrap();
            // As long as the test runs.
            let _ = never.recv();
        });
        assert_eq!(found, [1]);
        let found = gather(Duration::from_secs(600), |found| found.send(2).unwrap());
        assert_eq!(found, [2]);
    }

    #[test]
    fn this_process_lives_and_has_memory_and_threads() {
        let pid = std::process::id();
        assert!(is_alive(pid));
        let memory = memory(pid).unwrap();
        assert!(
            memory.resident > 0 && memory.peak >= memory.resident,
            "{memory:?}"
        );
        assert!(stacks(pid).contains("thread "));
        assert!(!is_alive(u32::MAX));
        assert_eq!(super::memory(u32::MAX), None);
        assert_eq!(memory_in("Name:\tforebay\nVmRSS:\t 12 kB\n"), None);
    }

    /// A program whose first thread has ended, and the others go on; it says the number of a child of it.
    const HEADLESS: &str = "#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *rest(void *child) { for (;;) pause(); return child; }
int main(void) {
    pthread_t thread;
    pid_t child = fork();
    if (child == 0) { for (;;) pause(); }
    pthread_create(&thread, 0, rest, 0);
    printf(\"%d\\n\", child);
    fflush(stdout);
    pthread_exit(0);
}
";

    #[test]
    fn a_process_without_its_first_thread_is_found_and_so_is_its_child() {
        use std::io::BufRead;
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("headless.c"), dir.path().join("headless"));
        std::fs::write(&source, HEADLESS).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-pthread").arg("-o").arg(&program).arg(&source);
        assert!(cc.status().unwrap().success());
        let mut headless = Command::new(&program)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(headless.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        let state = || stat(headless.id()).unwrap()[0].clone();
        while state() != "Z" {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let found = below(std::process::id(), &[]);
        let kill = |pid: u32| {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        };
        kill(child);
        kill(headless.id());
        headless.wait().unwrap();
        assert!(found.contains(&headless.id()), "{found:?}");
        assert!(found.contains(&child), "{found:?}");
        assert!(!below(std::process::id(), &[]).contains(&headless.id()));
    }

    #[test]
    fn a_process_with_an_open_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let me = std::process::id();
        assert!(holders(&path).iter().all(|(pid, _)| *pid != me));
        let file = std::fs::File::create(path.join("x")).unwrap();
        assert!(holders(&path).iter().any(|(pid, _)| *pid == me));
        drop(file);
    }
}
