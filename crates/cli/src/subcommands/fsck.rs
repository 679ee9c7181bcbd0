//! `forebay fsck`: the check of a stopped store.
use crate::args::FsckArgs;
use crate::output::{self, escaped, print};
use crate::progress;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::mount_table;
use forebay_node::units::{counted, size};
use forebay_server::fsck::{self, ByteCheck, FsckReport};
use forebay_server::repair::Repair;
use forebay_server::superblock::Superblock;
use forebay_storage::OsIo;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ranks whose stores are looked for, if those of the first ones are damaged or missing.
const MAX_SEARCHED_RANKS: u16 = 64;

/// Runs the subcommand.
///
/// # Errors
/// If problems were found, which are on standard output by then; or if the store cannot be checked at all.
pub fn run(args: &FsckArgs) -> Result {
    let stores = stores(&args.stores)?;
    if args.repair {
        return repair(&stores, args.yes);
    }
    let report = check(&stores, ByteCheck::Bytes)?;
    let text = if args.json {
        output::json(&value(&report))?
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

/// Repairs the store: says what is damaged, what is lost and what will be done, asks, does it, and checks the result.
fn repair(stores: &[PathBuf], yes: bool) -> Result {
    if !yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "--repair asks before it changes anything, and standard input is no terminal",
            "add --yes",
        ));
    }
    let cannot = |e| Failure::plain(format!("cannot repair the store {}: {e}", name(stores)));
    // It was agreed to when it began.
    if let Some(finished) = Repair::finish(stores).map_err(cannot)? {
        print(format!("{}\n", escaped(&finished)))?;
    }
    // One that cannot be checked at all is not sound.
    let sound = check(stores, ByteCheck::Lengths).is_ok_and(|report| report.is_sound());
    let bar = progress::bytes("fsck", 0);
    let mut progress = |step: &'static str| bar.set_message(format!("repair: {step}"));
    let prepared = Repair::prepare(stores, &mut progress);
    bar.finish_and_clear();
    let prepared = prepared.map_err(cannot)?;
    print(prepared.losses().text())?;
    if sound && !prepared.is_needed() {
        prepared.discard().map_err(Failure::plain)?;
        return match prepared.losses().damaged_files {
            0 => print("there is nothing to repair\n"),
            files => print(format!("the records are whole; {}", damaged_bytes(files))),
        };
    }
    let steps = prepared.steps().into_iter();
    print(
        steps
            .map(|step| format!("to do: {step}\n"))
            .collect::<String>(),
    )?;
    if !yes && !confirmed()? {
        prepared.discard().map_err(Failure::plain)?;
        return Err(Failure::new("nothing was changed", "say yes, or add --yes"));
    }
    let files = prepared.losses().damaged_files;
    let report = prepared.put_in_place().map_err(Failure::plain)?;
    drop(prepared);
    let after = check(stores, ByteCheck::Lengths)?;
    print(text(&after, &name(stores)))?;
    if files > 0 {
        print(format!(
            "this is said of the records; {}",
            damaged_bytes(files)
        ))?;
    }
    print(format!("repaired; the report is {}\n", report.display()))?;
    match after.problems.iter().find(|p| p.part != "data") {
        None => Ok(()),
        Some(_) => Err(Failure::new(
            "the repair has left problems",
            "copy out what can be read with `forebay mount --salvage`, and report this",
        )),
    }
}

/// What is said of files with damaged bytes in segment files.
fn damaged_bytes(files: u64) -> String {
    format!(
        "bytes of {} are damaged where they lie, which no repair mends: replace or remove what is named above\n",
        counted(files, "file")
    )
}

