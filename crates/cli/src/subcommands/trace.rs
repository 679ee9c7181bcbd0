//! `forebay trace gen` and `forebay trace stats`.
use super::patterns;
use crate::args::{GenArgs, StatsArgs};
use crate::files::replace;
use crate::output::{json, name, print, print_error_line};
use crate::table::Table;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::units::{count, parse_size, size};
use forebay_trace::patterns::discover;
use forebay_trace::{Action, Recording, Stats, Trace, format, workload};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;

/// Files shown one by one; the rest is a number.
const MAX_FILES_SHOWN: usize = 20;

/// `trace gen`.
///
/// # Errors
/// An unknown workload or parameter (2); a file that cannot be written (1).
pub fn generate(args: &GenArgs) -> Result {
    if args.kind == "list" {
        let mut table = Table::new(&["workload", "what it is, and its parameters"]);
        for (name, what) in workload::KINDS {
            table.row(vec![name.to_string(), what.to_string()]);
        }
        let more = "Every workload also takes write=0|1 and readers=N.";
        return print(format!("{table}{more}\n"));
    }
    let next = "`forebay trace gen list` shows all workloads and parameters";
    let workload = workload::parse(&spec(args)?).map_err(|e| Failure::usage(e, next))?;
    let trace = workload.trace();
    let next = "name a file in a directory of your own with -o";
    match &args.output {
        Some(path) => {
            replace(path, next, |file| write(file, &trace))?;
            print_error_line(format!(
                "{}: {} calls of {} ranks",
                name(path),
                count(trace.ops.len() as u64),
                trace.ranks
            ));
            Ok(())
        }
        None if std::io::stdout().is_terminal() => {
            Err(Failure::usage("a trace is not for a terminal", next))
        }
        None => write(BufWriter::new(std::io::stdout().lock()), &trace)
            .or_fail("cannot write to standard output", next),
    }
}

fn write(mut to: impl Write, trace: &Trace) -> std::io::Result<()> {
    format::write(&mut to, trace)?;
    to.flush()
}

/// The workload's description: `KIND:NAME=VALUE,...`, sizes as plain numbers.
fn spec(args: &GenArgs) -> Result<String> {
    let mut spec = args.kind.clone();
    for param in &args.params {
        let (name, value) = param.split_once('=').ok_or_else(|| {
            Failure::usage(
                format!("'{param}' is no parameter"),
                "write NAME=VALUE; `forebay trace gen list` shows the names",
            )
        })?;
        let value = parse_size(value).map_or(value.to_string(), |n| n.to_string());
        spec.push(if spec.contains(':') { ',' } else { ':' });
        spec.push_str(&format!("{name}={value}"));
    }
    Ok(spec)
}

/// Reads a trace of any kind. Of one that was cut off, what is whole, with a word on standard error.
///
/// # Errors
/// What is wrong with it, and where.
pub fn open(path: &Path) -> Result<Recording> {
    let recording = forebay_trace::open(path).map_err(|e| {
        Failure::new(
            format!("cannot read the trace: {e}"),
            "name a trace of `forebay trace record` or `gen`, or a DXT export (CSV)",
        )
    })?;
    if let Some(loss) = &recording.loss {
        print_error_line(format!("forebay: {}: {loss}", name(path)));
    }
    Ok(recording)
}

/// `trace stats`.
///
/// # Errors
/// If the trace cannot be read.
pub fn stats(args: &StatsArgs) -> Result {
    let recording = open(&args.file)?;
    let trace = recording.trace();
    let stats = Stats::of(&trace);
    let found = discover(&trace, patterns::find);
    let text = if args.json {
        let mut value = serde_json::json!(stats);
        value["actions"] = actions_json(&recording);
        value["patterns"] = serde_json::json!(found);
        value["lost_bytes"] = recording.loss.map(|loss| loss.bytes).into();
        json(&value)?
    } else {
        text(&stats) + &actions(&recording) + &patterns::text(&found)
    };
    print(text)
}

fn actions_json(recording: &Recording) -> serde_json::Value {
    let counted = recording.actions().into_iter();
    let each = |(action, calls, failed): (Action, u64, u64)| {
        let value = serde_json::json!({ "calls": calls, "failed": failed });
        (action.name().to_string(), value)
    };
    counted.map(each).collect::<serde_json::Map<_, _>>().into()
}

/// A table of what a recording has beside reads and writes; nothing for other traces.
fn actions(recording: &Recording) -> String {
    let counted = recording.actions();
    let data = |action: &Action| matches!(action, Action::Read | Action::Write);
    if counted
        .iter()
        .all(|(action, _, failed)| data(action) && *failed == 0)
    {
        return String::new();
    }
    let mut table = Table::new(&["operation", "calls", "failed"]);
    for (action, calls, failed) in counted {
        table.row(vec![action.name().to_string(), count(calls), count(failed)]);
    }
    format!("\n{table}")
}

fn text(stats: &Stats) -> String {
    let mut table = Table::new(&[
        "file", "ranks", "writers", "readers", "written", "read", "end",
    ]);
    for file in stats.files.iter().take(MAX_FILES_SHOWN) {
        table.row(vec![
            file.name.clone(),
            count(file.ranks),
            count(file.writers),
            count(file.readers),
            size(file.written),
            size(file.read),
            size(file.end),
        ]);
    }
    let more = stats.files.len().saturating_sub(MAX_FILES_SHOWN);
    let more = if more > 0 {
        format!("and {} more files; --json shows all\n", count(more as u64))
    } else {
        String::new()
    };
    format!("{stats}\n{table}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_a_description() {
        let args = |kind: &str, params: &[&str]| GenArgs {
            kind: kind.into(),
            params: params.iter().map(|p| p.to_string()).collect(),
            output: None,
        };
        assert_eq!(spec(&args("tile", &[])).unwrap(), "tile");
        assert_eq!(
            spec(&args("ior-n-n", &["ranks=4", "size=64KiB"])).unwrap(),
            "ior-n-n:ranks=4,size=65536"
        );
        assert_eq!(spec(&args("tile:x=2", &["y=3"])).unwrap(), "tile:x=2,y=3");
        assert_eq!(spec(&args("tile", &["x"])).unwrap_err().code, 2);
    }
}
