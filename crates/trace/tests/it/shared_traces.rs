//! Every shared DXT trace parses, with the figures of the table beside it, and survives Forebay's own format.

use forebay_testkit::datasets::dataset;
use forebay_trace::{Stats, format, load};
use std::path::Path;

/// A row of the table in the traces' README.
struct Row {
    file: String,
    ranks_with_io: u64,
    files: usize,
    shared: usize,
    writes: u64,
    reads: u64,
    gb: [String; 2],
    writers: u64,
}

fn rows(dir: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(dir.join("README.md")).unwrap();
    let number = |s: &str| s.replace(',', "").parse::<u64>().unwrap();
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.len() != 12 || !matches!(cells[3], "posix" | "mpiio") {
            continue;
        }
        let (files, shared) = cells[5].trim_end_matches(')').split_once(" (").unwrap();
        let (written, read) = cells[8].split_once(" / ").unwrap();
        let writers = cells[9]
            .strip_prefix("yes (")
            .and_then(|w| w.split_once(' '));
        rows.push(Row {
            file: format!("{}.{}.csv.zst", cells[0], cells[3]),
            ranks_with_io: number(cells[4]),
            files: number(files) as usize,
            shared: number(shared) as usize,
            writes: number(cells[6]),
            reads: number(cells[7]),
            gb: [written.to_owned(), read.to_owned()],
            writers: writers.map_or(1, |(n, _)| number(n)),
        });
    }
    rows
}

#[test]
fn shared_traces_have_the_figures_of_their_table() {
    let Some(dir) = dataset("data/dxt") else {
        return;
    };
    let rows = rows(&dir);
    let zst = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().ends_with(".csv.zst");
    let there = std::fs::read_dir(&dir)
        .unwrap()
        .filter(|e| zst(e.as_ref().unwrap()))
        .count();
    assert_eq!(rows.len(), there, "the table and the directory differ");
    for row in rows {
        let trace = load(&dir.join(&row.file)).unwrap();
        let stats = Stats::of(&trace);
        let name = &row.file;
        assert_eq!(stats.active_ranks, row.ranks_with_io, "{name}");
        assert_eq!(
            (stats.files.len(), stats.shared_files()),
            (row.files, row.shared),
            "{name}"
        );
        assert_eq!(
            (stats.writes.calls, stats.reads.calls),
            (row.writes, row.reads),
            "{name}"
        );
        let gb = [stats.writes.bytes, stats.reads.bytes].map(|b| format!("{:.3}", b as f64 / 1e9));
        assert_eq!(gb, row.gb, "{name}");
        assert_eq!(stats.most_writers().max(1), row.writers, "{name}");
        assert!(trace.ops.is_sorted_by_key(|op| op.start), "{name}");

        let mut bytes = Vec::new();
        format::write(&mut bytes, &trace).unwrap();
        assert!(
            bytes.len() < trace.ops.len() * 24 + 20_000,
            "{name}: {} bytes",
            bytes.len()
        );
        assert!(
            format::recover(&bytes[..], Path::new(name))
                .unwrap()
                .trace()
                == trace,
            "{name}"
        );
    }
}
