//! The cases, by name.
use crate::harness::Case;

/// How many processes do what; the name says the work, then the number of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessWork {
    /// Processes.
    pub processes: u64,
    /// What they do.
    pub kind: CaseWork,
}

/// What the processes of a case do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseWork {
    /// Write, then read cold.
    Bytes {
        /// Which file a process uses, and where in it.
        layout: RecordLayout,
        /// Bytes of a record.
        record: u64,
        /// `--size` is divided by this.
        divide: u64,
    },
    /// Create, stat, unlink; in a directory of each process's own, or all in one.
    Files {
        /// All in one directory.
        shared: bool,
    },
}

/// Where the records of a process lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RecordLayout {
    /// A file each, from start to end.
    Own,
    /// One file, a segment each.
    Segments,
    /// One file, records dealt out in turn.
    Strided,
    /// Written in segments of 1 MiB records; read in records at random places.
    Random,
}

const fn bytes(
    name: &'static str,
    processes: u64,
    layout: RecordLayout,
    record: u64,
    divide: u64,
) -> Case<ProcessWork> {
    let kind = CaseWork::Bytes {
        layout,
        record,
        divide,
    };
    Case::new(name, ProcessWork { processes, kind })
}

const fn files(name: &'static str, processes: u64, shared: bool) -> Case<ProcessWork> {
    let kind = CaseWork::Files { shared };
    Case::new(name, ProcessWork { processes, kind })
}

/// Every case.
pub const CASES: &[Case<ProcessWork>] = &[
    bytes("seq-1m-1p", 1, RecordLayout::Own, 1 << 20, 1),
    bytes("seq-1m-4p", 4, RecordLayout::Own, 1 << 20, 1),
    bytes("shared-1m-1p", 1, RecordLayout::Segments, 1 << 20, 1),
    bytes("shared-1m-4p", 4, RecordLayout::Segments, 1 << 20, 1),
    bytes("strided-4k-1p", 1, RecordLayout::Strided, 4096, 4),
    bytes("strided-4k-4p", 4, RecordLayout::Strided, 4096, 4),
    bytes("strided-47008-1p", 1, RecordLayout::Strided, 47_008, 2),
    bytes("strided-47008-4p", 4, RecordLayout::Strided, 47_008, 2),
    bytes("random-4k-1p", 1, RecordLayout::Random, 4096, 1),
    bytes("random-4k-4p", 4, RecordLayout::Random, 4096, 1),
    files("files-own-1p", 1, false),
    files("files-own-4p", 4, false),
    files("files-shared-1p", 1, true),
    files("files-shared-4p", 4, true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_processes_and_are_unique() {
        let mut names: Vec<_> = CASES.iter().map(|c| c.name).collect();
        assert!(
            CASES
                .iter()
                .all(|c| c.name.ends_with(&format!("-{}p", c.work.processes)))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        for wanted in [
            "seq-1m",
            "shared-1m",
            "strided-4k",
            "strided-47008",
            "random-4k",
            "files-own",
            "files-shared",
        ] {
            for processes in [1, 4] {
                assert!(
                    names.contains(&format!("{wanted}-{processes}p").as_str()),
                    "{wanted}"
                );
            }
        }
    }
}
