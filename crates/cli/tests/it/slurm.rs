//! The documented batch script under a real Slurm of one node: with a small program, with one of MPI-IO, and with one that is
//! cancelled while it writes; and what becomes of a job whose server stops first, or whose start is ended.
//!
//! `scripts/slurm.sh` starts the Slurm; that needs root, and a machine whose name its daemons can look up. Without one the
//! test says that it skips; with `FOREBAY_REQUIRE_SLURM` set it fails.
use crate::common::left::nothing;
use crate::common::{Place, has_fuse, mpi, outcome, run};
use forebay_testkit::prerequisites::{program, skip};
use forebay_testkit::turns::{self, Turn};
use forebay_testkit::wait::until;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A running Slurm; it stops when dropped. Its test has the program for itself: its node is all cores of the machine.
struct Slurm {
    place: Place,
    _turn: Turn,
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

impl Slurm {
    fn start() -> Option<Slurm> {
        let turn = turns::exclusive();
        let programs = ["slurmctld", "slurmd", "munged", "sbatch"];
        let there = |name: &str| program(name).is_some();
        let ready = rustix::process::geteuid().is_root() && programs.into_iter().all(there);
        if !ready {
            skip("SLURM", "there is no slurm-wlm, no munge, or no root");
            return None;
        }
        if !has_fuse() {
            return None;
        }
        let slurm = Slurm {
            place: Place::new(),
            _turn: turn,
        };
        match outcome(&run(&mut slurm.script("start"))) {
            (0, _, _) => Some(slurm),
            (_, out, err) => {
                skip("SLURM", format_args!("it does not start: {out}{err}"));
                None
            }
        }
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(root().join("scripts/slurm.sh"));
        command.arg(verb).arg(self.place.path("slurm"));
        command.stdin(Stdio::null());
        command
    }

    /// A program of Slurm.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let own = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", own.display()));
        command.env("SLURM_CONF", self.place.path("slurm/slurm.conf"));
        command
            .current_dir(self.place.path(""))
            .stdin(Stdio::null());
        command
    }

    /// Submits a job that runs this shell script, in the place; what it says goes to the file `out` there.
    fn submit(&self, place: &Place, script: &str) {
        std::fs::write(place.path("batch"), format!("#!/bin/sh\n{script}\n")).unwrap();
        let _ = std::fs::remove_file(place.path("out"));
        let mut command = self.command("sbatch");
        command.current_dir(place.path(""));
        command.args([
            "--overcommit",
            "-o",
            &place.text("out"),
            &place.text("batch"),
        ]);
        let (code, _, err) = outcome(&run(&mut command));
        assert_eq!(code, 0, "{err}");
    }

    fn idle(&self) -> bool {
        run(self.command("squeue").arg("-h")).stdout.is_empty()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        run(&mut self.script("stop"));
    }
}

/// The batch script of the page, for one node with so many tasks and in this place, with `app` as its program.
fn batch(place: &Place, tasks: usize, app: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let page = std::fs::read_to_string(root().join("docs/slurm.md")).unwrap();
    let script = page.split("```bash\n").nth(1).unwrap();
    let script = script.split("```").next().unwrap();
    let ours = script
        .replace("--nodes=2", "--nodes=1")
        .replace("--ntasks-per-node=2", &format!("--ntasks-per-node={tasks}"))
        .replace("/local/$USER/forebay/store", &place.text("s"))
        .replace("/local/$USER/forebay/mount", &place.text("m"));
    assert_ne!(script, ours);
    std::fs::write(place.path("batch"), ours).unwrap();
    std::fs::write(place.path("app"), format!("#!/bin/sh\n{app}\n")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("app"), mode).unwrap();
    place.text("batch")
}

/// The program in MPI-IO, compiled for the MPI of the servers, and the name that Slurm has for how that MPI starts.
fn mpi_program(place: &Place) -> (String, &'static str) {
    let (cc, kind) = match mpi::open_mpi() {
        true => ("mpicc.openmpi", "pmix"),
        false => ("mpicc.mpich", "pmi2"),
    };
    let source = root().join("crates/cli/tests/programs/mpiio.c");
    let mut cc = Command::new(cc);
    cc.args(["-O1", "-o"]).arg(place.path("mpiio")).arg(source);
    let (code, out, err) = outcome(&run(&mut cc));
    assert_eq!(code, 0, "{out}{err}");
    (place.text("mpiio"), kind)
}

