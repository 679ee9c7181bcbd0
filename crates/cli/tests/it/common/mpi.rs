//! Four servers below `mpirun` with four mounts on this machine, for the tests of the service over MPI.
use super::{Place, command, forebay, has_fuse};
use forebay_testkit::prerequisites::{program, skip};
use std::io::BufRead;
use std::process::{Child, Stdio};

/// How many servers, and mounts.
pub const N: usize = 4;

/// Whether the program was built for OpenMPI; else for MPICH.
pub fn open_mpi() -> bool {
    forebay_node::transport::library().is_some_and(|mpi| mpi.contains("Open MPI"))
}

/// The `mpirun` of the MPI this program was built for, if there is one.
#[track_caller]
pub fn mpirun() -> Option<&'static str> {
    let name = match open_mpi() {
        true => "mpirun.openmpi",
        false => "mpirun.mpich",
    };
    if program(name).is_none() {
        skip("MPI", format_args!("there is no {name}"));
        return None;
    }
    has_fuse().then_some(name)
}

/// A place with as many mount points as servers: m0 to m3.
pub fn place() -> Place {
    let place = Place::new();
    for k in 0..N {
        std::fs::create_dir(place.path(&format!("m{k}"))).unwrap();
    }
    place
}

/// The same, if there is an `mpirun`.
#[track_caller]
pub fn job_place() -> Option<Place> {
    mpirun().map(|_| place())
}

/// The arguments of `run` for four servers below `mpirun`, and of its command, a shell script.
pub fn args(place: &Place, more: &[&str], script: &str) -> Vec<String> {
    let (store, mount) = (place.text("n{rank}"), place.text("m{rank}"));
    let head = ["run", "--launcher", "mpirun", "--nodes", "4"];
    let places = ["--store", &store, "--mount", &mount];
    let command = ["--", "sh", "-c", script];
    let all = [&head, &places[..], more, &command].concat();
    all.into_iter().map(String::from).collect()
}

/// Runs a shell script as the command of `run`; its exit code and what it said.
pub fn job(place: &Place, script: &str) -> (i32, String, String) {
    let args = args(place, &[], script);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    forebay(&args)
}

/// What the servers have said.
pub fn logs(place: &Place) -> String {
    let log = |k| std::fs::read_to_string(place.path(&format!("n{k}/log"))).unwrap_or_default();
    (0..N).map(log).collect()
}

/// Starts a job and waits until its script has said "ready". What it says on standard error can be read.
pub fn started(place: &Place, more: &[&str], script: &str) -> Child {
    let args = args(place, more, script);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = command(&args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{}", logs(place));
    child
}

/// The process that has the store of this number.
pub fn server(place: &Place, k: usize) -> u32 {
    let lock = std::fs::read_to_string(place.path(&format!("n{k}/lock"))).unwrap();
    lock.trim().parse().unwrap()
}
