//! Processes that use a link: this test program again, which does one job.
use forebay_client::link::SOCKET_VARIABLE;
use forebay_client::{Client, LockMode, LockRange, OpenOptions};
use forebay_testkit::prerequisites::skip;
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::stopped::stop_process;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Says which job; unset: this is no child.
const JOB: &str = "FOREBAY_TEST_LINK_JOB";

/// A child; it is killed when dropped.
pub struct JobProcess {
    pub child: Child,
    pub lines: BufReader<ChildStdout>,
}

impl JobProcess {
    pub fn start(job: &str, place: &Path) -> JobProcess {
        let program = Command::new(std::env::current_exe().unwrap());
        JobProcess::spawn(program, job, place)
    }

    /// The same in a PID namespace of its own, from which no other process can be seen. Skips where there cannot be one.
    #[track_caller]
    pub fn start_in_pid_namespace(job: &str, place: &Path) -> Option<JobProcess> {
        let apart = || {
            let mut program = Command::new("unshare");
            program.args(["--pid", "--fork", "--kill-child"]);
            program
        };
        let can_be = apart().arg("true").output();
        if !can_be.is_ok_and(|tried| tried.status.success()) {
            skip("HOSTS", "this user cannot make a PID namespace");
            return None;
        }
        let mut program = apart();
        program.arg(std::env::current_exe().unwrap());
        Some(JobProcess::spawn(program, job, place))
    }

    fn spawn(mut program: Command, job: &str, place: &Path) -> JobProcess {
        let mut child = program
            .args([
                "--exact",
                "link::children::the_job_of_a_child",
                "--nocapture",
                "-q",
            ])
            .env(JOB, job)
            .env(SOCKET_VARIABLE, place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        JobProcess { child, lines }
    }

    /// The next line that it says, without what the test program says.
    pub fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // One that was cut off by a kill is none.
            if let Some(said) = line.strip_suffix('\n').and_then(|l| l.split_once("job: ")) {
                return Some(said.1.to_string());
            }
        }
    }

    pub fn stop(&self) {
        stop_process(Pid::from_child(&self.child));
    }

    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for JobProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "job: {line}").unwrap();
    out.flush().unwrap();
}

/// The bytes that a writer writes in its step `n` of file `file`.
pub fn step_bytes(file: u64, n: u64) -> Vec<u8> {
    let len = [10, 4096, 20_000, 200_000][(file + n) as usize % 4];
    seeded_bytes(file << 32 | n, len)
}

/// Not a test of its own: a child's job.
#[test]
fn the_job_of_a_child() {
    let Ok(job) = std::env::var(JOB) else {
        return;
    };
    let (job, argument) = job.split_once(' ').unwrap_or((&job, ""));
    if job == "descriptors" {
        return super::limits::without_descriptors();
    }
    if job == "serve" {
        return super::restarts::serve();
    }
    let client = Client::connect_env().unwrap();
    match job {
        "write" => write(&client, argument.parse().unwrap()),
        "hold" => hold(&client, argument),
        "fork" => super::forks::job(&client, argument),
        other => panic!("no job {other}"),
    }
}

/// Writes for ever, and says what has returned.
fn write(client: &Client, seed: u64) {
    let mut random = Random::new(seed);
    client.create_dir_all(format!("/w{seed}")).unwrap();
    for file in 0.. {
        let path = format!("/w{seed}/{file}");
        let mut options = OpenOptions::new();
        let open = options.read(true).write(true).create_new(true);
        let opened = open.open(client, &path).unwrap();
        let lock = LockRange::bytes(0..10);
        opened.lock(&lock, LockMode::Exclusive).unwrap();
        let mut end = 0;
        for n in 0..1 + random.below(6) {
            let bytes = step_bytes(file, n);
            opened.write_at(&bytes, end).unwrap();
            end += bytes.len() as u64;
            say(format_args!("wrote {file} {n} {end}"));
        }
        match random.below(4) {
            0 => {
                opened.commit().unwrap();
                opened.close().unwrap();
            }
            // Stays open for ever.
            1 => std::mem::forget(opened),
            _ => opened.close().unwrap(),
        }
        if random.chance(20) {
            client.remove_file(&path).unwrap();
            say(format_args!("removed {file}"));
        }
    }
}

/// Takes what its words say and waits: `lock`, `open`, `team`, `temporary`.
fn hold(client: &Client, what: &str) {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true);
    let file = file.open(client, "/held").unwrap();
    file.write_at(b"held", 0).unwrap();
    if what == "lock" {
        file.lock(&LockRange::WholeFile, LockMode::Exclusive)
            .unwrap();
        file.lock(&LockRange::bytes(..), LockMode::Exclusive)
            .unwrap();
    }
    let _temporary = (what == "temporary").then(|| {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).temporary(true);
        let made = made.open(client, "/temporary").unwrap();
        made.write_at(b"half", 0).unwrap();
        made
    });
    // One of two.
    let _team = (what == "team").then(|| client.team(&client.plan_of_all(7, 2)).unwrap());
    if what == "wait" {
        say(format_args!("waits"));
        file.lock(&LockRange::bytes(..), LockMode::Exclusive)
            .unwrap();
    }
    say(format_args!("holds"));
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
