//! `forebay dedup`: what deduplication would save of any files, in a table, as JSON and as a picture.
//!
//! Invariants: files are only read; memory is `--memory` and the fixed amount that the help names, however much is read.
use crate::args::DedupArgs;
use crate::files::replace;
use crate::output::{json, name, print, print_error_line};
use crate::progress;
use forebay_data::analysis::{CutAnalysis, CutKind, DedupCounts};
use forebay_data::chunk::ChunkSize;
use forebay_node::failure::{Failure, Result};
use forebay_node::units::counted;
use indicatif::ProgressBar;
use read::read_blocks;
use report::{CutReport, DedupReport, PathReport};
use std::io::Write;
use std::path::Path;
use tree::{Files, FoundFile};

mod plot;
mod read;
mod report;
mod tree;

/// Files that could not be read and are named; the others are counted.
const MOST_NAMED: u64 = 10;

/// Runs the subcommand.
///
/// # Errors
/// A path that is not there (2); files that could not be read, a picture that cannot be written (1).
pub fn run(args: &DedupArgs) -> Result {
    for path in &args.paths {
        path.symlink_metadata().map_err(|e| {
            let what = format!("cannot read {}: {e}", name(path));
            Failure::usage(what, "name files and directories that are there")
        })?;
    }
    if let Some(path) = &args.plot
        && path.extension().is_none_or(|e| e != "svg")
    {
        let what = format!("{} does not end in .svg", name(path));
        return Err(Failure::usage(what, "end its name in .svg"));
    }
    let mut analysis = Analysis::new(args);
    for path in &args.paths {
        analysis.add_path(path);
    }
    analysis.bar.finish_and_clear();
    let report = analysis.report();
    match args.json {
        true => print(json(&report)?)?,
        false => print(report.text())?,
    }
    if let Some(path) = &args.plot {
        let next = "name a file in a directory of your own with --plot";
        replace(path, next, |file| {
            file.write_all(plot::svg(&report).as_bytes())
        })?;
    }
    match analysis.failed {
        0 => Ok(()),
        failed => Err(Failure::new(
            format!("{} could not be read", counted(failed, "file")),
            "they are in no number; see that you may read them",
        )),
    }
}

struct Analysis {
    cuts: Vec<CutAnalysis>,
    files: Files,
    paths: Vec<PathReport>,
    failed: u64,
    bar: ProgressBar,
}

impl Analysis {
    fn new(args: &DedupArgs) -> Analysis {
        let mut sizes = args.chunks.clone();
        if sizes.is_empty() {
            let all = (12..=16).map(|power| ChunkSize::new(1 << power));
            sizes = all.flatten().collect();
        }
        sizes.sort();
        sizes.dedup();
        let both = |size| [false, true].map(|anchored| CutKind { size, anchored });
        let kinds: Vec<CutKind> = sizes.into_iter().flat_map(both).collect();
        Analysis {
            cuts: CutAnalysis::of(&kinds, usize::try_from(args.memory).unwrap_or(usize::MAX)),
            files: Files::default(),
            paths: Vec::new(),
            failed: 0,
            bar: progress::bytes("reading", 0),
        }
    }

    fn add_path(&mut self, path: &Path) {
        let before: Vec<DedupCounts> = self.cuts.iter().map(CutAnalysis::counts).collect();
        let mut read = 0;
        let mut found = self.files.below(path);
        while let Some(file) = found.next_file() {
            match file.and_then(|file| self.add_file(&file)) {
                Ok(()) => read += 1,
                Err(text) => self.fail(&text),
            }
        }
        self.files = found.into_files();
        let cuts = self.cuts.iter().zip(&before);
        let reports = cuts.map(|(cut, before)| CutReport::of(cut, cut.counts().since(before)));
        self.paths
            .push(PathReport::new(name(path), read, reports.collect()));
    }

    fn add_file(&mut self, file: &FoundFile) -> std::result::Result<(), String> {
        self.bar.inc_length(file.len);
        self.bar
            .set_message(name(Path::new(file.path.file_name().unwrap_or_default())));
        let cuts = &mut self.cuts;
        let read = read_blocks(&file.path, |block| {
            read::in_parallel(cuts, |cut| cut.push(block));
            self.bar.inc(block.len() as u64);
        });
        // Of a file that could be read in part, the part counts.
        for cut in cuts {
            cut.end_file();
        }
        read.map_err(|e| format!("cannot read {}: {e}", name(&file.path)))
    }

    fn fail(&mut self, text: &str) {
        self.failed += 1;
        if self.failed <= MOST_NAMED {
            self.bar.suspend(|| print_error_line(text));
        }
    }

    fn report(&self) -> DedupReport {
        let all = self.cuts.iter().map(|cut| CutReport::of(cut, cut.counts()));
        let read = self.paths.iter().map(|path| path.files).sum();
        DedupReport {
            total: PathReport::new("all together".into(), read, all.collect()),
            paths: self.paths.clone(),
        }
    }
}
