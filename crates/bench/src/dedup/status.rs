//! The figures about settling that are used of `forebay status --json`, and their names.
use crate::fail::{Context, Failure, Result};
use crate::harness::program_output;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often the service is asked.
const POLL: Duration = Duration::from_millis(200);
/// It is not waited for longer than this while nothing gets less.
const STUCK_AFTER: Duration = Duration::from_secs(120);
/// So much may stay as it was written: spans that are shorter than a chunk.
const MOST_RAW_BYTES: u64 = 1 << 20;

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
struct StatusReply {
    total: ServiceFigures,
}

/// Figures of all members; bytes, but for `cleaning`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
pub struct ServiceFigures {
    /// Freed places of segments that still take disk space.
    cleaning: u64,
    /// Bytes of file data.
    #[serde(default)]
    data_bytes: u64,
    /// Settled bytes of file data.
    #[serde(default)]
    settled_bytes: u64,
    /// What waits to be settled, without what is being settled. `None`: the service knows no settling.
    settle_backlog_bytes: Option<u64>,
    /// What is stored for what is settled: each chunk once.
    #[serde(default)]
    unique_bytes: u64,
    /// Memory of the index of chunks.
    #[serde(default)]
    chunk_index_memory_bytes: u64,
}

impl ServiceFigures {
    fn parse(text: &str) -> Result<ServiceFigures> {
        let reply: StatusReply = serde_json::from_str(text).doing("forebay status --json")?;
        Ok(reply.total)
    }

    /// Asks the service on this store.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(program: &Path, store: &Path) -> Result<ServiceFigures> {
        let mut command = Command::new(program);
        let text = program_output(command.arg("status").arg(store).arg("--json"))?;
        ServiceFigures::parse(&text)
    }

    /// How much of the file data is settled, 0 to 1.
    pub fn settled_share(&self) -> f64 {
        self.settled_bytes as f64 / self.data_bytes.max(1) as f64
    }

    /// What is left to do where data is settled, or not: bytes, and places that are not freed.
    fn left(&self, settles: bool) -> (u64, u64) {
        let waits = self.settle_backlog_bytes.unwrap_or(0);
        let raw = self.data_bytes.saturating_sub(self.settled_bytes);
        let bytes = match settles {
            true if raw > MOST_RAW_BYTES => raw.max(waits),
            _ => waits,
        };
        (bytes, self.cleaning)
    }

    /// Memory of the index for each TiB of chunks, if there are any.
    pub fn index_bytes_per_tib(&self) -> Option<f64> {
        let tib = self.unique_bytes as f64 / (1u64 << 40) as f64;
        (tib > 0.0).then(|| self.chunk_index_memory_bytes as f64 / tib)
    }
}

/// Whether the program has the setting `settle`.
///
/// # Errors
/// If it does not say what settings it has.
pub fn has_setting(program: &Path) -> Result<bool> {
    let help = program_output(Command::new(program).args(["mount", "--help"]))?;
    Ok(help.contains("--settle "))
}

/// Waits until nothing waits to be settled, and the space of what was is free.
///
/// # Errors
/// If the service does not answer, tells nothing of settling though it settles, or comes no further.
pub fn wait_until_settled(program: &Path, store: &Path, settles: bool) -> Result<()> {
    let mut least = None;
    let mut since = Instant::now();
    loop {
        let figures = ServiceFigures::ask(program, store)?;
        if settles && figures.settle_backlog_bytes.is_none() {
            return Err(Failure::new("forebay status tells nothing of settling"));
        }
        let left = figures.left(settles);
        if left == (0, 0) {
            return Ok(());
        }
        if least.is_none_or(|least| left < least) {
            (least, since) = (Some(left), Instant::now());
        } else if since.elapsed() > STUCK_AFTER {
            return Err(Failure::new(format!(
                "for {STUCK_AFTER:?}, {} bytes waited to be settled, and {} places to be freed",
                left.0, left.1
            )));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_settling_has_nothing_to_wait_for_but_freed_places() {
        let figures =
            ServiceFigures::parse(r#"{"total":{"cleaning":3,"files":2},"pid":1}"#).unwrap();
        assert_eq!(figures.left(false), (0, 3));
        assert_eq!(figures.index_bytes_per_tib(), None);
    }

    #[test]
    fn what_is_being_settled_does_not_wait_and_is_not_done() {
        let figures = ServiceFigures {
            data_bytes: 64 << 20,
            settled_bytes: 60 << 20,
            settle_backlog_bytes: Some(0),
            ..ServiceFigures::default()
        };
        assert_eq!(figures.left(true), (4 << 20, 0));
        let short = ServiceFigures {
            settled_bytes: (64 << 20) - 3000,
            ..figures
        };
        assert_eq!((short.left(true), figures.left(false)), ((0, 0), (0, 0)));
    }

    #[test]
    fn the_index_is_told_by_what_is_stored() {
        let text = r#"{"total":{"cleaning":0,"data_bytes":9,"settled_bytes":2,"unique_bytes":1073741824,"settle_backlog_bytes":7,
            "chunk_index_memory_bytes":65536,"indexed_chunks":2}}"#;
        let figures = ServiceFigures::parse(text).unwrap();
        assert_eq!(figures.left(true), (7, 0));
        assert_eq!(figures.index_bytes_per_tib(), Some(64.0 * 1_048_576.0));
    }
}