#[test]
fn the_documented_script_runs_and_a_cancelled_job_leaves_a_readable_store() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Place::new();
    let submit = |tasks: usize, app: &str, kind: Option<&str>, more: &[&str]| {
        let mut command = slurm.command("sbatch");
        command.current_dir(place.path("")).args(more);
        command.envs(kind.map(|kind| ("SLURM_MPI_TYPE", kind)));
        let script = batch(&place, tasks, app);
        command.args(["-o", &place.text("out"), &script]);
        outcome(&run(&mut command))
    };
    let said = || std::fs::read_to_string(place.path("out")).unwrap_or_default();
    std::fs::create_dir(place.path("input")).unwrap();
    std::fs::write(place.path("input/given"), "first").unwrap();
    let results = |name: &str| {
        let all = std::fs::read_dir(place.path("")).unwrap().flatten();
        let dirs = all.filter(|e| e.file_name().to_string_lossy().starts_with("results-"));
        let files = dirs.map(|dir| std::fs::read_to_string(dir.path().join(name)));
        files.flatten().collect::<Vec<String>>()
    };
    let first = "cp $FOREBAY_MOUNT/input/given $FOREBAY_MOUNT/f; exit 6";
    let (code, _, err) = submit(1, first, None, &["--wait"]);
    assert_eq!(code, 6, "the job's code is the program's: {err}{}", said());
    assert_eq!(results("f"), ["first"], "{}", said());
    nothing(&place);

    // A job that passes on nothing of its environment: its servers have their secret all the same.
    let (store, mount) = (place.text("s"), place.text("m"));
    let look = format!("grep -qz ^FOREBAY_SECRET= /proc/$(cat {store}/lock)/environ");
    let wrapped = format!(
        "SLURM_EXPORT_ENV=NONE exec forebay run --store {store} --mount {mount} -- sh -c '{look}'"
    );
    let mut command = slurm.command("sbatch");
    command.args(["--wait", "-o", &place.text("out"), "--wrap", &wrapped]);
    let (code, _, err) = outcome(&run(&mut command));
    assert_eq!(code, 0, "{err}{}", said());
    nothing(&place);

    // A program of MPI, as many tasks as there are cores for.
    let tasks = std::thread::available_parallelism().map_or(1, |n| n.get().min(2));
    let (program, kind) = mpi_program(&place);
    let app = format!("exec {program} independent collective blocks");
    let (code, _, err) = submit(tasks, &app, Some(kind), &["--wait"]);
    assert_eq!(code, 0, "{err}{}{}", said(), place.log());
    // Once: the tasks were one job of MPI, and not each one of its own.
    assert_eq!(said().matches("mpiio: well").count(), 1, "{}", said());
    nothing(&place);

    // Cancelled while it writes.
    let app = format!(
        "mkdir -p $FOREBAY_MOUNT/d && echo second > $FOREBAY_MOUNT/g || exit\n\
         FOREBAY_MOUNTS=$FOREBAY_MOUNT/d exec {program} forever"
    );
    let (code, _, err) = submit(tasks, &app, Some(kind), &[]);
    assert_eq!(code, 0, "{err}");
    until("the job runs", || said().contains("goes on"));
    run(slurm.command("scancel").arg("--name=simulation"));
    until("the job ends", || slurm.idle());
    nothing(&place);
    assert!(place.log().contains("stopped"), "{}", place.log());
    assert_eq!(results("g"), [""; 0], "a cancelled job is not staged out");

    let app = "cd $FOREBAY_MOUNT && cat f g && sha256sum blocks independent && ls d";
    let (code, _, err) = submit(1, app, None, &["--wait"]);
    assert_eq!(code, 0, "{err}{}", said());
    assert!(said().contains("firstsecond\n"), "{}", said());
    assert_eq!(results("g"), ["second\n"]);
    nothing(&place);
}

/// What a job's step has done when its service is hurt.
#[derive(PartialEq)]
enum Step {
    /// Slurm may not have started its task yet.
    IsLaunched,
    /// It has written lines.
    Writes,
}

/// A job whose command is a step of its own that writes by path whatever comes of it, and that no signal but SIGKILL ends; then
/// `injure`, a shell script. All ends, before Slurm would end it, and no line lies below the mount. What the job said.
#[track_caller]
fn no_line_is_lost(slurm: &Slurm, place: &Place, step: Step, injure: &str) -> String {
    let (store, mount) = (place.text("s"), place.text("m"));
    let writer = "trap '' TERM HUP INT\nwhile :; do echo x >> $FOREBAY_MOUNT/lines; sleep 0.01; done 2>/dev/null\n";
    std::fs::write(place.path("writer"), writer).unwrap();
    // What an earlier job on the store has written goes before this one's step begins.
    slurm.submit(
        place,
        &format!(
            "forebay run --store {store} --mount {mount} -- \
             sh -c 'rm -f $FOREBAY_MOUNT/lines; echo go; exec srun --overlap -n 1 sh {}'
echo ended with $?",
            place.text("writer")
        ),
    );
    let said = || std::fs::read_to_string(place.path("out")).unwrap_or_default();
    let lines = || std::fs::read_to_string(place.path("m/lines")).unwrap_or_default();
    until("the command begins", || said().contains("go\n"));
    if step == Step::Writes {
        until("the step writes", || !lines().is_empty());
    }
    let mut command = Command::new("sh");
    command.args(["-c", injure]).stdin(Stdio::null());
    let (code, out, err) = outcome(&run(command.current_dir(place.path(""))));
    assert_eq!(code, 0, "{out}{err}");
    until("the job ends", || slurm.idle());
    nothing(place);
    let bare = std::fs::read_dir(place.path("m")).unwrap();
    let found: Vec<_> = bare.flatten().map(|e| e.path()).collect();
    assert!(found.is_empty(), "below the mount: {found:?}; {}", said());
    assert!(said().contains("ended with 1\n"), "{}", said());
    said()
}

