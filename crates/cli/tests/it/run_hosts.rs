//! The service over several hosts, which are namespaces of this machine ([`forebay_testkit::hosts`]): how it starts, how it ends, and what
//! lies where when something of it stops early.
//!
//! Without the right to make hosts the tests say that they skip; with `FOREBAY_REQUIRE_HOSTS` set they fail. The same, without the MPI
//! that the program was built for, and with `FOREBAY_REQUIRE_MPI`.
use crate::common::mpi;
use forebay_testkit::hosts::Hosts;
use forebay_testkit::turns::{self, Turn};
use forebay_testkit::wait::{until_or, until_within};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Hosts `ha`, `hb`, ..., and the machine for them alone: each has servers on it.
fn hosts(n: usize) -> Option<(Turn, Hosts)> {
    let turn = turns::exclusive();
    mpi::mpirun()?;
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
    nothing_stays(&hosts, 3);
}

/// The `mpirun` of the servers' MPI with one rank on each host, up to its program.
fn mpirun(n: usize) -> String {
    let names: Vec<&str> = (0..n).map(Hosts::name).collect();
    let names = names.join(",");
    match mpi::open_mpi() {
        true => format!("mpirun.openmpi --allow-run-as-root --oversubscribe -n {n} --host {names}"),
        false => format!("mpirun.mpich -n {n} -hosts {names}"),
    }
}

