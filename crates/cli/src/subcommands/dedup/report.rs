//! What the analysis found: as JSON, and as text.
use crate::table::Table;
use forebay_data::analysis::{CutAnalysis, DedupCounts};
use forebay_node::units::{count, counted, size};
use serde::Serialize;
use std::fmt::Write as _;

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct DedupReport {
    /// In the order of the arguments; what is duplicate in one may stand in one before.
    pub paths: Vec<PathReport>,
    pub total: PathReport,
}

/// One of the arguments, or all.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    /// By chunk size, the fixed grid first.
    pub cuts: Vec<CutReport>,
}

/// One way to cut; bytes.
#[derive(Debug, Clone, Serialize)]
pub struct CutReport {
    pub chunk_bytes: u64,
    /// `fixed` or `anchored`.
    pub grid: &'static str,
    pub chunks: u64,
    pub zero: u64,
    pub duplicate: u64,
    pub stored: u64,
    /// Of so many fingerprints one was kept; from 2 on the numbers are estimates.
    pub sampling_rate: u64,
}

impl CutReport {
    /// Of these counts of a cut.
    pub fn of(cut: &CutAnalysis, counts: DedupCounts) -> CutReport {
        let (zero, duplicate) = (counts.zero, counts.duplicate());
        CutReport {
            chunk_bytes: cut.kind().size.bytes() as u64,
            grid: if cut.kind().anchored {
                "anchored"
            } else {
                "fixed"
            },
            chunks: counts.chunks,
            zero,
            duplicate,
            stored: counts.logical - zero - duplicate,
            sampling_rate: cut.sampling_rate(),
        }
    }

    /// The size of its chunks for people: without the digit behind the point that sizes have.
    pub fn chunk_size(&self) -> String {
        format!("{} KiB", self.chunk_bytes >> 10)
    }

    fn bytes(&self) -> u64 {
        self.zero + self.duplicate + self.stored
    }

    /// A part of the bytes, in percent.
    pub fn percent(&self, part: u64) -> f64 {
        part as f64 / self.bytes().max(1) as f64 * 100.0
    }
}

impl PathReport {
    pub fn new(path: String, files: u64, cuts: Vec<CutReport>) -> PathReport {
        PathReport {
            path,
            files,
            bytes: cuts.first().map_or(0, CutReport::bytes),
            cuts,
        }
    }

    fn write(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{}: {} in {}",
            self.path,
            size(self.bytes),
            counted(self.files, "file")
        );
        let header = [
            "chunk",
            "grid",
            "chunks",
            "zero",
            "duplicate",
            "stored",
            "of it",
        ];
        let mut table = Table::new(&header);
        for cut in &self.cuts {
            let percent = |part| format!("{:.1} %", cut.percent(part));
            let estimate = if cut.sampling_rate > 1 { "~ " } else { "" };
            table.row(vec![
                cut.chunk_size(),
                cut.grid.into(),
                count(cut.chunks),
                percent(cut.zero),
                format!("{estimate}{}", percent(cut.duplicate)),
                format!("{estimate}{}", size(cut.stored)),
                percent(cut.stored),
            ]);
        }
        let _ = write!(out, "{table}");
    }
}

impl DedupReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for path in &self.paths {
            path.write(&mut out);
            out.push('\n');
        }
        if self.paths.len() > 1 {
            self.total.write(&mut out);
            out.push('\n');
        }
        let sampled = self.total.cuts.iter().any(|cut| cut.sampling_rate > 1);
        if sampled {
            out.push_str("~: estimates, for not all fingerprints fit; give more --memory for exact numbers.\n");
        }
        if let Some(best) = self.total.cuts.iter().min_by_key(|cut| cut.stored)
            && self.total.bytes > 0
        {
            let saved = best.percent(best.zero + best.duplicate);
            let _ = match best.stored < self.total.bytes {
                true => writeln!(
                    out,
                    "Least is stored with {} chunks of {}: {} of {}, {saved:.1} % less.",
                    best.grid,
                    best.chunk_size(),
                    size(best.stored),
                    size(self.total.bytes),
                ),
                false => writeln!(out, "No chunk repeats: nothing would be saved."),
            };
        }
        out
    }
}
