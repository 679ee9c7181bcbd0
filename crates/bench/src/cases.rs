//! The cases, by name.
use crate::harness::Case;

/// How many processes do what on how many nodes; the name says the work, then the number of processes, then that of the nodes
/// if the case needs its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessWork {
    /// The number of processes.
    pub processes: u64,
    /// Nodes that it needs, with a mount each; processes are dealt out to the mounts in turn, and read through another mount
    /// than they wrote through. `None`: all processes use one mount, whatever the number of nodes.
    pub nodes: Option<u16>,
    /// The work that they share.
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
        /// All processes use one directory.
        shared: bool,
    },
    /// `tar` unpacks an archive of many small files.
    Unpack,
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
    on_one_mount(name, processes, kind)
}

const fn files(name: &'static str, processes: u64, shared: bool) -> Case<ProcessWork> {
    on_one_mount(name, processes, CaseWork::Files { shared })
}

const fn on_one_mount(name: &'static str, processes: u64, kind: CaseWork) -> Case<ProcessWork> {
    let work = ProcessWork {
        processes,
        nodes: None,
        kind,
    };
    Case::new(name, work)
}

/// The case with a node for each process.
const fn on_four_nodes(mut case: Case<ProcessWork>) -> Case<ProcessWork> {
    case.work.nodes = Some(4);
    case
}

impl ProcessWork {
    /// Nodes of a service for this case, if `usual` is their number for cases that do not need their own.
    pub fn nodes(&self, usual: u16) -> u16 {
        self.nodes.unwrap_or(usual)
    }
}

/// The cases of `mount`.
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
    on_one_mount("source-tree", 1, CaseWork::Unpack),
    // Together at the end, because a service is started anew for another number of nodes.
    on_four_nodes(bytes("strided-4k-4p-4n", 4, RecordLayout::Strided, 4096, 4)),
    on_four_nodes(bytes(
        "strided-47008-4p-4n",
        4,
        RecordLayout::Strided,
        47_008,
        2,
    )),
    on_four_nodes(files("files-own-4p-4n", 4, false)),
    on_four_nodes(files("files-shared-4p-4n", 4, true)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_processes_and_nodes_and_are_unique() {
        let mut names: Vec<_> = CASES.iter().map(|c| c.name).collect();
        for case in CASES.iter().filter(|c| c.work.kind != CaseWork::Unpack) {
            let nodes = case.work.nodes.map_or(String::new(), |n| format!("-{n}n"));
            let end = format!("-{}p{nodes}", case.work.processes);
            assert!(case.name.ends_with(&end), "{}", case.name);
        }
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

    #[test]
    fn a_case_on_four_nodes_does_what_the_one_on_one_mount_does() {
        let on_four = CASES.iter().filter(|c| c.work.nodes.is_some());
        let mut found = 0;
        for case in on_four {
            let name = case.name.trim_end_matches("-4n");
            let one = CASES.iter().find(|c| c.name == name).unwrap();
            assert_eq!((one.work.processes, one.work.kind), (4, case.work.kind));
            assert_eq!((one.work.nodes(2), case.work.nodes(2)), (2, 4));
            found += 1;
        }
        assert_eq!(found, 4);
    }
}
