//! Patterns of real traces: never more bytes than the published algorithm's, and every call comes back.

use super::published;
use forebay_pattern::{Element, Folder, LogSource, Segment};
use forebay_testkit::datasets::dataset;
use forebay_trace::{Kind, NO_OFFSET, load};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Sums {
    calls: usize,
    nodes: usize,
    ours: usize,
    published: usize,
}

#[test]
fn traces_take_no_more_bytes_than_with_the_published_algorithm() {
    let Some(dir) = dataset("data/dxt") else {
        return;
    };
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.retain(|p| p.to_string_lossy().ends_with(".csv.zst"));
    paths.sort();
    let mut worse = Vec::new();
    for path in paths {
        let trace = load(&path).unwrap();
        for kind in [Kind::Read, Kind::Write] {
            let mut logs: BTreeMap<(u32, u32), Vec<Element>> = BTreeMap::new();
            for op in trace
                .ops
                .iter()
                .filter(|o| o.kind == kind && o.offset != NO_OFFSET)
            {
                let log = logs.entry((op.file, op.rank)).or_default();
                let addr = log.last().map_or(0, |e| e.addr + e.len);
                log.push(Element {
                    offset: op.offset,
                    len: op.len,
                    addr,
                });
            }
            let mut sums = Sums::default();
            for ((_, rank), log) in &logs {
                let mut folder = Folder::joining();
                for e in log {
                    folder.push_at(e.offset, e.len, e.addr).unwrap();
                }
                let source = LogSource {
                    member: 0,
                    log: u64::from(*rank),
                };
                let mut bytes = Vec::new();
                for pattern in folder.finish() {
                    sums.nodes += pattern.nodes();
                    Segment::new(source, 1, pattern).encode(&mut bytes);
                }
                sums.ours += bytes.len();
                sums.calls += log.len();
                for local in published::entries(u64::from(*rank), log.iter().copied()) {
                    sums.published += local.bytes();
                }
            }
            if sums.calls > 0 {
                println!("{:<40} {kind:?} {sums:?}", trace.name);
                if sums.ours > sums.published {
                    worse.push(format!("{} {kind:?}: {sums:?}", trace.name));
                }
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}
