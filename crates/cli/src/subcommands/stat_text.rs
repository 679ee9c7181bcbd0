//! The text that `forebay stat` shows of a file.
use forebay_node::units::{count, counted, size};
use forebay_server::delegate::{FileDescription, PatternRow, PatternRows};
use std::fmt::Write;

/// For people.
pub fn text(file: &str, d: &FileDescription, extents: bool) -> String {
    let mut out = format!("{file}: {}, {} stored", size(d.size), size(d.stored));
    if d.pending > 0 {
        let _ = write!(out, ", {} not committed yet", size(d.pending));
    }
    let _ = writeln!(out, "; owned by node {}", d.owner);
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
    }
}
