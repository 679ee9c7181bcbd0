//! The cases to index: generated workloads, and the calls of traces.

use crate::fail::{Context, Result};
use crate::harness::Case;
use forebay_pattern::Element;
use forebay_trace::patterns::{CallGroup, groups};
use forebay_trace::{Kind, workload};
use std::path::{Path, PathBuf};

/// The logs of one file, each with its extents in log order.
pub type FileLogs = Vec<(u64, Vec<Element>)>;

/// Where the calls come from.
#[derive(Debug, Clone)]
pub enum CallSource {
    Workload(&'static str),
    Trace(PathBuf, Kind),
}

const WORKLOADS: &[(&str, &str)] = &[
    ("fs-test-512x16k", "fs-test:ranks=512,calls=16k,size=4k"),
    (
        "fs-test-segmented",
        "fs-test-segmented:ranks=512,calls=1k,size=4k",
    ),
    ("ior-strided", "ior-strided:ranks=64,calls=16k"),
    (
        "ior-segmented",
        "ior-segmented:ranks=64,segments=64,calls=256",
    ),
    ("tile", "tile:x=16,y=16,width=1024,height=4096,element=4"),
    ("btio-q16", "btio:q=16,grid=162,dumps=5"),
    ("milc-a", "milc-a"),
    ("milc-b", "milc-b"),
    ("milc-c", "milc-c"),
    ("nested-2d", "nested-2d:ranks=64,inner=16,middle=1k"),
    (
        "nested-3d",
        "nested-3d:ranks=64,inner=16,middle=16,outer=64",
    ),
    ("random", "random:ranks=64,calls=16k,size=4k"),
    (
        "random-overlap",
        "random-overlap:ranks=64,calls=16k,size=64k",
    ),
];

/// All cases: those of `traces` too, if it is given.
pub fn all(traces: Option<&Path>) -> Result<Vec<Case<CallSource>>> {
    let of = |&(name, spec)| Case::new(name, CallSource::Workload(spec));
    let mut cases: Vec<_> = WORKLOADS.iter().map(of).collect();
    let Some(dir) = traces else {
        return Ok(cases);
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).doing(dir.display())? {
        paths.push(entry.doing(dir.display())?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let Some(stem) = name.and_then(|n| Some(n.strip_suffix(".csv.zst")?.to_owned())) else {
            continue;
        };
        for (kind, word) in [(Kind::Read, "reads"), (Kind::Write, "writes")] {
            let source = CallSource::Trace(path.clone(), kind);
            cases.push(Case::named(format!("{stem}-{word}"), source));
        }
    }
    Ok(cases)
}

impl CallSource {
    /// The files' logs; `None` if the trace has no such calls.
    pub fn load(&self) -> Result<Option<Vec<FileLogs>>> {
        let groups = match self {
            CallSource::Workload(spec) => {
                let workload = workload::parse(spec).doing(spec)?;
                groups(workload.ops().filter(|op| op.kind == Kind::Write))
            }
            CallSource::Trace(path, kind) => {
                let trace = forebay_trace::load(path).doing(path.display())?;
                groups(trace.ops.into_iter().filter(|op| op.kind == *kind))
            }
        };
        let files: Vec<FileLogs> = groups.into_iter().map(file_logs).collect();
        Ok((!files.is_empty()).then_some(files))
    }
}

/// The logs of a group, as if each rank had written its calls one behind the other.
fn file_logs(group: CallGroup) -> FileLogs {
    let log = |(rank, calls): (u32, Vec<(u64, u64)>)| {
        let mut addr = 0;
        let extents = calls.into_iter().map(|(offset, len)| {
            let extent = Element { offset, len, addr };
            addr += len;
            extent
        });
        (u64::from(rank), extents.collect())
    };
    group.streams.into_iter().map(log).collect()
}
