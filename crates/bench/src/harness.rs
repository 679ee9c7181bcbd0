//! The parts that all benchmarks share: the flags that say which cases, how often, where and in which form; choosing by name;
//! output.
use crate::fail::{Context, Failure, Result};
use crate::report::Report;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A case of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case<W> {
    /// As on the command line and in results.
    pub name: &'static str,
    /// The input of what is measured.
    pub work: W,
    /// It takes minutes or gigabytes, so it runs only if it is named.
    pub large: bool,
}

impl<W> Case<W> {
    /// A case that runs if none is named.
    pub const fn new(name: &'static str, work: W) -> Case<W> {
        let large = false;
        Case { name, work, large }
    }

    /// A case whose name is made at run time; the name is never freed.
    pub fn named(name: String, work: W) -> Case<W> {
        Case::new(name.leak(), work)
    }

    /// A case that runs only if it is named.
    pub const fn large(name: &'static str, work: W) -> Case<W> {
        let large = true;
        Case { name, work, large }
    }
}

/// Flags of every benchmark.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Only these cases (all but large ones if none is given); several with commas between
    #[arg(
        long = "case",
        visible_alias = "cases",
        value_name = "CASE",
        value_delimiter = ','
    )]
    cases: Vec<String>,
    /// Rounds; medians are of this many
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Name the cases and end
    #[arg(long)]
    list: bool,
}

impl RunArgs {
    /// The cases to run. `None` if they were only to be listed, which is done then. `hint` is for someone who names an unknown one.
    ///
    /// # Errors
    /// Names the case that there is not.
    pub fn choose<W: Clone>(&self, all: &[Case<W>], hint: &str) -> Result<Option<Vec<Case<W>>>> {
        if self.list {
            all.iter().for_each(|c| println!("{}", c.name));
            return Ok(None);
        }
        if self.cases.is_empty() {
            let small = all.iter().filter(|c| !c.large);
            return Ok(Some(small.cloned().collect()));
        }
        let hint = format!("--list names them{hint}");
        by_name("case", all, |c| c.name, &self.cases, &hint).map(Some)
    }

    /// Says what is measured: before the table's head, or beside the JSON lines.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn begin(&self, header: &str, head: &str) -> Result<()> {
        match self.json {
            true => eprint!("{header}"),
            false => write!(std::io::stdout(), "{header}{head}").doing("standard output")?,
        }
        Ok(())
    }

    /// Prints the results of a case.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn print(
        &self,
        report: &Report,
        case: &str,
        rows: impl FnOnce(&Report, &str) -> String,
    ) -> Result<()> {
        let text = match self.json {
            true => report.json(case),
            false => rows(report, case),
        };
        progress("");
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.doing("standard output")
    }

    /// Which round this is, for someone who watches.
    pub fn progress(&self, what: &str, round: u32) {
        progress(&format!("{what} round {} of {}", round + 1, self.runs));
    }
}

/// All items, beginning with another one in each round.
pub fn in_turn<T: Clone>(all: &[T], round: u32) -> Vec<T> {
    let mut order = all.to_vec();
    order.rotate_left(round as usize % all.len());
    order
}

/// Does the work of each item in a thread of its own. The results are in the order of the items.
///
/// # Errors
/// The first that failed, or panicked.
pub fn in_threads<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |item| scope.spawn(move || work(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        let panicked = |_| Failure::new("a thread of the benchmark panicked");
        let join = threads
            .into_iter()
            .map(|t| t.join().map_err(panicked).flatten());
        join.collect()
    })
}

/// Runs a program; its output is shown only if it fails.
///
/// # Errors
/// If it cannot be started or fails; with what it said.
pub fn run_program(command: &mut Command) -> Result<()> {
    program_output(command).map(drop)
}

/// Runs a program, and returns its standard output.
///
/// # Errors
/// As [`run_program`].
pub fn program_output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().doing(&name)?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(Failure::new(format!(
            "{name}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        ))),
    }
}

/// Those of `all` with these names, or all if none is given.
///
/// # Errors
/// Names the one that there is not.
pub fn by_name<T: Clone>(
    what: &str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    wanted: &[String],
    hint: &str,
) -> Result<Vec<T>> {
    let find = |wanted: &String| {
        let found = all.iter().find(|one| name(one) == wanted).cloned();
        found.ok_or_else(|| Failure::new(format!("no {what} '{wanted}'; {hint}")))
    };
    match wanted {
        [] => Ok(all.to_vec()),
        wanted => wanted.iter().map(find).collect(),
    }
}

/// A line of standard error that the next one replaces, if a person watches.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{what:40}\r");
    }
}

/// The directory that is measured.
#[derive(Debug, clap::Args)]
pub struct DirArgs {
    /// Directory on the disk to measure [default: a new one in /var/tmp]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl DirArgs {
    /// Makes a new directory in it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self) -> Result<WorkDir> {
        let parent = self.dir.as_deref().unwrap_or(Path::new("/var/tmp"));
        let path = parent.join(format!("forebay-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).doing(path.display())?;
        Ok(WorkDir(path.canonicalize().doing(path.display())?))
    }
}

/// The directory of this run, removed at the end.
pub struct WorkDir(pub PathBuf);

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(names: &[&str]) -> RunArgs {
        RunArgs {
            cases: names.iter().map(|n| (*n).to_string()).collect(),
            runs: 5,
            json: false,
            list: false,
        }
    }

    #[test]
    fn cases_are_found_by_name_and_large_ones_only_so() {
        let all = [Case::new("small", ()), Case::large("large", ())];
        assert_eq!(
            cases(&[]).choose(&all, ", or so").unwrap().unwrap(),
            all[..1]
        );
        let large = cases(&["large"]).choose(&all, ", or so").unwrap();
        assert_eq!(large.unwrap(), all[1..]);
        let missing = cases(&["small", "huge"])
            .choose(&all, ", or so")
            .unwrap_err();
        assert_eq!(missing.0, "no case 'huge'; --list names them, or so");
    }
}
