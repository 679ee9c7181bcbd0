//! The files of a store's directory and their names.
use std::path::{Path, PathBuf};

/// The manifest: which tables make up the store.
pub const MANIFEST: &str = "MANIFEST";
/// The second copy of the manifest.
pub const MANIFEST_COPY: &str = "MANIFEST.copy";
/// A manifest (or reserve) being written, renamed into place when whole.
pub const TEMPORARY: &str = ".tmp";
/// The log's preallocated reserve.
pub const RESERVE: &str = "RESERVE";
/// Room kept for flushing deletes on a full disk.
pub const SPARE: &str = "SPARE";

/// What a file name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileName {
    /// A log file, by number.
    Log(u64),
    /// A table file, by number.
    Table(u64),
    /// The copy of what a table mirrors, by the table's number.
    TableCopy(u64),
    /// A file of the attached engine, by number.
    EngineFile(u64),
    /// The manifest, or its copy.
    Manifest,
    /// Unfinished; removed at open.
    Temporary,
    /// The log's reserve or the spare room.
    Reserve,
    /// Not ours; left alone.
    Other,
}

/// Path of log file `number`.
pub fn log(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("wal-{number:010}.log"))
}

/// Path of table file `number`.
pub fn table(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("table-{number:010}.tbl"))
}

/// Path of the copy of what table `number` mirrors.
pub fn table_copy(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("table-{number:010}.copy"))
}

/// Path of file `number` of the attached engine.
pub fn engine_file(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("side-{number:010}.tbl"))
}

/// Understands a file name.
pub fn parse(name: &str) -> FileName {
    let number = |prefix: &str, suffix: &str| -> Option<u64> {
        let number = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        number.parse().ok()
    };
    let numbered = (number("wal-", ".log").map(FileName::Log))
        .or_else(|| number("table-", ".tbl").map(FileName::Table))
        .or_else(|| number("table-", ".copy").map(FileName::TableCopy))
        .or_else(|| number("side-", ".tbl").map(FileName::EngineFile));
    if let Some(numbered) = numbered {
        return numbered;
    }
    match name {
        MANIFEST | MANIFEST_COPY => FileName::Manifest,
        RESERVE | SPARE => FileName::Reserve,
        _ if name.ends_with(TEMPORARY)
            && (name.starts_with(MANIFEST)
                || name.starts_with(RESERVE)
                || name.starts_with(SPARE)) =>
        {
            FileName::Temporary
        }
        _ => FileName::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood() {
        let dir = Path::new("d");
        let name = |p: PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(parse(&name(log(dir, 7))), FileName::Log(7));
        assert_eq!(
            parse(&name(table(dir, 12_345_678_901))),
            FileName::Table(12_345_678_901)
        );
        assert_eq!(parse(&name(table_copy(dir, 8))), FileName::TableCopy(8));
        assert_eq!(parse(&name(engine_file(dir, 9))), FileName::EngineFile(9));
        assert_eq!(parse("MANIFEST"), FileName::Manifest);
        assert_eq!(parse("MANIFEST.copy"), FileName::Manifest);
        assert_eq!(parse("MANIFEST.tmp"), FileName::Temporary);
        assert_eq!(parse("MANIFEST.copy.tmp"), FileName::Temporary);
        assert_eq!(parse("notes.tmp"), FileName::Other);
        assert_eq!(parse("wal-x.log"), FileName::Other);
    }
}
