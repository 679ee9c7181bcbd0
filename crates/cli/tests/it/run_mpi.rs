//! The service over MPI: four servers and four mounts on one machine, started by `forebay run` or by `mpirun` itself.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::left::nothing;
use crate::common::mpi::{N, job, job_place, logs, mpirun, open_mpi, place, started};
use crate::common::{Place, assert_fails, command, forebay, kill, mpi, outcome, run};
use forebay_testkit::random::seeded_bytes;
use std::io::BufRead;
use std::process::{Command, Stdio};

#[test]
fn files_of_every_mount_are_the_same_on_all_also_after_a_restart_on_other_ranks() {
    let Some(place) = job_place() else { return };
    for k in 0..N {
        let bytes = seeded_bytes(k as u64, 3_000_000 + k * 4097);
        std::fs::write(place.path(&format!("in{k}")), bytes).unwrap();
    }
    let dir = place.text("");
    let write = format!(
        "set -e; for k in 0 1 2 3; do cp {dir}in$k {dir}m$k/f$k; done; mkdir {dir}m1/d; echo deep > {dir}m2/d/x"
    );
    let sums = format!(
        "set -e; for m in 0 1 2 3; do cd {dir}m$m; sha256sum f0 f1 f2 f3 d/x; cd /; done; cd {dir}; sha256sum in0 in1 in2 in3"
    );
    let same = |out: &str| {
        let sums: Vec<&str> = out.lines().collect();
        assert_eq!(sums.len(), 24, "{out}");
        for mount in sums.chunks(5).take(4) {
            assert_eq!(mount, &sums[..5]);
            for (on_mount, on_disk) in mount.iter().zip(&sums[20..]) {
                assert_eq!(on_mount[..64], on_disk[..64]);
            }
        }
    };
    let (code, out, err) = job(&place, &format!("{write}; {sums}; exit 5"));
    assert_eq!(code, 5, "{out}{err}{}", logs(&place));
    same(&out);
    nothing(&place);
    // What was rank 0's store is now that of rank 1, and so on: members keep their numbers.
    std::fs::rename(place.path("n0"), place.path("x")).unwrap();
    for k in 1..N {
        let (from, to) = (format!("n{k}"), format!("n{}", k - 1));
        std::fs::rename(place.path(&from), place.path(&to)).unwrap();
    }
    std::fs::rename(place.path("x"), place.path("n3")).unwrap();
    let (code, out, err) = job(&place, &sums);
    assert_eq!(code, 0, "{out}{err}{}", logs(&place));
    same(&out);
    nothing(&place);
}

/// Starts a job whose command says "ready" and then waits.
fn waiting(place: &Place, script: &str) -> std::process::Child {
    started(
        place,
        &[],
        &format!("{script}; echo ready; sleep 1000; true"),
    )
}

#[test]
fn a_killed_run_leaves_nothing_and_what_was_committed() {
    let Some(place) = job_place() else { return };
    let mut child = waiting(&place, "echo kept > $FOREBAY_MOUNT/f");
    kill(child.id());
    child.wait().unwrap();
    nothing(&place);
    let (code, out, err) = job(&place, "cat ${FOREBAY_MOUNTS##*:}/f");
    assert_eq!((code, &*out), (0, "kept\n"), "{err}");
    nothing(&place);
}

#[test]
fn a_killed_launcher_leaves_nothing_and_what_was_committed() {
    let Some(place) = job_place() else { return };
    let mut child = waiting(&place, "echo kept > $FOREBAY_MOUNT/f");
    let launcher = forebay_node::processes::below(child.id(), &[])
        .into_iter()
        .find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.unwrap_or_default().starts_with("mpirun")
        });
    kill(launcher.unwrap());
    // The servers stop in order; nobody runs a command without a service.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    nothing(&place);
    let (code, out, err) = job(&place, "cat ${FOREBAY_MOUNTS##*:}/f");
    assert_eq!((code, &*out), (0, "kept\n"), "{err}");
    nothing(&place);
}

