//! The patterns that stand for a trace's calls: what an index of the file system would hold for them.
use crate::table::Table;
use forebay_node::units::{count, size};
use forebay_pattern::{Folder, LogSource, Pattern, Patterns, Segment};
use forebay_trace::patterns::{CallGroup, FoundPatterns, PatternStats};

/// Files whose patterns are shown, and patterns shown of each.
const MAX_FILES_SHOWN: usize = 10;
const MAX_PATTERNS_SHOWN: usize = 3;

/// Folds each rank's calls as its log would be folded, and joins those of all ranks.
pub fn find(group: &CallGroup) -> FoundPatterns {
    let mut segments = Vec::new();
    for (rank, extents) in &group.streams {
        let source = LogSource {
            member: 0,
            log: u64::from(*rank),
        };
        let mut keep = |patterns: Vec<Pattern>| {
            let segment = |pattern| Segment::new(source, 1, pattern);
            segments.extend(patterns.into_iter().map(segment));
        };
        let mut folder = Folder::joining();
        for (offset, len) in extents {
            // It takes no offsets beyond the largest of a file; a trace that has them made no such call.
            if folder.push(*offset, *len).is_ok() {
                keep(folder.finished());
            }
        }
        keep(folder.finish());
    }
    let patterns = Patterns::merged(segments);
    let globals = patterns.globals.iter().map(|global| global.to_string());
    let locals = patterns.segments.iter().map(|s| s.pattern.to_string());
    let terms: usize = patterns.segments.iter().map(|s| s.pattern.terms()).sum();
    FoundPatterns {
        patterns: (patterns.globals.len() + terms) as u64,
        encoded: patterns.encoded().len() as u64,
        // Of one log a line a pattern.
        shown: globals
            .chain(locals)
            .flat_map(|text| text.lines().map(String::from).collect::<Vec<_>>())
            .take(MAX_PATTERNS_SHOWN)
            .collect(),
    }
}

/// For people.
pub fn text(stats: &PatternStats) -> String {
    if stats.extents == 0 {
        return String::new();
    }
    let mut table = Table::new(&[
        "file",
        "kind",
        "calls",
        "patterns",
        "bytes",
        "rate",
        "the first of them",
    ]);
    for group in stats.groups.iter().take(MAX_FILES_SHOWN) {
        let rate = group.raw_bytes as f64 / group.encoded_bytes.max(1) as f64;
        // One can be very long where it is no real pattern.
        let shown: String = group.shown.join("; ").chars().take(80).collect();
        table.row(vec![
            group.file.clone(),
            format!("{:?}", group.kind).to_lowercase(),
            count(group.extents),
            count(group.patterns),
            size(group.encoded_bytes),
            format!("{rate:.1}"),
            shown,
        ]);
    }
    let more = stats.groups.len().saturating_sub(MAX_FILES_SHOWN);
    let more = match more {
        0 => String::new(),
        more => format!("and {} more files and kinds\n", count(more as u64)),
    };
    format!(
        "\npatterns   {} stand for {} calls: {} instead of {}, compression rate {:.1}\n\n{table}{more}",
        count(stats.patterns),
        count(stats.extents),
        size(stats.encoded_bytes),
        size(stats.raw_bytes),
        stats.compression()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_trace::{patterns, workload};

    #[test]
    fn strided_ranks_are_one_pattern_and_a_random_trace_is_no_larger_than_its_entries() {
        let stats = |spec: &str| patterns::discover(&workload::parse(spec).unwrap().trace(), find);
        let strided = stats("ior-strided:ranks=16,size=4096,calls=100");
        assert_eq!(
            (strided.groups.len(), strided.patterns, strided.extents),
            (2, 2, 3200)
        );
        assert!(strided.compression() > 1000.0, "{strided:?}");
        let shown = text(&strided);
        assert!(
            shown.contains("2 stand for 3,200 calls") && shown.contains("4 KiB"),
            "{shown}"
        );
        let random = stats("random-overlap:ranks=2,calls=500,size=100000");
        assert!(random.compression() > 1.0, "{random:?}");
    }
}
