//! One measured step of the demo: many processes on one file, started together, timed until the last has ended.
use super::worker::{Job, WorkerMessage};
use crate::progress;
use forebay_node::failure::{Context, Failure, Result};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Longest time in which not one process may get on.
const PROGRESS_LIMIT: Duration = Duration::from_secs(120);

/// What to do.
pub struct Phase<'a> {
    /// For the progress bar and errors.
    pub label: &'a str,
    /// Write, or else read.
    pub write: bool,
    /// How many processes.
    pub ranks: u64,
    /// The file as process `rank` sees it.
    pub path: &'a dyn Fn(u64) -> PathBuf,
    /// Size of the file.
    pub size: u64,
    /// Of the content.
    pub seed: u64,
    /// Which checkpoint the file is.
    pub checkpoint: u64,
    /// Set when the user wants to stop.
    pub interrupted: &'a AtomicBool,
}

/// The processes of a phase; killed if dropped before they end.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails only if it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Phase<'_> {
    /// Runs it; gives the time from the start of the first to the end of the last, and the bytes done.
    ///
    /// # Errors
    /// The first wrong byte or failed call; no progress; the user's Ctrl-C.
    pub fn run(&self) -> Result<(Duration, u64)> {
        let (sender, messages) = mpsc::channel();
        let mut workers = Workers(Vec::new());
        let mut inputs = Vec::new();
        for rank in 0..self.ranks {
            let (child, input) = self.spawn(rank, sender.clone())?;
            workers.0.push(child);
            inputs.push(input);
        }
        drop(sender);
        let mut ready = 0;
        while ready < self.ranks {
            match self.next_message(&messages)? {
                WorkerMessage::Ready => ready += 1,
                other => return Err(self.failure_of(other)),
            }
        }
        let bar = progress::bytes(self.label, self.size);
        let start = Instant::now();
        for input in &mut inputs {
            input.write_all(b"go\n").or_fail(
                format!("{}: a process ended early", self.label),
                "try again",
            )?;
        }
        let (mut done, mut bytes) = (0, 0);
        while done < self.ranks {
            match self.next_message(&messages)? {
                WorkerMessage::Bytes(n) => {
                    bytes += n;
                    bar.inc(n);
                }
                WorkerMessage::Done => done += 1,
                other => return Err(self.failure_of(other)),
            }
        }
        let time = start.elapsed();
        bar.finish_and_clear();
        if bytes != self.size {
            return Err(Failure::new(
                format!("{}: {bytes} of {} bytes were done", self.label, self.size),
                "report this",
            ));
        }
        Ok((time, bytes))
    }

    fn spawn(
        &self,
        rank: u64,
        messages: Sender<WorkerMessage>,
    ) -> Result<(Child, impl Write + use<>)> {
        let job = Job {
            write: self.write,
            path: (self.path)(rank),
            size: self.size,
            rank,
            ranks: self.ranks,
            seed: self.seed,
            checkpoint: self.checkpoint,
        };
        let job = serde_json::to_string(&job).or_fail("cannot write a job", "report this")?;
        let mut child = Command::new("/proc/self/exe")
            .args(["__worker", &job])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .or_fail(
                "cannot start a worker process",
                "raise the limit on processes (ulimit -u)",
            )?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a worker process has no pipes", "report this"));
        };
        let label = format!("{} (process {rank})", self.label);
        std::thread::Builder::new()
            .name("worker messages".into())
            .spawn(move || {
                let mut ended = false;
                for line in BufReader::new(output).lines().map_while(|l| l.ok()) {
                    let message = serde_json::from_str(&line)
                        .unwrap_or(WorkerMessage::Failed(format!("{label} said: {line}")));
                    ended |= !matches!(message, WorkerMessage::Ready | WorkerMessage::Bytes(_));
                    if messages.send(message).is_err() {
                        return;
                    }
                }
                if !ended {
                    let _ = messages.send(WorkerMessage::Failed(format!(
                        "{label} ended without a word"
                    )));
                }
            })
            .or_fail(
                "cannot start a thread",
                "raise the limit on processes (ulimit -u)",
            )?;
        Ok((child, input))
    }

    fn next_message(&self, messages: &Receiver<WorkerMessage>) -> Result<WorkerMessage> {
        let end = Instant::now() + PROGRESS_LIMIT;
        loop {
            // Looked at before every message: busy workers never let the wait below time out.
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(super::interrupted());
            }
            match messages.recv_timeout(Duration::from_millis(200)) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => {
                    return Err(Failure::new(
                        format!(
                            "{}: no progress for {} s",
                            self.label,
                            PROGRESS_LIMIT.as_secs()
                        ),
                        "look at the server's log and at the disk",
                    ));
                }
            }
        }
    }

    fn failure_of(&self, message: WorkerMessage) -> Failure {
        match message {
            WorkerMessage::Wrong { offset } => Failure::new(
                format!(
                    "{}: WRONG BYTE at offset {offset} of the shared file",
                    self.label
                ),
                "keep the store with --dir and report this",
            ),
            WorkerMessage::Failed(why) => Failure::new(
                format!("{}: {why}", self.label),
                "look at the server's log and at the disk",
            ),
            other => Failure::new(
                format!("{}: unexpected {other:?} from a process", self.label),
                "report this",
            ),
        }
    }
}
