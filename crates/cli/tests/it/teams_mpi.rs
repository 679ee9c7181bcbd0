//! The ranks of a job below `forebay run`, one team over four servers that are MPI processes: they make, write, close and look at
//! one shared file together. The second step of the job is another team. Then a server is killed: calls end with an error, not never.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::left::nothing;
use crate::common::mpi::{N, job, logs, mpirun, open_mpi, place};
use forebay_client::OpenOptions;
use forebay_client::team_ioctl::RankTeam;
use std::os::unix::fs::FileExt;

/// Says what a process that the test started as a rank is to do.
const ROLE: &str = "FOREBAY_TEST_RANK";

/// What a rank does; in the test run itself, nothing.
#[test]
fn rank() {
    let Ok(path) = std::env::var(ROLE) else {
        return;
    };
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let place = number("OMPI_COMM_WORLD_RANK")
        .or_else(|| number("PMI_RANK"))
        .unwrap();
    let team = RankTeam::of_job();
    if let Some(path) = path.strip_prefix("fail:") {
        // The server of mount 2 is dead; its ranks do not get in, and the others hear of it.
        let error = match team {
            Ok(mut team) => {
                assert_ne!(place % 4, 2);
                team.stat(path).unwrap_err()
            }
            Err(error) => {
                assert_eq!(place % 4, 2, "{error}");
                return;
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
        return;
    }
    let mut team = team.unwrap();
    let how = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .clone();
    let file = team.open(&path, &how).unwrap();
    file.write_all_at(&[b'a' + place as u8; 1000], 1000 * place)
        .unwrap();
    let closed = team.close(file).unwrap();
    let seen = team.stat(&path).unwrap();
    assert_eq!((closed.size, closed.ino), (8000, seen.ino));
    let file = team.open(&path, OpenOptions::new().read(true)).unwrap();
    let mut next = [0; 1000];
    let other = (place + 1) % 8;
    file.read_exact_at(&mut next, 1000 * other).unwrap();
    assert_eq!(next, [b'a' + other as u8; 1000]);
    team.close(file).unwrap();
}

/// A shell command that runs eight ranks.
fn ranks(mpirun: &str, what: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let options = match open_mpi() {
        true => "--oversubscribe --bind-to none --allow-run-as-root",
        false => "",
    };
    format!(
        "{ROLE}={what} {mpirun} -n 8 {options} {} teams_mpi::rank --exact --nocapture >&2",
        program.display()
    )
}

#[test]
fn all_ranks_of_a_job_are_a_team_over_its_servers() {
    let Some(name) = mpirun() else { return };
    let place = place();
    let (one, two) = (ranks(name, "/one"), ranks(name, "/two"));
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let script = format!(
        "set -e; {one}; {two}; {forebay} status {} --json; cat $FOREBAY_MOUNT/one | sha256sum",
        place.text("m1")
    );
    let (code, out, err) = job(&place, &script);
    assert_eq!(code, 0, "{out}{err}{}", logs(&place));
    let status: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let members = status["members"].as_array().unwrap();
    assert_eq!(members.len(), N);
    for member in members {
        // Five calls a step.
        assert_eq!(member["team_calls"], 10, "{out}");
        assert_eq!(member["team_failures"], 0, "{out}");
    }
    nothing(&place);
}

#[test]
fn a_dead_server_ends_a_teams_call_with_an_error() {
    let Some(name) = mpirun() else { return };
    if !open_mpi() {
        // MPICH ends all servers with one.
        return;
    }
    let place = place();
    let warm = ranks(name, "/f");
    let fail = ranks(name, "fail:/f");
    let dir = place.text("");
    let script = format!("set -e; {warm}; kill -9 $(cat {dir}n2/lock); {fail}; echo well");
    let (code, out, err) = job(&place, &script);
    assert_eq!(out, "well\n", "{err}{}", logs(&place));
    // The service has lost a server.
    assert_ne!(code, 0, "{err}");
    nothing(&place);
}
