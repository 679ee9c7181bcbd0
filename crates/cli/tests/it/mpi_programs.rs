//! Programs that people run with MPI, on four servers with four mounts of one machine: rank k of a program works on mount k,
//! all on the same files, and verifies what another rank wrote through another mount.
//!
//! The programs lie in `programs/`. They have an `mpirun` of their own, of any MPI: it has nothing to do with that of the
//! servers. Debian links HDF5, PnetCDF and mpi4py with OpenMPI, so these run with OpenMPI also over servers of MPICH; the
//! program in plain MPI-IO runs with both. Every file must have the same SHA-256 on each mount and in a plain directory.
//!
//! What is missing is skipped, with a word; with `FOREBAY_REQUIRE_MPI` set it fails.
use crate::common::left::nothing;
use crate::common::mpi::{self, job_place, logs, mpirun, place};
use crate::common::{Place, command, outcome, run, run_within};
use forebay_testkit::prerequisites::{has_program, program, skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For one service and all that runs on it. Never what decides: debug builds on a busy machine are slow.
const LIMIT: Duration = Duration::from_secs(400);

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// How a program is started on four ranks: an MPI, and its way of doing MPI-IO.
struct Way {
    name: &'static str,
    mpirun: &'static str,
    mpicc: &'static str,
    options: &'static str,
}

const OMPIO: Way = Way {
    name: "ompio",
    mpirun: "mpirun.openmpi",
    mpicc: "mpicc.openmpi",
    options: "--oversubscribe --bind-to none --mca io ompio",
};
const ROMIO: Way = Way {
    name: "romio",
    options: "--oversubscribe --bind-to none --mca io romio321",
    ..OMPIO
};
const MPICH: Way = Way {
    name: "mpich",
    mpirun: "mpirun.mpich",
    mpicc: "mpicc.mpich",
    options: "",
};

impl Way {
    fn usable(&self) -> bool {
        let usable = program(self.mpirun).is_some() && program(self.mpicc).is_some();
        if !usable {
            skip(
                "MPI",
                format_args!("there is no {} or {}", self.mpirun, self.mpicc),
            );
        }
        usable
    }

    /// Compiles a program of `programs/`, to the place; `None` if what it is linked with is not there.
    fn built(&self, place: &Place, name: &str, package: Option<&str>) -> Option<PathBuf> {
        let mut cc = Command::new(self.mpicc);
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let program = place.path(&format!("{name}.{}", self.name));
        cc.arg(&program).arg(format!("{SOURCES}/{name}.c"));
        if let Some(package) = package {
            let flags = run(Command::new("pkg-config").args(["--cflags", "--libs", package]));
            if !flags.status.success() {
                skip("MPI", format_args!("there is no {package}"));
                return None;
            }
            let flags = String::from_utf8(flags.stdout).unwrap();
            cc.args(flags.split_whitespace());
        }
        let (code, out, err) = outcome(&run(&mut cc));
        assert_eq!(code, 0, "{out}{err}");
        Some(program)
    }

    /// The shell command that runs it on four ranks.
    fn line(&self, program: &str) -> String {
        format!("{} -n 4 {} {program}", self.mpirun, self.options)
    }
}

/// One program, run in one way.
struct Case {
    way: &'static Way,
    /// With its arguments.
    program: String,
    /// Files that hold other bytes in each run, so that there is nothing to compare with.
    differ: &'static [&'static str],
}

/// The sums of the files below a directory, by name.
fn sums(dir: &Path) -> BTreeMap<String, String> {
    let list = "find . -type f | sort | xargs -r sha256sum";
    let (code, out, err) = outcome(&run(Command::new("sh").args(["-c", list]).current_dir(dir)));
    assert_eq!((code, &*err), (0, ""), "{out}");
    parse(&out)
}

fn parse(lines: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (sum, name) = line.split_once("  ").unwrap();
        (name.trim_start_matches("./").to_string(), sum.to_string())
    };
    lines.lines().map(line).collect()
}

/// Root may run OpenMPI only if it says so.
const AS_ROOT: &str = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";

/// What the cases leave in a plain directory each.
fn plain(place: &Place, cases: &[Case]) -> Vec<BTreeMap<String, String>> {
    let run_one = |(k, case): (usize, &Case)| {
        let dir = place.path(&format!("plain{k}"));
        std::fs::create_dir(&dir).unwrap();
        let script = format!("{AS_ROOT}; {}", case.way.line(&case.program));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("FOREBAY_MOUNTS", &dir);
        let (code, out, err) = outcome(&run_within(&mut shell, LIMIT));
        assert_eq!(code, 0, "{} in a plain directory: {out}{err}", case.program);
        sums(&dir)
    };
    cases.iter().enumerate().map(run_one).collect()
}