#[test]
fn servers_that_mpirun_started_stop_together_on_umount() {
    let Some(name) = mpirun() else { return };
    let place = place();
    let mut servers = Command::new(name);
    if open_mpi() {
        servers.args(["--oversubscribe", "--allow-run-as-root"]);
    }
    servers.args(["-n", "4", env!("CARGO_BIN_EXE_forebay"), "serve"]);
    servers.arg("--store").arg(place.path("n{rank}"));
    servers.arg("--mount").arg(place.path("m{rank}"));
    let servers = servers.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut servers = servers.spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(servers.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(
        line.contains("4 servers are ready"),
        "{line}{}",
        logs(&place)
    );
    std::fs::write(place.path("m0/f"), "x").unwrap();
    assert_eq!(std::fs::read_to_string(place.path("m3/f")).unwrap(), "x");
    let (code, out, err) = forebay(&["status", &place.text("m2"), "--json"]);
    assert_eq!(code, 0, "{err}");
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    let members: Vec<_> = status["members"].as_array().unwrap().iter().collect();
    let numbers: Vec<_> = members.iter().map(|m| m["member"].as_u64()).collect();
    assert_eq!(numbers, [0, 1, 2, 3].map(Some), "{out}");
    let (code, _, err) = forebay(&["umount", &place.text("m1")]);
    assert_eq!(code, 0, "{err}");
    assert!(servers.wait().unwrap().success(), "{}", logs(&place));
    nothing(&place);
}

/// How many messages of ours there are; `mpirun` has its own.
fn own_lines(said: &str) -> usize {
    let ours = |line: &&str| line.starts_with("forebay: ");
    said.lines().filter(ours).count()
}

/// Four servers, the environment and arguments of the last changed; what `mpirun` said.
fn odd_one_out(place: &Place, name: &str, odd: &str) -> String {
    let mut servers = Command::new(name);
    if open_mpi() {
        servers.args(["--oversubscribe", "--allow-run-as-root"]);
    }
    let program = env!("CARGO_BIN_EXE_forebay");
    let dir = place.text("");
    let serve = format!("{program} serve --store {dir}n{{rank}} --start-limit 20s");
    let usual = format!("FOREBAY_SECRET=a exec {serve} --mount {dir}m{{rank}}");
    let odd = odd.replace("SERVE", &serve).replace("DIR", &dir);
    servers.args(["-n", "3", "sh", "-c", &usual]);
    servers.args([":", "-n", "1", "sh", "-c", &odd]);
    let (code, out, err) = outcome(&run(servers.stdin(Stdio::null())));
    assert_ne!(code, 0, "{out}{err}");
    err + &out
}

#[test]
fn a_wrong_secret_or_version_and_a_missing_mount_point_end_the_start_of_all() {
    let Some(name) = mpirun() else { return };
    let place = place();
    let said = odd_one_out(
        &place,
        name,
        "FOREBAY_SECRET=b exec SERVE --mount DIRm{rank}",
    );
    assert!(said.contains("different job secrets"), "{said}");
    assert_eq!(own_lines(&said), 1, "{said}");
    nothing(&place);
    let said = odd_one_out(
        &place,
        name,
        "FOREBAY_TEST_VERSION=99 FOREBAY_SECRET=a exec SERVE --mount DIRm{rank}",
    );
    assert!(said.contains("different releases"), "{said}");
    assert_eq!(own_lines(&said), 1, "{said}");
    nothing(&place);
    let said = odd_one_out(&place, name, "FOREBAY_SECRET=a exec SERVE --mount DIRnone");
    assert!(
        said.contains("none does not exist; run `mkdir -p"),
        "{said}"
    );
    nothing(&place);
    // Neither has decided anything: the stores are still new.
    let (code, out, err) = job(&place, "echo well");
    assert_eq!((code, &*out), (0, "well\n"), "{err}");
}

#[test]
fn a_run_that_cannot_start_says_why_in_one_line() {
    let Some(place) = job_place() else { return };
    let mut without = mpi::args(&place, &[], "true");
    without.splice(1..1, ["--mpirun", "/no/such/mpirun"].map(String::from));
    let without: Vec<&str> = without.iter().map(String::as_str).collect();
    let got = forebay(&without);
    assert_fails(&got, 1, &["/no/such/mpirun", "install OpenMPI or MPICH"]);
    let run = mpi::args(&place, &[], "true");
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let without = crate::common::run(command(&run).env("PATH", "/nonexistent"));
    let without = outcome(&without);
    assert_fails(&without, 1, &["not in PATH", "install OpenMPI or MPICH"]);
    // Servers of one machine need a store each.
    let shared = [
        "run",
        "--launcher",
        "mpirun",
        "--nodes",
        "2",
        "--store",
        &place.text("one"),
        "--mount",
        &place.text("m{rank}"),
        "--",
        "true",
    ];
    let (code, _, err) = forebay(&shared);
    assert!(
        code == 2 && err.contains("2 servers on this machine would share"),
        "{err}"
    );
    assert_eq!(own_lines(&err), 1, "{err}");
    assert!(!place.path("one").exists());
    // A mount point of four is missing, or is no place for one.
    std::fs::remove_dir(place.path("m2")).unwrap();
    for words in ["m2 does not exist; run `mkdir -p", "m2 is not a directory"] {
        let (code, _, err) = job(&place, "true");
        assert!(code == 1 && err.contains(words), "{err}");
        assert_eq!(own_lines(&err), 1, "{err}");
        nothing(&place);
        let _ = std::fs::write(place.path("m2"), "");
    }
    std::fs::remove_file(place.path("m2")).unwrap();
    std::fs::create_dir(place.path("m2")).unwrap();
    // One store of four is lost.
    assert_eq!(job(&place, "true").0, 0);
    std::fs::remove_dir_all(place.path("n2")).unwrap();
    let (code, _, err) = job(&place, "true");
    assert_eq!(code, 1);
    assert_eq!(own_lines(&err), 1, "{err}");
    assert!(err.contains("the store of member 2 is missing"), "{err}");
    nothing(&place);
}

#[test]
fn a_host_file_says_how_many_servers_run_where() {
    let Some(place) = job_place() else { return };
    let hosts = place.text("hosts");
    std::fs::write(&hosts, "localhost slots=2 # this machine\n").unwrap();
    let (store, mount) = (place.text("n{rank}"), place.text("m{rank}"));
    let head = [
        "run", "--hosts", &hosts, "--store", &store, "--mount", &mount,
    ];
    let script = "echo $FOREBAY_MOUNTS";
    let (code, out, err) = forebay(&[&head[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        out.trim(),
        format!("{}:{}", place.text("m0"), place.text("m1"))
    );
    nothing(&place);
}

/// The TCP ports that this process and all below it listen on: the process, its command line, whether only this machine gets
/// there, and an address of it.
fn listening(root: u32) -> Vec<(u32, String, bool, std::net::SocketAddr)> {
    let mut tree = vec![root];
    let mut below = 0;
    while let Some(pid) = tree.get(below) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        tree.extend(
            children
                .split_whitespace()
                .map(|pid| pid.parse::<u32>().unwrap()),
        );
        below += 1;
    }
    let mut ports = Vec::new();
    for (table, any) in [("tcp", "0.0.0.0"), ("tcp6", "::")] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = words[1].split_once(':').unwrap();
            // A socket that listens.
            if words[3] != "0A" {
                continue;
            }
            let own = address == "0100007F" || address == "00000000000000000000000001000000";
            let port = u16::from_str_radix(port, 16).unwrap();
            let to = match (any, own, address) {
                (_, true, _) | (_, _, "00000000") => "127.0.0.1".to_string(),
                ("::", ..) => "::1".to_string(),
                _ => {
                    let bytes = u32::from_str_radix(address, 16).unwrap().to_le_bytes();
                    std::net::Ipv4Addr::from(bytes).to_string()
                }
            };
            let to = std::net::SocketAddr::new(to.parse().unwrap(), port);
            let link = format!("socket:[{}]", words[9]);
            for pid in &tree {
                let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
                    .into_iter()
                    .flatten();
                let mut links = files
                    .flatten()
                    .filter_map(|f| std::fs::read_link(f.path()).ok());
                if links.any(|l| l.as_os_str() == link.as_str()) {
                    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                    ports.push((*pid, line.unwrap_or_default().replace('\0', " "), own, to));
                }
            }
        }
    }
    ports
}