/// Longest that anything may take that waits for no network.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until nothing of a run is left on any host.
#[track_caller]
fn nothing_runs(hosts: &Hosts, n: usize) {
    for host in 0..n {
        let left = || {
            let mut left = hosts.processes(host, "/tmp/forebay");
            left.extend(hosts.processes(host, "/tmp/writer"));
            (left, hosts.sh(host, "grep ' /tmp/m ' /proc/mounts").1)
        };
        let nothing = || {
            let (processes, mounts) = left();
            processes.is_empty() && mounts.is_empty()
        };
        let name = Hosts::name(host);
        until_or(LIMIT, || format!("left on {name}: {:?}", left()), nothing);
        let log = std::fs::read_to_string(hosts.bare(host).join("s/log")).unwrap_or_default();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// The same; then nothing may lie in the bare mount directories.
#[track_caller]
fn nothing_stays(hosts: &Hosts, n: usize) {
    nothing_runs(hosts, n);
    for host in 0..n {
        let mut bare = std::fs::read_dir(hosts.bare(host).join("m")).unwrap();
        let found = bare.next().map(|entry| {
            let path = entry.unwrap().path();
            let lines = std::fs::read_to_string(&path)
                .unwrap_or_default()
                .lines()
                .count();
            (path, lines)
        });
        assert!(
            found.is_none(),
            "below the mount of {}: {found:?}",
            Hosts::name(host)
        );
    }
}

/// Starts `run` on host 0 with a command of one rank on each host that writes by path for ever, whatever comes of it.
fn writing(hosts: &Hosts, n: usize, more: &str) -> Child {
    let writer = "trap '' TERM HUP INT; while :; do echo x >> /tmp/m/$(hostname); sleep 0.01; done 2>/dev/null";
    for host in 0..n {
        std::fs::write(hosts.bare(host).join("writer"), writer).unwrap();
    }
    let command = format!("{} sh /tmp/writer", mpirun(n));
    let words = format!("exec {} {command} 2>/tmp/said", run(more));
    let mut child = hosts.command(0, &["sh", "-c", &words]);
    let child = child.stdout(Stdio::null()).spawn().unwrap();
    let all = "for h in $(cat /tmp/hosts); do test -s /tmp/m/$h || exit 1; done";
    until_within(LIMIT, "all write", || hosts.sh(0, all).0 == 0);
    child
}

/// What `run` has said on standard error.
fn said(hosts: &Hosts) -> String {
    std::fs::read_to_string(hosts.bare(0).join("said")).unwrap_or_default()
}

/// The process of the server of a host.
fn server(hosts: &Hosts, host: usize) -> u32 {
    let lock = std::fs::read_to_string(hosts.bare(host).join("s/lock")).unwrap();
    lock.trim().parse().unwrap()
}

/// The parent of a process of a host.
fn parent(hosts: &Hosts, host: usize, pid: u32) -> u32 {
    let (_, stat) = hosts.sh(host, &format!("cut -d' ' -f4 /proc/{pid}/stat"));
    stat.trim().parse().unwrap()
}

/// The first process of host 0 whose command line begins and goes on like this.
fn first(hosts: &Hosts, begins: &str, holds: &str) -> u32 {
    let all = hosts.processes(0, holds).into_iter();
    let mut found = all.filter(|(_, line)| line.starts_with(begins));
    found.next().unwrap().0
}

fn ends_with_failure(run: &mut Child) {
    let mut code = None;
    until_within(LIMIT, "run ends", || {
        code = run.try_wait().unwrap();
        code.is_some()
    });
    assert!(!code.unwrap().success());
}

/// Does something to a run whose ranks write by path; then everything ends, and no line was written below a mount.
fn no_line_is_lost(injure: fn(&Hosts)) -> Option<String> {
    let (_turn, hosts) = hosts(2)?;
    let mut run = writing(&hosts, 2, "");
    injure(&hosts);
    let begun = Instant::now();
    ends_with_failure(&mut run);
    nothing_stays(&hosts, 2);
    eprintln!("all has ended after {:?}", begun.elapsed());
    Some(said(&hosts))
}

#[test]
fn a_server_that_stops_ends_the_command_and_no_line_lands_below_a_mount() {
    let said = no_line_is_lost(|hosts| hosts.signal(1, server(hosts, 1), "TERM"));
    let Some(said) = said else { return };
    let line = "the server of member 1 on hb stops while the command runs (signal 15)";
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_killed_server_ends_the_whole_job_of_mpich() {
    // Under OpenMPI the others go on.
    let Some((_turn, hosts)) = hosts(2).filter(|_| !mpi::open_mpi()) else {
        return;
    };
    let mut run = writing(&hosts, 2, "");
    hosts.signal(1, server(&hosts, 1), "KILL");
    ends_with_failure(&mut run);
    // Hydra kills what holds the mount of that host before the command's rank there, which may write one more line.
    nothing_runs(&hosts, 2);
}

#[test]
fn ranks_on_several_hosts_write_one_file_in_strides_and_read_what_the_others_wrote() {
    let Some((_turn, hosts)) = hosts(2) else {
        return;
    };
    let (cc, mounts) = match mpi::open_mpi() {
        true => ("mpicc.openmpi", "-x FOREBAY_MOUNTS "),
        false => ("mpicc.mpich", ""),
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/mpiio.c");
    for host in 0..2 {
        let mut cc = Command::new(cc);
        let program = hosts.bare(host).join("mpiio");
        cc.args(["-O1", "-o"]).arg(program).arg(&source);
        let (code, out, err) = crate::common::outcome(&crate::common::run(&mut cc));
        assert_eq!(code, 0, "{out}{err}");
    }
    let ranks = mpirun(2).replace(" -n 2", &format!(" {mounts}-n 2"));
    let command = format!("{} {ranks} /tmp/mpiio independent collective", run(""));
    let (code, said) = hosts.sh(0, &command);
    assert!(code == 0 && said.contains("mpiio: well"), "{code}: {said}");
    nothing_stays(&hosts, 2);
}

#[test]
fn a_forced_umount_ends_the_command_and_no_line_lands_below_a_mount() {
    let said = no_line_is_lost(|hosts| {
        let (code, said) = hosts.sh(0, "/tmp/forebay umount --force /tmp/m");
        assert_eq!(code, 0, "{said}");
    });
    let Some(said) = said else { return };
    assert!(
        said.contains("stops while the command runs (asked to)"),
        "{said}"
    );
}

#[test]
fn a_killed_daemon_of_the_launcher_ends_the_command_and_no_line_lands_below_a_mount() {
    no_line_is_lost(|hosts| {
        let daemon = parent(hosts, 1, server(hosts, 1));
        hosts.signal(1, daemon, "KILL");
    });
}

#[test]
fn a_killed_ssh_of_the_launcher_ends_the_command_and_no_line_lands_below_a_mount() {
    no_line_is_lost(|hosts| {
        let launcher = first(hosts, "mpirun", "serve --launched");
        let ssh = hosts.processes(0, "ssh").into_iter();
        let mut ssh = ssh.filter(|(pid, _)| parent(hosts, 0, *pid) == launcher);
        hosts.signal(0, ssh.next().unwrap().0, "KILL");
    });
}

#[test]
fn a_killed_run_ends_the_command_and_no_line_lands_below_a_mount() {
    no_line_is_lost(|hosts| hosts.signal(0, first(hosts, "/tmp/forebay run", ""), "KILL"));
}

#[test]
fn ranks_that_outlive_their_killed_launcher_find_no_bare_directory() {
    no_line_is_lost(|hosts| hosts.signal(0, first(hosts, "mpirun", "/tmp/writer"), "KILL"));
}

#[test]
fn ranks_that_do_not_obey_a_signal_to_run_find_no_bare_directory() {
    // Hydra hands the signal on and waits for its ranks as long as they go on: nothing ends then.
    if mpi::open_mpi() {
        no_line_is_lost(|hosts| hosts.signal(0, first(hosts, "/tmp/forebay run", ""), "TERM"));
    }
}

/// Starts `run` on host 0 with a command that waits for the file `/tmp/done`, and has the servers ready.
fn waiting(hosts: &Hosts, more: &str) -> Child {
    let job =
        "echo up > /tmp/m/up; echo ready > /tmp/ready; until test -e /tmp/done; do sleep 0.1; done";
    std::fs::write(hosts.bare(0).join("job"), job).unwrap();
    let words = format!("exec {} sh /tmp/job 2>/tmp/said", run(more));
    let mut child = hosts.command(0, &["sh", "-c", &words]);
    let child = child.stdout(Stdio::null()).spawn().unwrap();
    until_within(LIMIT, "the command has begun", || {
        hosts.bare(0).join("ready").exists()
    });
    child
}

/// Lets the command end; how long `run` then took, and its exit code.
fn finish(hosts: &Hosts, mut run: Child) -> (Duration, i32) {
    std::fs::write(hosts.bare(0).join("done"), "").unwrap();
    let begun = Instant::now();
    let mut code = None;
    until_within(2 * LIMIT, "run ends", || {
        code = run.try_wait().unwrap();
        code.is_some()
    });
    (begun.elapsed(), code.unwrap().code().unwrap_or(-1))
}

#[test]
fn a_host_that_is_cut_off_ends_by_itself_and_run_soon_after_its_command() {
    // What Hydra starts on a host ends with its connection, and the mount with that.
    let Some((_turn, hosts)) = hosts(3).filter(|_| mpi::open_mpi()) else {
        return;
    };
    let run = waiting(&hosts, "--deadline 3s");
    let isolated = server(&hosts, 1);
    hosts.cut(1).unwrap();
    let told = "member 1 on hb has died, or its host cannot be reached";
    until_within(LIMIT, "run says so", || said(&hosts).contains(told));
    let log = || std::fs::read_to_string(hosts.bare(1).join("s/log")).unwrap_or_default();
    until_within(LIMIT, "the isolated server says so", || {
        log().contains("no other server was heard for 3 s")
    });
    until_within(LIMIT, "it has ended", || {
        hosts.sh(1, &format!("kill -0 {isolated}")).0 != 0
    });
    let (code, listed) = hosts.sh(1, "cat /tmp/m/up; echo lost > /tmp/m/lost");
    assert!(code != 0 && listed.contains("not connected"), "{listed}");
    assert_eq!(
        std::fs::read_dir(hosts.bare(1).join("m")).unwrap().count(),
        0
    );
    let (took, code) = finish(&hosts, run);
    eprintln!("run has ended {took:?} after its command");
    assert!(
        code == 1 && took < Duration::from_secs(20),
        "{code} after {took:?}: {}",
        said(&hosts)
    );
    let last =
        "the server of member 1 on hb ended before its time; one whose host could not be reached";
    assert!(said(&hosts).contains(last), "{}", said(&hosts));
    hosts.heal(1).unwrap();
    let begun = Instant::now();
    nothing_stays(&hosts, 3);
    eprintln!(
        "all has ended {:?} after the cut was healed",
        begun.elapsed()
    );
}

#[test]
fn a_run_whose_first_server_was_killed_ends_soon_after_its_command() {
    // Under MPICH the whole service ends with its first dead server.
    let Some((_turn, hosts)) = hosts(3).filter(|_| mpi::open_mpi()) else {
        return;
    };
    let run = waiting(&hosts, "--deadline 3s");
    hosts.signal(0, server(&hosts, 0), "KILL");
    until_within(LIMIT, "run says so", || {
        said(&hosts).contains("member 0 on ha has died; what")
    });
    let (took, code) = finish(&hosts, run);
    eprintln!("run has ended {took:?} after its command");
    assert!(
        code == 1 && took < Duration::from_secs(20),
        "{code} after {took:?}: {}",
        said(&hosts)
    );
    nothing_stays(&hosts, 3);
}

/// A run that does not start: its exit code, what it said, how long it took.
fn refused(hosts: &Hosts, file: &str, more: &str) -> (i32, String, Duration) {
    let begun = Instant::now();
    let run = run(more).replace("/tmp/hosts", file);
    let (code, said) = hosts.sh(0, &format!("{run} touch /tmp/ran"));
    assert!(
        !hosts.bare(0).join("ran").exists(),
        "the command ran: {said}"
    );
    (code, said, begun.elapsed())
}

#[test]
fn a_start_that_fails_says_on_which_host_and_why() {
    let Some((_turn, hosts)) = hosts(2) else {
        return;
    };
    // What an earlier failure may have left in the bare directory.
    std::fs::write(hosts.bare(1).join("m/lost"), "x").unwrap();
    let (code, said, _) = refused(&hosts, "/tmp/hosts", "");
    assert!(
        code == 1 && said.contains("on hb: the mount point /tmp/m is not empty"),
        "{said}"
    );
    std::fs::remove_file(hosts.bare(1).join("m/lost")).unwrap();
    nothing_stays(&hosts, 2);
    // A host file without this machine.
    std::fs::write(hosts.bare(0).join("others"), "hb\n").unwrap();
    let (code, said, _) = refused(&hosts, "/tmp/others", "");
    assert!(
        code == 2 && said.contains("does not name this machine, ha"),
        "{said}"
    );
    // The program is missing on one host.
    hosts.remove_program(1);
    let (code, said, took) = refused(&hosts, "/tmp/hosts", "");
    eprintln!("refused after {took:?}: {said}");
    let text = "on hb: /tmp/forebay cannot be run";
    assert!(code == 1 && said.contains(text), "{said}");
    // In the words of that host, and without a wait for the start limit.
    assert!(said.contains("/tmp/forebay: not found"), "{said}");
    assert!(said.contains("`ssh hb /tmp/forebay version`"), "{said}");
    assert!(!said.contains("--start-limit"), "{said}");
    nothing_stays(&hosts, 2);
}

#[test]
fn interfaces_that_reach_nobody_are_named_as_what_may_keep_servers_apart() {
    let Some((_turn, hosts)) = hosts(2) else {
        return;
    };
    hosts.add_lonely_interface().unwrap();
    if !mpi::open_mpi() {
        // MPICH over UCX finds out by itself.
        let (code, said) = hosts.sh(0, &format!("{} cat /proc/mounts", run("")));
        assert!(
            code == 0 && said.contains(" /tmp/m fuse.forebay "),
            "{said}"
        );
        nothing_stays(&hosts, 2);
        return;
    }
    let (code, said, took) = refused(&hosts, "/tmp/hosts", "--start-limit 10s");
    eprintln!("refused after {took:?}: {said}");
    assert!(
        code == 1 && said.contains("did not find each other in 10 s"),
        "{said}"
    );
    assert!(said.contains("OMPI_MCA_btl_tcp_if_include"), "{said}");
    nothing_stays(&hosts, 2);
    // What the message says helps.
    let with = format!(
        "OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 {} cat /proc/mounts",
        run("")
    );
    let (code, said) = hosts.sh(0, &with);
    assert!(
        code == 0 && said.contains(" /tmp/m fuse.forebay "),
        "{said}"
    );
}

#[test]
fn full_domain_names_are_names_of_hosts() {
    let Some((_turn, hosts)) = hosts(2) else {
        return;
    };
    for host in 0..2 {
        // Short names are not known.
        let (code, said) = hosts.sh(host, "sed -i 's/test h.$/test/' /etc/hosts");
        assert_eq!(code, 0, "{said}");
    }
    let names = "ha.cluster.test\nhb.cluster.test\n";
    std::fs::write(hosts.bare(0).join("hosts"), names).unwrap();
    let (code, said) = hosts.sh(0, &format!("{} sh -c 'echo on $FOREBAY_MOUNT'", run("")));
    assert!(code == 0 && said.contains("on /tmp/m\n"), "{said}");
    nothing_stays(&hosts, 2);
}