/// Asks on the terminal.
fn confirmed() -> Result<bool> {
    print("do this? [y/N] ")?;
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.or_fail("cannot read the answer", "add --yes")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// The stores' paths; one with `{rank}` in it stands for those of all ranks.
pub fn stores(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut stores = Vec::new();
    for store in named {
        let text = store.to_string_lossy();
        let of = |rank: u16| {
            mount_table::absolute(Path::new(&text.replace("{rank}", &rank.to_string())))
        };
        for rank in 0..ranks(&text, &of)? {
            stores.push(of(rank)?);
        }
    }
    Ok(stores)
}

/// How many ranks a path stands for: of a damaged or missing store any other one of them says it.
fn ranks(text: &str, of: &dyn Fn(u16) -> Result<PathBuf>) -> Result<u16> {
    if !text.contains("{rank}") {
        return Ok(1);
    }
    let mut failure = None;
    for rank in 0..MAX_SEARCHED_RANKS {
        match Superblock::read(&OsIo, &of(rank)?) {
            Ok(Some(block)) => return Ok(block.members),
            Ok(None) => {}
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    failure.map_or(Ok(1), |e| Err(Failure::plain(e)))
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
pub fn check(stores: &[PathBuf], byte_check: ByteCheck) -> Result<FsckReport> {
    let bar = progress::bytes("fsck", 0);
    let mut progress = |p: fsck::FsckProgress| {
        bar.set_message(format!("fsck: {}", p.stage));
        if byte_check == ByteCheck::Bytes {
            bar.set_length(p.total);
            bar.set_position(p.done);
        }
    };
    let report = fsck::check(Arc::new(OsIo), stores, byte_check, &mut progress);
    bar.finish_and_clear();
    report.map_err(|e| Failure::plain(format!("cannot check the store {}: {e}", name(stores))))
}

/// A failure if the report names a problem.
///
/// # Errors
/// The first problem and how many there are.
pub fn fail_on_problems(report: &FsckReport, store: &Path) -> Result {
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

fn value(report: &FsckReport) -> serde_json::Value {
    let mut value = serde_json::json!(report);
    value["sound"] = report.is_sound().into();
    value
}

fn text(report: &FsckReport, shown: &str) -> String {
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
    let _ = writeln!(out, "{}", checked(report));
    let _ = match (report.problems.len(), report.unopened) {
        (0, _) => writeln!(out, "{shown} is sound"),
        (n, 0) => writeln!(
            out,
            "{shown} has {}: what needs damaged bytes answers EIO, all else can be read; copy it out; `forebay fsck --repair` names the files, and makes damaged records anew",
            counted(n as u64, "problem")
        ),
        (n, _) => writeln!(
            out,
            "{shown} has {} and cannot be started; put the named files back from a copy, or run `forebay fsck --repair`; `forebay mount --salvage` reads what is whole",
            counted(n as u64, "problem")
        ),
    };
    out
}

/// How much was looked at, and what not.
fn checked(report: &FsckReport) -> String {
    let opened = report.members.saturating_sub(report.unopened);
    let members = match report.unopened {
        0 => counted(report.members.into(), "member"),
        n => format!(
            "{n} of {} cannot be opened",
            counted(report.members.into(), "member")
        ),
    };
    if opened == 0 {
        return format!("{members}: nothing else was looked at");
    }
    let records = format!(
        "{members}, {}, {}",
        counted(report.files, "file"),
        counted(report.extents, "extent")
    );
    let (spans, bytes) = (counted(report.spans, "span"), size(report.bytes));
    match (report.compared, opened) {
        (compared, all) if compared == all => {
            let segments = counted(report.segments, "segment file");
            format!("{records}, {spans} in {segments}, {bytes} verified")
        }
        (0, _) => format!(
            "{records}, {spans}, {bytes} verified; not compared with the segment files, because records are damaged"
        ),
        (compared, _) => format!(
            "{records}, {spans}, {bytes} verified; compared with the segment files of {} only, because records are damaged",
            counted(compared.into(), "member")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::fsck::FsckProblem;

    #[test]
    fn what_was_not_compared_is_not_counted_as_none() {
        let mut report = FsckReport {
            members: 3,
            unopened: 1,
            compared: 1,
            spans: 5,
            ..FsckReport::default()
        };
        let text = checked(&report);
        assert!(
            text.starts_with("1 of 3 members cannot be opened, 0 files"),
            "{text}"
        );
        assert!(
            text.contains("5 spans, ") && text.contains("of 1 member only"),
            "{text}"
        );
        report.compared = 0;
        let text = checked(&report);
        assert!(
            !text.contains("0 segment files") && text.contains("not compared"),
            "{text}"
        );
        report.unopened = 3;
        assert_eq!(
            checked(&report),
            "3 of 3 members cannot be opened: nothing else was looked at"
        );
    }

    #[test]
    fn problems_are_told_and_counted() {
        let mut report = FsckReport {
            files: 1234,
            members: 1,
            compared: 1,
            bytes: 1 << 20,
            ..FsckReport::default()
        };
        let store = Path::new("/s");
        assert!(text(&report, "/s").ends_with(
            "1 member, 1,234 files, 0 extents, 0 spans in 0 segment files, 1.0 MiB verified\n/s is sound\n"
        ));
        assert_eq!(fail_on_problems(&report, store), Ok(()));
        report.problems.push(FsckProblem {
            part: "data".into(),
            text: "block 7 is damaged".into(),
        });
        assert!(text(&report, "/s").contains("copy it out"));
        assert!(text(&report, "/s").contains("problem in data: block 7 is damaged"));
        assert!(
            fail_on_problems(&report, store)
                .unwrap_err()
                .text
                .contains("block 7")
        );
        assert_eq!(value(&report)["sound"], false);
    }
}