#[test]
fn a_server_that_stops_first_ends_the_step_and_no_line_lands_below_the_mount() {
    let Some(slurm) = Slurm::start() else { return };
    let place = Place::new();
    let told = "kill -TERM $(cat s/lock)";
    let said = no_line_is_lost(&slurm, &place, Step::Writes, told);
    assert!(
        said.contains("stops while the command runs (signal 15)"),
        "{said}"
    );
    let forced = format!("{} umount --force m", env!("CARGO_BIN_EXE_forebay"));
    let said = no_line_is_lost(&slurm, &place, Step::Writes, &forced);
    assert!(
        said.contains("stops while the command runs (asked to)"),
        "{said}"
    );
    // What Slurm has for the step hangs until `run` has given up asking for its end, and waits for its servers.
    let hangs = format!(
        "held=$(pgrep -f '^slurmstepd: .[0-9]*[.]1.'); kill -STOP $held; {forced} & sleep 20; kill -CONT $held; wait $!"
    );
    no_line_is_lost(&slurm, &place, Step::Writes, &hangs);
    // `srun` does not end its step: it hangs until it is killed. Nobody else would end the tasks before the job is over.
    let hangs = format!("kill -STOP $(pgrep -f '^srun --overlap -n 1 sh'); {forced}");
    no_line_is_lost(&slurm, &place, Step::Writes, &hangs);
    // The step is on its way at that moment, at different points of it.
    for pause in ["0", "0.1"] {
        let forced = format!("sleep {pause}; {forced}");
        no_line_is_lost(&slurm, &place, Step::IsLaunched, &forced);
    }
    assert!(!place.log().contains("panicked"), "{}", place.log());
}

#[test]
fn a_start_that_fails_or_is_ended_leaves_nothing_though_the_job_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let Some(slurm) = Slurm::start() else { return };
    let place = Place::new();
    let dir = place.text("");
    // Comes first in PATH: the same `srun`, but its program waits for the file `go`.
    std::fs::create_dir(place.path("bin")).unwrap();
    let real = run(Command::new("which").arg("srun")).stdout;
    let late = format!(
        "#!/bin/sh
while [ \"$1\" != /bin/sh ]; do options=\"$options $1\"; shift; done
exec {} $options /bin/sh -c 'echo $$ >{dir}begun; until test -e {dir}go; do sleep 0.1; done; exec \"$@\"' sh \"$@\"\n",
        String::from_utf8_lossy(&real).trim()
    );
    std::fs::write(place.path("bin/srun"), late).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("bin/srun"), mode).unwrap();
    let said = || std::fs::read_to_string(place.path("out")).unwrap_or_default();
    let started = format!("forebay run --store {dir}s --mount {dir}m -- touch {dir}ran");
    let over = format!("until test -e {dir}over; do sleep 0.1; done");

    // What an earlier failure may have left.
    std::fs::write(place.path("m/lost"), "x").unwrap();
    slurm.submit(&place, &format!("{started}; echo ended with $?; {over}"));
    until("the start fails", || said().contains("ended with 1\n"));
    assert!(
        said().contains("m is not empty") && said().contains("forebay: on "),
        "{}",
        said()
    );
    nothing(&place);
    std::fs::write(place.path("over"), "").unwrap();
    until("the job ends", || slurm.idle());
    std::fs::remove_file(place.path("m/lost")).unwrap();
    std::fs::remove_file(place.path("over")).unwrap();

    // Ended by a signal before the server has begun, which then begins.
    let path = format!("PATH={dir}bin:$PATH");
    slurm.submit(
        &place,
        &format!("{path} {started} & echo $! >{dir}run; wait $!; echo ended with $?; {over}"),
    );
    until("the step begins", || {
        std::fs::read_to_string(place.path("begun")).is_ok_and(|text| text.ends_with('\n'))
    });
    let pid = std::fs::read_to_string(place.path("run")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("run ends", || said().contains("ended with 143\n"));
    std::fs::write(place.path("go"), "").unwrap();
    nothing(&place);
    std::fs::write(place.path("over"), "").unwrap();
    until("the job ends", || slurm.idle());
    assert!(!place.path("ran").exists(), "{}", said());
    assert!(!place.log().contains("panicked"), "{}", place.log());
}
