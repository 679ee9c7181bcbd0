//! One writing or reading process of the demo.
//!
//! It opens its file, says `ready`, waits for a line on standard input, works, and reports its progress and its outcome:
//! one JSON object a line. It ends when the demo does.
use super::content::CheckpointContent;
use super::layout::{MAX_RECORD_BYTES, records};
use forebay_node::failure::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What it does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Write, or else read and verify.
    pub write: bool,
    /// The shared file, as this process's node sees it.
    pub path: PathBuf,
    /// Size of the file.
    pub size: u64,
    /// This process's number.
    pub rank: u64,
    /// How many there are.
    pub ranks: u64,
    /// Of the content.
    pub seed: u64,
    /// Which of the job's checkpoints the file is, from 0 on.
    pub checkpoint: u64,
}

/// What it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The file is open; go.
    Ready,
    /// Bytes done since the last message.
    Bytes(u64),
    /// All is written, on disk and closed; or read and right.
    Done,
    /// The first wrong byte.
    Wrong {
        /// Where it is in the file.
        offset: u64,
    },
    /// A call failed.
    Failed(String),
}

/// The hidden subcommand.
///
/// # Errors
/// If any call fails or any byte is wrong; the demo has been told by then.
pub fn run(job: &str) -> Result {
    let job: Job =
        serde_json::from_str(job).or_fail("this is an internal command", "use `forebay demo`")?;
    // Whoever started it may die before it hears of it; then it ends as well.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .or_fail("cannot follow the demo", "report this")?;
    let outcome = match work(&job) {
        Ok(None) => WorkerMessage::Done,
        Ok(Some(offset)) => WorkerMessage::Wrong { offset },
        Err(e) => {
            let step = if job.write { "writing" } else { "reading" };
            WorkerMessage::Failed(format!("{step} {}: {e}", job.path.display()))
        }
    };
    send(&outcome).or_fail("the demo is gone", "start it again")?;
    match outcome {
        WorkerMessage::Done => Ok(()),
        _ => Err(Failure::silent()),
    }
}

/// The offset of the first wrong byte, if any.
fn work(job: &Job) -> std::io::Result<Option<u64>> {
    // Whoever comes first creates the file; nobody truncates it.
    let file = if job.write {
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&job.path)?
    } else {
        File::open(&job.path)?
    };
    send(&WorkerMessage::Ready)?;
    let mut go = String::new();
    std::io::stdin().read_line(&mut go)?;
    // Derived from seed, checkpoint and offset alone, so any reader can verify any byte.
    let content = CheckpointContent {
        seed: job.seed,
        checkpoint: job.checkpoint,
    };
    let (mut buffer, mut since) = (vec![0; MAX_RECORD_BYTES], 0);
    for record in records(job.size, job.rank, job.ranks) {
        let bytes = &mut buffer[..record.len as usize];
        if job.write {
            content.fill(record.offset, bytes);
            file.write_all_at(bytes, record.offset)?;
        } else {
            file.read_exact_at(bytes, record.offset)?;
            if let Some(wrong) = content.first_wrong(record.offset, bytes) {
                return Ok(Some(wrong));
            }
        }
        since += record.len;
        if since >= 4 << 20 {
            send(&WorkerMessage::Bytes(since))?;
            since = 0;
        }
    }
    if job.write {
        file.sync_all()?;
    } else if file.metadata()?.len() != job.size {
        return Ok(Some(job.size.min(file.metadata()?.len())));
    }
    drop(file);
    send(&WorkerMessage::Bytes(since))?;
    Ok(None)
}

fn send(message: &WorkerMessage) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    out.flush()
}
