//! Servers over MPI of which one has died, or was only kept from running for so long that the others declared it dead: it must not go on
//! beside them, and `umount` ends all of the service or says what it could not end.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::mpi::{N, logs, mpirun, open_mpi, place, server};
use crate::common::{Place, command, forebay};
use forebay_node::processes;
use forebay_testkit::stopped::stop_process;
use forebay_testkit::wait::{LIMIT, until_or};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};

/// The launcher and its servers; what still runs of them when the test ends is killed, or whoever touches a mount of a stopped one waits.
struct Launcher {
    child: Child,
    servers: Vec<u32>,
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.servers
            .iter()
            .for_each(|pid| crate::common::kill(*pid));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Four servers below `mpirun` with a short deadline, all ready. None if they cannot outlive each other here.
fn start(place: &Place) -> Option<Launcher> {
    let mpirun = mpirun()?;
    if !open_mpi() {
        eprintln!("skipped: MPICH ends all servers when one dies");
        return None;
    }
    let mut launch = Command::new(mpirun);
    launch.args([
        "--allow-run-as-root",
        "--oversubscribe",
        "--enable-recovery",
        "-n",
        "4",
    ]);
    launch.arg(command(&[]).get_program());
    launch.args([
        "serve",
        "--deadline",
        "2s",
        "--store",
        &place.text("n{rank}"),
    ]);
    launch.args(["--mount", &place.text("m{rank}")]);
    launch
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null());
    let child = launch
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Ready once every mount answers.
    until(place, "all mounts answer", || {
        (0..N).all(|k| forebay(&["status", &place.text(&format!("n{k}"))]).0 == 0)
    });
    let servers = (0..N).map(|k| server(place, k)).collect();
    Some(Launcher { child, servers })
}

#[track_caller]
fn until(place: &Place, what: &str, done: impl Fn() -> bool) {
    until_or(LIMIT, || format!("{what}\n{}", logs(place)), done);
}

/// Whether server `k` counts server `other` as dead.
fn is_dead(place: &Place, k: usize, other: usize) -> bool {
    let (code, out, _) = forebay(&["status", &place.text(&format!("n{k}")), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    code == 0 && status["missing"][other.to_string()]["health"] == "dead"
}

/// Nothing is left of the servers; the launcher's exit code is its own business.
fn end(place: &Place, launcher: Launcher) {
    // Without reaping it: that is done when it is dropped.
    until(place, "the launcher ends", || {
        !processes::is_alive(launcher.child.id())
    });
    drop(launcher);
    for k in 0..N {
        // A dead mount of a member that was killed.
        let _ = forebay(&["umount", &place.text(&format!("n{k}"))]);
    }
}

#[test]
fn a_server_that_was_declared_dead_and_runs_again_stops_serving_and_ends() {
    let place = place();
    let Some(launcher) = start(&place) else {
        return;
    };
    let number = server(&place, 2);
    let pid = Pid::from_raw(number as i32).unwrap();
    stop_process(pid);
    until(&place, "the others declare it dead", || {
        (0..N).filter(|k| *k != 2).all(|k| is_dead(&place, k, 2))
    });
    kill_process(pid, Signal::CONT).unwrap();
    until(&place, "it ends", || !processes::is_alive(number));
    let log = std::fs::read_to_string(place.path("n2/log")).unwrap();
    assert!(log.contains("declared this server dead"), "{log}");
    // Nothing lands in the bare directory: what it had mounted answers with an error.
    let refused = std::fs::write(place.path("m2/new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    // The others go on.
    assert!(
        (0..N).any(|k| k != 2 && std::fs::write(place.path(&format!("m{k}/on")), "x").is_ok())
            || is_dead(&place, 0, 2)
    );
    let (code, out, err) = forebay(&["umount", &place.text("n0")]);
    assert_eq!(code, 0, "{out}{err}{}", logs(&place));
    assert!(out.contains("member 2 had died"), "{out}");
    end(&place, launcher);
}

#[test]
fn umount_ends_a_server_that_is_stopped_by_a_signal_too() {
    let place = place();
    let Some(launcher) = start(&place) else {
        return;
    };
    let number = server(&place, 1);
    let pid = Pid::from_raw(number as i32).unwrap();
    stop_process(pid);
    until(&place, "the others declare it dead", || {
        is_dead(&place, 3, 1)
    });
    let (code, out, err) = forebay(&["umount", &place.text("n3")]);
    assert_eq!(code, 0, "{out}{err}{}", logs(&place));
    assert!(!processes::is_alive(number), "{out}{err}");
    end(&place, launcher);
}

#[test]
fn umount_after_a_members_death_ends_well_whichever_it_was() {
    for victim in 0..N {
        let place = place();
        let Some(launcher) = start(&place) else {
            return;
        };
        for k in 0..N {
            std::fs::write(place.path(&format!("m{k}/f{k}")), "x").unwrap();
        }
        let asked = (victim + 1) % N;
        // Written to, and not closed: with a member gone its commit may fail.
        let mut open = std::fs::File::create(place.path(&format!("m{asked}/open"))).unwrap();
        std::io::Write::write_all(&mut open, b"pending").unwrap();
        let pid = server(&place, victim);
        crate::common::kill(pid);
        until(&place, "the others know", || is_dead(&place, asked, victim));
        drop(open);
        let (code, out, err) = forebay(&["umount", &place.text(&format!("n{asked}"))]);
        assert_eq!(code, 0, "victim {victim}: {out}{err}{}", logs(&place));
        assert!(out.contains(&format!("member {victim} had died")), "{out}");
        end(&place, launcher);
    }
}