#[test]
fn idle_connections_to_every_port_of_a_service_on_one_host_do_not_disturb_it() {
    /// Descriptors of each process, and connections to each port.
    const LIMIT: usize = 400;
    let Some(place) = job_place() else { return };
    let dir = place.text("");
    let script = format!(
        "echo ready; for i in $(seq 1200); do [ -e {dir}go ] && break; sleep 0.05; done; \
        for k in 0 1 2 3; do cp {dir}in {dir}m$k/f$k && cmp {dir}in {dir}m0/f$k || exit 7; done"
    );
    std::fs::write(place.path("in"), seeded_bytes(5, 3_000_000)).unwrap();
    let args = mpi::args(&place, &[], &script);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let own = command(&args);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("ulimit -n {LIMIT}; exec \"$@\""), "sh"])
        .arg(own.get_program())
        .args(own.get_args())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = limited.spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n", "{}", logs(&place));
    let ports = listening(child.id());
    let launcher = |line: &str| {
        let program = line.split(' ').next().unwrap();
        !program.ends_with("/forebay")
    };
    // What a server has inherited from its launcher is the launcher's.
    let inherited = |to| {
        ports
            .iter()
            .any(|(_, line, _, also)| *also == to && launcher(line))
    };
    for (_, line, own, to) in &ports {
        assert!(launcher(line) || *own || inherited(*to), "{to} of {line}");
    }
    let mut connections = Vec::new();
    for (_, line, _, to) in &ports {
        // Hydra takes every connection to its control port until it has no descriptor left, and ends; the page says so.
        if (launcher(line) || inherited(*to)) && !mpi::open_mpi() {
            continue;
        }
        for _ in 0..LIMIT + 50 {
            match std::net::TcpStream::connect_timeout(to, std::time::Duration::from_secs(5)) {
                Ok(stream) => connections.push(stream),
                // Full, or closed by who has had enough.
                Err(_) => break,
            }
        }
    }
    std::fs::write(place.path("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{ports:?}\n{err}{}",
        logs(&place)
    );
    drop(connections);
    nothing(&place);
}
