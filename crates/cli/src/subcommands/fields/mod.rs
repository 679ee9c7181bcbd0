//! `forebay fields`: `recode` is a module of its own. `analyze`: what every codec makes of the numbers of files, in a table, as JSON and as a picture.
//!
//! Invariants: files are only read, of each at most [`SAMPLE`]; a number is shown only of a codec that gave all of it back.
use crate::args::FieldsAnalyzeArgs;
use crate::files::replace;
use crate::output::{json, name, print, print_error_line};
use crate::progress;
use forebay_codec::analysis::{self, KnownNumbers, SampledContainer, sampled_ranges};
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::units::{counted, size};
use indicatif::ProgressBar;
use report::{FieldsReport, FileReport};
use std::error::Error as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod plot;
mod recode;
mod report;

pub use recode::recode;

/// The most bytes of a file that are looked at.
const SAMPLE: u64 = 64 << 20;

/// Runs `fields analyze`.
///
/// # Errors
/// Files without numbers, a picture that is no SVG (2); files that cannot be read, a picture that cannot be written (1).
pub fn analyze(args: &FieldsAnalyzeArgs) -> Result {
    if let Some(path) = &args.plot
        && path.extension().is_none_or(|e| e != "svg")
    {
        let what = format!("{} does not end in .svg", name(path));
        return Err(Failure::usage(what, "end its name in .svg"));
    }
    let known = KnownNumbers {
        element: args.element.element(),
        stride: args.stride,
        offset: args.offset,
    };
    let files: Result<Vec<NumberFile>> = args
        .files
        .iter()
        .map(|path| NumberFile::find(path, args.offset))
        .collect();
    let files = files?;
    let work = |file: &NumberFile| analysis::work(file.sampled_len());
    let bar = progress::bytes("measuring", files.iter().map(work).sum());
    let mut report = FieldsReport::default();
    let mut failed = 0;
    for file in &files {
        match file.analyze(&known, &bar) {
            Ok(analyzed) => report.files.push(analyzed),
            Err(failure) => {
                failed += 1;
                bar.suspend(|| print_error_line(failure));
            }
        }
    }
    bar.finish_and_clear();
    match args.json {
        true => print(json(&report)?)?,
        false => print(report.text())?,
    }
    if let Some(path) = &args.plot
        && !report.files.is_empty()
    {
        let next = "name a file in a directory of your own with --plot";
        replace(path, next, |file| {
            file.write_all(plot::svg(&report).as_bytes())
        })?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(
            format!("{} could not be analyzed", counted(failed, "file")),
            "the lines above say why",
        )),
    }
}

/// A file with at least one byte of numbers. It is opened when it is analyzed, so that one is open at a time.
struct NumberFile {
    path: PathBuf,
    len: u64,
    offset: u64,
}

impl NumberFile {
    fn find(path: &Path, offset: u64) -> Result<NumberFile> {
        let shown = name(path);
        // Opening a pipe would wait for a writer.
        let found = path.metadata().map_err(|e| unreadable(path, &e))?;
        if !found.is_file() {
            let what = format!("{shown} is no regular file");
            let next = match found.is_dir() {
                true => "name the files in it",
                false => "copy what comes from it to a file first",
            };
            return Err(Failure::usage(what, next));
        }
        let len = found.len();
        if len == 0 {
            let what = format!("{shown} is empty");
            return Err(Failure::usage(what, "name a file of numbers"));
        }
        if len <= offset {
            let what = format!("{shown} has {}", counted(len, "byte"));
            let next = format!("give a smaller --offset than {offset}");
            return Err(Failure::usage(what, next));
        }
        Ok(NumberFile {
            path: path.to_path_buf(),
            len,
            offset,
        })
    }

    fn sampled_len(&self) -> u64 {
        let ranges = sampled_ranges(self.offset, self.len, SAMPLE);
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    fn sample(&self, file: &File) -> io::Result<Vec<SampledContainer>> {
        let ranges = sampled_ranges(self.offset, self.len, SAMPLE).into_iter();
        ranges
            .map(|range| {
                // At most a container.
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, range.start)?;
                let at = range.start;
                Ok(SampledContainer { at, bytes })
            })
            .collect()
    }

    fn analyze(&self, known: &KnownNumbers, bar: &ProgressBar) -> Result<FileReport> {
        let shown = name(&self.path);
        bar.set_message(name(Path::new(self.path.file_name().unwrap_or_default())));
        let file = File::open(&self.path).map_err(|e| unreadable(&self.path, &e))?;
        let sample = self.sample(&file).or_fail(
            format!("cannot read {shown}"),
            "see that nobody makes it shorter meanwhile",
        )?;
        let start = Instant::now();
        let found = analysis::analyze(&sample, known, &|| start.elapsed(), &mut |n| bar.inc(n))
            .or_fail(format!("cannot analyze {shown}"), "report this")?;
        for failed in &found.failed {
            let source = failed
                .source()
                .map_or(String::new(), |why| format!(": {why}"));
            let what = format!("of {shown} a codec is missing: {failed}{source}");
            bar.suspend(|| print_error_line(Failure::new(what, "report this")));
        }
        Ok(FileReport::new(
            shown,
            self.len,
            self.sampled_len(),
            known,
            &found,
        ))
    }
}

fn unreadable(path: &Path, e: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot read {}: {e}", name(path)),
        "name a file of numbers that you may read",
    )
}

/// What part of a file was looked at, for people.
fn sampled(report: &FileReport) -> String {
    let numbers = report.bytes - report.offset;
    let all = match report.offset {
        0 => size(numbers),
        offset => format!("{} from byte {offset} on", size(numbers)),
    };
    match report.sampled_bytes == numbers {
        true => format!("all {all}"),
        false => format!(
            "a sample of {} from all over {all}",
            size(report.sampled_bytes)
        ),
    }
}
