//! Parses what borg and restic print: their versions, and how much they stored of a file.
use crate::fail::{Context, Failure, Result};
use serde::Deserialize;
use std::fmt;

/// Major, minor and patch version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The first word of the text that is one: `borg 1.2.4`, `restic 0.14.0 compiled with go1.19.8 on linux/amd64`.
    pub fn parse(text: &str) -> Option<Version> {
        let version = |word: &str| {
            let mut numbers = word.split('.').map(leading_number);
            let (major, minor) = (numbers.next()??, numbers.next()??);
            Some(Version(major, minor, numbers.next().flatten().unwrap_or(0)))
        };
        text.split_whitespace().find_map(version)
    }
}

/// `4` of `4rc1`.
fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The program's report on a stored file.
#[derive(Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// Its name in the repository.
    pub archive: String,
    /// Bytes that the program has read of it.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct BorgReply {
    archive: BorgArchive,
}

#[derive(Deserialize)]
struct BorgArchive {
    name: String,
    stats: BorgStats,
}

#[derive(Deserialize)]
struct BorgStats {
    original_size: u64,
}

/// Of `borg create --json`: one object.
///
/// # Errors
/// If it is another one.
pub fn borg_summary(text: &str) -> Result<BackupSummary> {
    let reply: BorgReply = serde_json::from_str(text).doing("borg create")?;
    Ok(BackupSummary {
        archive: reply.archive.name,
        bytes: reply.archive.stats.original_size,
    })
}

#[derive(Deserialize)]
#[serde(tag = "message_type", rename_all = "snake_case")]
enum ResticLine {
    Summary {
        total_bytes_processed: u64,
        snapshot_id: String,
    },
    #[serde(other)]
    Other,
}

/// Of `restic backup --json`: an object a line, of which the last is the summary.
///
/// # Errors
/// If there is none.
pub fn restic_summary(text: &str) -> Result<BackupSummary> {
    for line in text.lines().rev().filter(|line| line.starts_with('{')) {
        if let ResticLine::Summary {
            total_bytes_processed,
            snapshot_id,
        } = serde_json::from_str(line).doing("restic backup")?
        {
            return Ok(BackupSummary {
                archive: snapshot_id,
                bytes: total_bytes_processed,
            });
        }
    }
    Err(Failure::new("restic backup: no summary"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_compared_by_number() {
        let restic = "restic 0.14.0 compiled with go1.19.8 on linux/amd64\n";
        assert_eq!(Version::parse(restic), Some(Version(0, 14, 0)));
        assert_eq!(Version::parse("borg 1.2.4"), Some(Version(1, 2, 4)));
        assert_eq!(Version::parse("borg 2.0.0b6"), Some(Version(2, 0, 0)));
        assert_eq!(Version::parse("tool 1.4"), Some(Version(1, 4, 0)));
        assert_eq!(Version::parse("no numbers here"), None);
        assert!(Version(0, 9, 6) < Version(0, 14, 0));
        assert_eq!(Version(1, 2, 4).to_string(), "1.2.4");
    }

    #[test]
    fn borg_tells_of_the_archive() {
        let text = r#"{"archive": {"command_line": ["borg"], "duration": 0.06, "id": "e1", "name": "checkpoint-00",
            "stats": {"compressed_size": 3002724, "deduplicated_size": 3002724, "nfiles": 1, "original_size": 3000522}},
            "cache": {"path": "c", "stats": {"total_chunks": 735}}, "encryption": {"mode": "none"}}"#;
        let archive = "checkpoint-00".to_string();
        let bytes = 3_000_522;
        let expected = BackupSummary { archive, bytes };
        assert_eq!(borg_summary(text).unwrap(), expected);
        assert!(borg_summary("{}").is_err_and(|e| e.0.contains("archive")));
    }

    #[test]
    fn restic_tells_of_the_snapshot_in_the_last_line() {
        let text = concat!(
            "{\"message_type\":\"status\",\"percent_done\":0,\"total_files\":1,\"total_bytes\":3000000}\n",
            "{\"message_type\":\"summary\",\"files_new\":1,\"data_added\":3000424,\"total_bytes_processed\":3000000,",
            "\"total_duration\":0.34,\"snapshot_id\":\"a40b455d\"}\n\n"
        );
        let archive = "a40b455d".to_string();
        let bytes = 3_000_000;
        let expected = BackupSummary { archive, bytes };
        assert_eq!(restic_summary(text).unwrap(), expected);
        let cut = text.lines().next().unwrap();
        assert!(restic_summary(cut).is_err_and(|e| e.0.contains("no summary")));
    }
}
