//! Figures that the kernel keeps of this process and its files.
use crate::fail::{Context, Failure, Result};
use std::path::Path;

/// Bytes that this process handed to `write` and the like so far, its threads included.
pub fn written() -> Result<u64> {
    field("/proc/self/io", "wchar:")
}

/// The most memory this process ever had, bytes.
pub fn peak_memory() -> Result<u64> {
    Ok(field("/proc/self/status", "VmHWM:")? * 1024)
}

/// The number behind a name in a file of lines.
fn field(path: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).doing(path)?;
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    let word = line.and_then(|l| l.split_whitespace().next());
    let number = word.and_then(|w| w.parse().ok());
    number.ok_or_else(|| Failure::new(format!("{path} has no number {name}")))
}

/// Bytes of the table files in a directory, logs and the like left out.
pub fn table_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).doing(dir.display())? {
        let path = entry.doing(dir.display())?.path();
        let kind = path.extension().and_then(|e| e.to_str());
        if matches!(kind, Some("tbl" | "ldb" | "sst")) {
            // A file that a compaction has just removed counts no more.
            bytes += path.metadata().map_or(0, |m| m.len());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let before = written().unwrap();
        std::fs::write(dir.path().join("a.sst"), [1; 5000]).unwrap();
        std::fs::write(dir.path().join("a.log"), [1; 300]).unwrap();
        assert!(written().unwrap() >= before + 5300);
        assert!(peak_memory().unwrap() > 1 << 20);
        assert_eq!(table_bytes(dir.path()).unwrap(), 5000);
    }
}
