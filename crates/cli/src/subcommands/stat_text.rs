//! The text that `forebay stat` shows of a file.
use forebay_node::units::{count, counted, size};
use forebay_server::delegate::{FileDescription, FileStorage, PatternRow, PatternRows};
use std::fmt::Write;

/// For people.
pub fn text(file: &str, d: &FileDescription, extents: bool) -> String {
    let storage = &d.storage;
    let is_known = !storage.more && storage.silent.0.is_empty();
    let stored = match is_known {
        true => storage.report.stored(),
        false => d.stored,
    };
    let mut out = format!("{file}: {}, {} stored", size(d.size), size(stored));
    if d.pending > 0 {
        let _ = write!(out, ", {} not committed yet", size(d.pending));
    }
    let _ = writeln!(out, "; owned by node {}", d.owner);
    if let Some(codec) = &d.codec {
        let _ = writeln!(out, "codec: {codec}");
    }
    encoded(&mut out, storage);
    if d.patterns.extents > 0 {
        let holes = match d.holes {
            0 => String::new(),
            1 => ", 1 hole cut into them".into(),
            n => format!(", {} holes cut into them", count(n)),
        };
        let _ = writeln!(
            out,
            "patterns: {} for {} of {}{holes}",
            size(d.encoded),
            counted(d.patterns.extents, "extent"),
            counted(d.patterns.logs, "log"),
        );
        if extents {
            rows(&mut out, &d.patterns);
        }
    }
    if d.extents.extents > 0 || d.patterns.extents == 0 {
        let more = if d.more_extents { "more than " } else { "" };
        let _ = writeln!(
            out,
            "index: {more}{} of {}",
            counted(d.extents.extents, "extent"),
            counted(d.extents.logs, "log"),
        );
        if extents {
            rows(&mut out, &d.extents);
        }
    }
    out
}

/// How the bytes are stored, if any is stored in another way than it was written; and who was not heard.
fn encoded(out: &mut String, storage: &FileStorage) {
    let report = &storage.report;
    let (bytes, stored) = (report.bytes(), report.stored());
    if bytes > report.unsettled {
        let by_codec = report
            .codecs
            .iter()
            .map(|(codec, of)| format!("{codec} {} -> {}", size(of.bytes), size(of.stored)));
        let others = [
            ("raw", report.raw),
            ("zeros", report.zeros),
            ("as written", report.unsettled),
        ];
        let others = others.into_iter().filter(|(_, bytes)| *bytes > 0);
        let others = others.map(|(what, bytes)| format!("{what} {}", size(bytes)));
        let parts: Vec<String> = by_codec.chain(others).collect();
        let ratio = match stored {
            0 => String::new(),
            _ => format!(" (ratio {:.2})", bytes as f64 / stored as f64),
        };
        let _ = writeln!(
            out,
            "encoded: {} -> {}{ratio}: {}",
            size(bytes),
            size(stored),
            parts.join(", ")
        );
    }
    if storage.more {
        let _ = writeln!(
            out,
            "encoded: only the first of very many pieces were looked at"
        );
    }
    if !storage.silent.0.is_empty() {
        let silent: Vec<String> = storage.silent.iter().map(|m| m.to_string()).collect();
        let nodes = if silent.len() == 1 { "node" } else { "nodes" };
        let _ = writeln!(
            out,
            "no answer about what is stored from {nodes} {}",
            silent.join(", ")
        );
    }
}

fn rows(out: &mut String, of: &PatternRows) {
    for row in &of.rows {
        let _ = writeln!(out, "  {}{}", row.text, source_text(row));
    }
    if of.left_out > 0 {
        let _ = writeln!(out, "  and {} smaller ones", count(of.left_out));
    }
}

/// Such as ` (512 logs of nodes 0-3)`.
fn source_text(row: &PatternRow) -> String {
    let span = |&(first, last): &(u16, u16)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let members: Vec<String> = row.members.0.iter().map(span).collect();
    let one = row.members.iter().count() == 1;
    let nodes = if one { "node" } else { "nodes" };
    let logs = counted(row.logs, "log");
    format!(" ({logs} of {nodes} {})", members.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::ExtentLayout;
    use forebay_server::proto::data::{EncodedBytes, StorageReport};
    use forebay_server::proto::files::MemberSet;

    #[test]
    fn a_file_of_patterns_and_extents() {
        let row = |text: &str, members: &[u16], logs| PatternRow {
            text: text.into(),
            members: MemberSet::of(members.iter().copied()),
            logs,
            extents: 5,
            bytes: 50,
        };
        let rows = |extents, logs, row| PatternRows {
            extents,
            bytes: 50,
            logs,
            rows: vec![row],
            left_out: 0,
        };
        let mut described = FileDescription {
            layout: ExtentLayout::Patterned,
            owner: 2,
            size: 1 << 30,
            stored: 1 << 20,
            pending: 0,
            generation: 7,
            codec: None,
            storage: FileStorage {
                report: StorageReport {
                    unsettled: 1 << 20,
                    ..StorageReport::default()
                },
                ..FileStorage::default()
            },
            patterns: rows(1000, 4, row("at 0: 4 x 1 B", &[0, 1, 3], 4)),
            encoded: 60,
            holes: 1,
            extents: rows(1, 1, row("at 7 B: 1 B", &[2], 1)),
            more_extents: false,
        };
        described.extents.left_out = 3;
        assert_eq!(
            text("f", &described, true),
            "f: 1.0 GiB, 1.0 MiB stored; owned by node 2\n\
             patterns: 60 B for 1,000 extents of 4 logs, 1 hole cut into them\n  \
             at 0: 4 x 1 B (4 logs of nodes 0-1, 3)\n\
             index: 1 extent of 1 log\n  \
             at 7 B: 1 B (1 log of node 2)\n  \
             and 3 smaller ones\n"
        );
        described.patterns = PatternRows::default();
        described.pending = 5;
        assert_eq!(
            text("f", &described, false),
            "f: 1.0 GiB, 1.0 MiB stored, 5 B not committed yet; owned by node 2\nindex: 1 extent of 1 log\n"
        );
        described.pending = 0;
        described.codec = Some("field,f32".into());
        let mib = |n: u64| n << 20;
        described.storage.report = StorageReport {
            codecs: [("field", 61, 17), ("zstd", 2, 1)]
                .map(|(codec, bytes, stored)| {
                    let (bytes, stored) = (mib(bytes), mib(stored));
                    (codec.to_string(), EncodedBytes { bytes, stored })
                })
                .into(),
            raw: mib(3),
            zeros: mib(1),
            unsettled: mib(8),
        };
        assert_eq!(
            text("f", &described, false),
            "f: 1.0 GiB, 29.0 MiB stored; owned by node 2\n\
             codec: field,f32\n\
             encoded: 75.0 MiB -> 29.0 MiB (ratio 2.59): field 61.0 MiB -> 17.0 MiB, zstd 2.0 MiB -> 1.0 MiB, raw 3.0 MiB, zeros 1.0 MiB, as written 8.0 MiB\n\
             index: 1 extent of 1 log\n"
        );
        described.storage = FileStorage {
            silent: MemberSet::of([1, 3]),
            ..FileStorage::default()
        };
        assert_eq!(
            text("f", &described, false),
            "f: 1.0 GiB, 1.0 MiB stored; owned by node 2\n\
             codec: field,f32\n\
             no answer about what is stored from nodes 1, 3\n\
             index: 1 extent of 1 log\n"
        );
    }
}
