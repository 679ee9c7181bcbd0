//! What the kernel tells about processes: memory, open files, stacks. Reads `/proc` only.
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Memory of one process in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Memory {
    /// Now.
    pub resident: u64,
    /// The most it ever was (`VmHWM`).
    pub peak: u64,
}

/// Memory of process `pid`; `None` if it is gone, or the kernel does not tell.
pub fn memory(pid: u32) -> Option<Memory> {
    memory_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// What a text like that of `/proc/PID/status` says.
fn memory_in(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        let kib = line.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(kib << 10)
    };
    Some(Memory {
        resident: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// Is there a process `pid` with a thread that has not ended? Only then may it still hold a lock or a file.
pub fn lives(pid: u32) -> bool {
    // A zombie's other threads may go on for a while, so the first thread alone says nothing.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default())
        .any(|stat| {
            // The name is in parentheses and may hold anything; the state follows it.
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        })
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
    found.retain(|pid| lives(*pid));
    found
}

/// Whether the process runs the program that this one does.
pub fn runs_this_program(pid: u32) -> bool {
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid).is_some_and(|path| Some(path) == program(std::process::id()))
}

/// Variables that the launchers of MPI and Slurm give each of their processes.
const OF_RANKS: [&[u8]; 5] = [
    b"OMPI_COMM_WORLD_RANK=",
    b"PMIX_RANK=",
    b"PMI_RANK=",
    b"PMI_ID=",
    b"SLURM_PROCID=",
];

/// Whether a rank of an MPI or Slurm job, or what one has started, still runs on this machine, is of one of these process groups,
/// and began after this process did.
pub fn ranks_run(groups: &BTreeSet<u32>) -> bool {
    let Some(since) = start_ticks(std::process::id()).filter(|_| !groups.is_empty()) else {
        return false;
    };
    let of_these = |pid: u32| {
        let stat = stat(pid)?;
        let group: u32 = stat.get(2)?.parse().ok()?;
        let start: u64 = stat.get(19)?.parse().ok()?;
        Some(groups.contains(&group) && start >= since)
    };
    let is_rank = |pid: u32| {
        // It cannot be read of another user's processes.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| OF_RANKS.iter().any(|name| variable.starts_with(name)))
    };
    let mut all = pids().into_iter();
    all.any(|pid| of_these(pid) == Some(true) && is_rank(pid) && lives(pid))
}

/// The steps of this process's Slurm job on this machine that a command has started or is starting, and that may use the mounts
/// though they have not yet. Slurm has a process for each, `slurmstepd: [JOB.STEP]`, from before the step's first task until after
/// its last one.
pub struct LaunchedSteps {
    job: Option<String>,
    since: u64,
    until: Instant,
    found: BTreeSet<u32>,
}

/// What a step of Slurm takes at most from the request for it until this machine has its first process.
const STEP_LAUNCH: Duration = Duration::from_secs(2);

impl LaunchedSteps {
    /// Those that began at `since` ([`start_ticks`]) or later. From now on none is asked for any more. Outside of Slurm there are none.
    pub fn since(since: Option<u64>) -> LaunchedSteps {
        LaunchedSteps {
            job: std::env::var("SLURM_JOB_ID")
                .ok()
                .filter(|_| since.is_some()),
            since: since.unwrap_or_default(),
            until: Instant::now() + STEP_LAUNCH,
            found: BTreeSet::new(),
        }
    }

    /// Whether one of them still runs, or may still begin.
    pub fn run(&mut self) -> bool {
        let Some(job) = &self.job else {
            return false;
        };
        if Instant::now() < self.until {
            let is_one = |pid: &u32| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                is_step(&String::from_utf8_lossy(&line), job)
                    && start_ticks(*pid).is_some_and(|start| start >= self.since)
            };
            self.found.extend(pids().into_iter().filter(is_one));
            return true;
        }
        self.found.iter().any(|pid| lives(*pid))
    }
}

/// Whether a process of this command line is Slurm's for a step of `job` that `srun` has started.
fn is_step(line: &str, job: &str) -> bool {
    let name = line.strip_prefix("slurmstepd: [");
    let name = name.and_then(|rest| rest.split_once(']')?.0.split_once('.'));
    // Other steps have names instead of numbers: `batch`, `extern`.
    name.is_some_and(|(of, step)| of == job && step.parse::<u32>().is_ok())
}

/// Whether the guard of the command of `forebay run`, whose process is or was `run`, still runs.
pub fn has_guard(run: u32) -> bool {
    let run = run.to_string();
    pids().into_iter().any(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(&b"__guard"[..]) && words.next() == Some(run.as_bytes())
    })
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

fn pids() -> Vec<u32> {
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
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks.map(|e| e.path()) {
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
        assert!(lives(pid));
        let memory = memory(pid).unwrap();
        assert!(
            memory.resident > 0 && memory.peak >= memory.resident,
            "{memory:?}"
        );
        assert!(stacks(pid).contains("thread "));
        assert!(!lives(u32::MAX));
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
