//! `forebay fsck`: the check of a stopped store.
use crate::args::FsckArgs;
use crate::fail::{Context, Failure, Result};
use crate::mount_table;
use crate::output::{self, escaped, print};
use crate::progress;
use crate::units::{counted, size};
use forebay_server::fsck::{self, Report};
use forebay_server::superblock::Superblock;
use forebay_storage::OsIo;
use indicatif::ProgressBar;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs the verb.
///
/// # Errors
/// If problems were found, which are on standard output by then; or if the store cannot be checked at all.
pub fn run(args: &FsckArgs) -> Result {
    let stores = stores(&args.stores)?;
    let bar = progress::bytes("fsck", 0);
    let report = check(&stores, &bar);
    bar.finish_and_clear();
    let report = report?;
    let text = if args.json {
        output::json(&value(&report)?)?
    } else {
        let several = if stores.len() > 1 {
            "the service of "
        } else {
            ""
        };
        text(&report, &format!("{several}{}", name(&stores)))
    };
    print(text)?;
    if report.is_sound() {
        Ok(())
    } else {
        Err(Failure::silent())
    }
}

/// The stores' paths; one with `{rank}` in it stands for those of all ranks.
fn stores(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut stores = Vec::new();
    for store in named {
        let text = store.to_string_lossy();
        let of = |rank: u16| {
            mount_table::absolute(Path::new(&text.replace("{rank}", &rank.to_string())))
        };
        let first = of(0)?;
        let mut ranks = 1;
        if text.contains("{rank}")
            && let Some(block) = Superblock::read(&OsIo, &first).map_err(Failure::plain)?
        {
            ranks = block.members;
        }
        for rank in 0..ranks {
            stores.push(of(rank)?);
        }
    }
    Ok(stores)
}

/// The stores as a report names them.
fn name(stores: &[PathBuf]) -> String {
    let names = stores.iter().map(|store| output::name(store));
    names.collect::<Vec<_>>().join(", ")
}

/// Checks the store of a whole service, or those of all its members.
///
/// # Errors
/// If it is in use, foreign, or cannot be read at all.
pub fn check(stores: &[PathBuf], bar: &ProgressBar) -> Result<Report> {
    let mut progress = |p: fsck::Progress| {
        bar.set_message(format!("fsck: {}", p.stage));
        bar.set_length(p.total);
        bar.set_position(p.done);
    };
    fsck::check(Arc::new(OsIo), stores, &mut progress)
        .map_err(|e| Failure::plain(format!("cannot check the store {}: {e}", name(stores))))
}

/// A failure if the report names a problem.
///
/// # Errors
/// The first problem and how many there are.
pub fn sound(report: &Report, store: &Path) -> Result {
    match report.problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            format!(
                "fsck found {} in {}; the first, in {}: {}",
                counted(report.problems.len() as u64, "problem"),
                store.display(),
                first.part,
                first.text
            ),
            "report this",
        )),
    }
}

fn value(report: &Report) -> Result<serde_json::Value> {
    let mut value =
        serde_json::to_value(report).or_fail("cannot write the report", "report this")?;
    value["sound"] = report.is_sound().into();
    Ok(value)
}

fn text(report: &Report, shown: &str) -> String {
    let mut out = String::new();
    for problem in &report.problems {
        let _ = writeln!(
            out,
            "problem in {}: {}",
            escaped(&problem.part),
            escaped(&problem.text)
        );
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {}", escaped(note));
    }
    let _ = writeln!(
        out,
        "{}, {}, {}, {} in {}, {} verified",
        counted(report.members.into(), "member"),
        counted(report.files, "file"),
        counted(report.extents, "extent"),
        counted(report.spans, "span"),
        counted(report.segments, "segment file"),
        size(report.bytes)
    );
    let _ = match (report.problems.len(), report.unopened) {
        (0, _) => writeln!(out, "{shown} is sound"),
        (n, 0) => writeln!(
            out,
            "{shown} has {}: what needs damaged bytes answers EIO, all else can be read; copy it out",
            counted(n as u64, "problem")
        ),
        (n, _) => writeln!(
            out,
            "{shown} has {} and cannot be started; put the named files back from a copy",
            counted(n as u64, "problem")
        ),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::fsck::Problem;

    #[test]
    fn problems_are_told_and_counted() {
        let mut report = Report {
            files: 1234,
            members: 1,
            bytes: 1 << 20,
            ..Report::default()
        };
        let store = Path::new("/s");
        assert!(text(&report, "/s").ends_with(
            "1 member, 1,234 files, 0 extents, 0 spans in 0 segment files, 1.0 MiB verified\n/s is sound\n"
        ));
        assert_eq!(sound(&report, store), Ok(()));
        report.problems.push(Problem {
            part: "data".into(),
            text: "block 7 is damaged".into(),
        });
        assert!(text(&report, "/s").contains("copy it out"));
        assert!(text(&report, "/s").contains("problem in data: block 7 is damaged"));
        assert!(sound(&report, store).unwrap_err().text.contains("block 7"));
        assert_eq!(value(&report).unwrap()["sound"], false);
    }
}
