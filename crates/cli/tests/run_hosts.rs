//! The service over several hosts, which are namespaces of this machine ([`forebay_testkit::hosts`]): how it starts, how it ends, and what
//! lies where when something of it stops early.
//!
//! Without the right to make hosts, or without OpenMPI, the tests say that they skip; with `FOREBAY_REQUIRE_HOSTS` set they fail.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)] // A test fails by panicking.
mod common;
use common::mpi;
use forebay_testkit::hosts::Hosts;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hosts `ha`, `hb`, ..., one test at a time: each has servers on all of them.
fn hosts(n: usize) -> Option<(MutexGuard<'static, ()>, Hosts)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    mpi::mpirun().filter(|_| mpi::open_mpi())?;
    let hosts = Hosts::start(n, Path::new(env!("CARGO_BIN_EXE_forebay")))?;
    Some((turn, hosts))
}

/// `forebay run` on the hosts of `/tmp/hosts`, with `more` arguments, up to its command.
fn run(more: &str) -> String {
    format!("/tmp/forebay run --hosts /tmp/hosts --store /tmp/s --mount /tmp/m {more} --")
}

#[test]
fn files_of_each_host_are_seen_on_all_and_nothing_stays() {
    let Some((_turn, hosts)) = hosts(3) else {
        return;
    };
    let script = "for h in ha hb hc; do ssh $h 'echo of $(hostname) > /tmp/m/$(hostname)'; done
for h in ha hb hc; do ssh $h 'cat /tmp/m/ha /tmp/m/hb /tmp/m/hc'; done";
    std::fs::write(hosts.bare(0).join("job"), script).unwrap();
    let run = run("");
    let (code, said) = hosts.sh(0, &format!("{run} sh /tmp/job"));
    assert_eq!(code, 0, "{said}");
    // OpenMPI may add a warning of its own.
    assert!(
        said.starts_with(&"of ha\nof hb\nof hc\n".repeat(3)),
        "{said}"
    );
    for host in 0..3 {
        let left = hosts.processes(host, "/tmp/forebay");
        assert!(left.is_empty(), "{left:?}");
        let (_, mounts) = hosts.sh(host, "grep fuse.forebay /proc/mounts");
        assert_eq!(mounts, "");
        assert_eq!(
            std::fs::read_dir(hosts.bare(host).join("m"))
                .unwrap()
                .count(),
            0
        );
    }
}