/// Runs the cases one after another on one service, each in a directory of its own, and compares: the sums on the four
/// mounts, and with those of a plain directory.
#[track_caller]
fn all_well(place: &Place, settings: &[&str], cases: &[Case]) {
    let plain = plain(place, cases);
    let mut script = format!("set -e; all=$FOREBAY_MOUNTS; {AS_ROOT};");
    for (k, case) in cases.iter().enumerate() {
        script += &format!(
            " mkdir $FOREBAY_MOUNT/{k}; export FOREBAY_MOUNTS=$(echo $all | sed 's,:,/{k}:,g')/{k};"
        );
        script += &format!(" {} >&2;", case.way.line(&case.program));
        script += " for m in $(echo $FOREBAY_MOUNTS | tr : ' '); do cd $m; echo mount; sha256sum *; cd /; done;";
    }
    let args = mpi::args(place, settings, &script);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, out, err) = outcome(&run_within(&mut command(&args), LIMIT));
    assert_eq!(code, 0, "{settings:?}: {out}{err}{}", logs(place));
    nothing(place);

    let found: Vec<BTreeMap<_, _>> = out.split("mount\n").skip(1).map(parse).collect();
    assert_eq!(found.len(), cases.len() * mpi::N, "{out}");
    for (k, case) in cases.iter().enumerate() {
        let what = format!("{} by {}", case.program, case.way.name);
        let mounts = &found[k * mpi::N..][..mpi::N];
        for other in &mounts[1..] {
            assert_eq!(other, &mounts[0], "{what}: the mounts differ");
        }
        assert!(!plain[k].is_empty(), "{what}");
        assert!(plain[k].keys().eq(mounts[0].keys()), "{what}: {mounts:?}");
        for (name, sum) in &plain[k] {
            let same = sum == &mounts[0][name] || case.differ.contains(&&**name);
            assert!(same, "{what}: {name} is not what a plain directory gives");
        }
    }
}

/// The cases of one source in the ways that can be had; none if the servers' MPI cannot be had.
fn cases(
    place: &Place,
    (name, package): (&str, Option<&str>),
    ways: &[&'static Way],
    arguments: &str,
    differ: &'static [&'static str],
) -> Vec<Case> {
    let mut cases = Vec::new();
    for way in ways.iter().filter(|way| way.usable()) {
        if let Some(program) = way.built(place, name, package) {
            cases.push(Case {
                way,
                program: format!("{} {arguments}", program.display()),
                differ,
            });
        }
    }
    cases
}

#[test]
fn nothing_of_the_servers_mpi_or_their_secret_reaches_the_command() {
    let Some(place) = job_place() else { return };
    // Variables that this test has itself (its user may have set some for MPI) are meant for everybody.
    let script =
        "tr '\\0' '\\n' < /proc/$$/environ | grep -E '^(OMPI|PMI|PRTE|HYDRA|MPI|FOREBAY)' | sort";
    let (code, out, err) = mpi::job(&place, script);
    assert_eq!(code, 0, "{err}");
    let names = out.lines().map(|l| l.split('=').next().unwrap());
    let new: Vec<_> = names.filter(|n| std::env::var_os(n).is_none()).collect();
    let ours = ["COMMAND", "MOUNT", "MOUNTS", "TEAM"].map(|name| format!("FOREBAY_{name}"));
    assert_eq!(new, ours);
    nothing(&place);
}

/// The programs that need no more than the default promises: what a rank wrote, others see after a sync, a close or an unlock.
#[test]
fn mpi_io_of_three_libraries() {
    let Some(place) = job_place() else { return };
    let source = ("mpiio", None);
    let most = "independent collective blocks ordered shared";
    // OMPIO takes no locks in its atomic mode, which fails on any file system.
    let differ = &["shared", "atomic"];
    let mut all = cases(&place, source, &[&OMPIO], &format!("{most} sync"), differ);
    all.extend(cases(&place, source, &[&ROMIO], "", differ));
    // The ROMIO of MPICH leaves out the sync of a rank that wrote nothing, so the reader's never comes here.
    let most = format!("{most} atomic");
    all.extend(cases(&place, source, &[&MPICH], &most, differ));
    all_well(&place, &[], &all);
}

#[test]
fn hdf5() {
    let Some(place) = job_place() else { return };
    let source = ("hdf5", Some("hdf5-openmpi"));
    let all = cases(&place, source, &[&OMPIO, &ROMIO], "", &[]);
    all_well(&place, &[], &all);
}

#[test]
fn pnetcdf() {
    let Some(place) = job_place() else { return };
    let source = ("pnetcdf", Some("pnetcdf"));
    let all = cases(&place, source, &[&OMPIO, &ROMIO], "", &[]);
    all_well(&place, &[], &all);
}

/// Programs that rely on seeing each write at once, as on a local disk.
#[test]
fn programs_that_need_posix_consistency() {
    let Some(place) = job_place() else { return };
    let differ = &["atomic"];
    let parts = "independent collective sync";
    let source = ("mpiio", None);
    let mut all = cases(&place, source, &[&OMPIO], parts, differ);
    let parts = format!("{parts} atomic");
    all.extend(cases(&place, source, &[&ROMIO, &MPICH], &parts, differ));
    for source in ["hdf5-openmpi", "pnetcdf"] {
        let name = source.split('-').next().unwrap();
        let source = (name, Some(source));
        all.extend(cases(&place, source, &[&ROMIO], "fill", differ));
    }
    all_well(&place, &["--consistency", "posix"], &all);
}

#[test]
fn numpy_by_mpi4py() {
    if mpirun().is_none() {
        return;
    }
    // Debian's own python: packages of apt are not seen by another one that comes first in PATH.
    let python = "/usr/bin/python3";
    if !has_program(python) {
        return;
    }
    let modules = run(Command::new(python).args(["-c", "import mpi4py, numpy"]));
    if !modules.status.success() {
        return skip("MPI", "there is no mpi4py, or no numpy");
    }
    let place = place();
    let ways = [&OMPIO, &ROMIO];
    let case = |way: &'static Way| Case {
        way,
        program: format!("{python} {SOURCES}/numpy_io.py"),
        differ: &[],
    };
    let all: Vec<Case> = ways.into_iter().filter(|w| w.usable()).map(case).collect();
    all_well(&place, &[], &all);
}
