//! `forebay run` with all servers in one process: the command's world, its exit code, and what is left afterwards.
use crate::common::left::nothing;
use crate::common::{Place, assert_fails, command, forebay, has_fuse, kill};
use forebay_client::Client;
use forebay_testkit::wait::until;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `forebay run` of a shell script on the place's store and mount point.
fn args<'a>(place: &'a (Place, String, String), nodes: &'a str, script: &'a str) -> Vec<&'a str> {
    let (_, store, mount) = place;
    let mut args = vec!["run", "--store", store, "--mount", mount];
    args.extend(["--nodes", nodes, "--", "sh", "-c", script]);
    args
}

fn place() -> (Place, String, String) {
    let place = Place::new();
    let (store, mount) = (place.store(), place.mount_point());
    (place, store, mount)
}

#[test]
fn a_command_finds_its_mounts_and_a_second_run_finds_its_files() {
    if !has_fuse() {
        return;
    }
    let place = place();
    let script =
        "echo one > $FOREBAY_MOUNT/f && cat ${FOREBAY_MOUNTS##*:}/f && echo $FOREBAY_MOUNTS";
    let (code, out, err) = forebay(&args(&place, "3", script));
    assert_eq!(code, 0, "{err}");
    let points = [0, 1, 2].map(|n| place.0.text(&format!("m/{n}"))).join(":");
    assert_eq!(out, format!("one\n{points}\n"));
    nothing(&place.0);
    let (code, out, err) = forebay(&args(&place, "3", "cat $FOREBAY_MOUNT/f"));
    assert_eq!((code, &*out), (0, "one\n"), "{err}");
    nothing(&place.0);
}

#[test]
fn the_exit_code_is_the_commands() {
    if !has_fuse() {
        return;
    }
    let place = place();
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)] {
        let got = forebay(&args(&place, "1", script));
        assert_eq!((got.0, &*got.2), (code, ""), "{script}");
    }
    let (_, store, mount) = &place;
    let missing = ["run", "--store", store, "--mount", mount, "--", "/no/such"];
    assert_fails(&forebay(&missing), 127, &["cannot start /no/such"]);
    nothing(&place.0);
}

#[test]
fn what_the_command_leaves_running_ends_with_it() {
    if !has_fuse() {
        return;
    }
    let place = place();
    // Holds a file of the mount open, in a session of its own.
    let script = "cd $FOREBAY_MOUNT && (setsid sleep 1000 > held &) ; echo $$";
    let (code, _, err) = forebay(&args(&place, "1", script));
    assert_eq!(code, 0, "{err}");
    nothing(&place.0);
    // Nobody had to be cut off.
    assert!(!place.0.log().contains("WARN"), "{}", place.0.log());
}

#[test]
fn a_signal_goes_to_the_command_and_the_service_stops_cleanly() {
    if !has_fuse() {
        return;
    }
    let place = place();
    let script = "trap 'echo told > $FOREBAY_MOUNT/f; exit 9' TERM; echo ready; sleep 1000 & wait";
    let mut child = started(&args(&place, "1", script));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    nothing(&place.0);
    let (_, out, err) = forebay(&args(&place, "1", "cat $FOREBAY_MOUNT/f"));
    assert_eq!(out, "told\n", "{err}");
}

/// Starts the run and waits until its command has printed a line.
fn started(args: &[&str]) -> std::process::Child {
    use std::io::BufRead;
    let mut child = command(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn a_killed_run_leaves_nothing_and_what_was_committed() {
    if !has_fuse() {
        return;
    }
    let place = place();
    let script = "cd $FOREBAY_MOUNT; echo kept > f; (setsid sleep 1000 > held &); echo ready; sleep 1000; true";
    let mut child = started(&args(&place, "2", script));
    kill(child.id());
    child.wait().unwrap();
    nothing(&place.0);
    let (code, out, err) = forebay(&args(&place, "2", "cat $FOREBAY_MOUNT/f"));
    assert_eq!((code, &*out), (0, "kept\n"), "{err}");
}

#[test]
fn a_killed_server_is_a_failure_and_leaves_no_mount() {
    if !has_fuse() {
        return;
    }
    let place = place();
    let script = "echo kept > $FOREBAY_MOUNT/f; echo ready; while test -e $FOREBAY_MOUNT/f; do sleep 0.05; done";
    let mut child = started(&args(&place, "1", script));
    let mut holder = 0;
    until("the server holds its store", || {
        let lock = std::fs::read_to_string(place.0.path("s/lock"));
        holder = lock.unwrap_or_default().trim().parse().unwrap_or(0);
        holder != 0
    });
    kill(holder);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    nothing(&place.0);
    let (code, out, err) = forebay(&args(&place, "1", "cat $FOREBAY_MOUNT/f"));
    assert_eq!((code, &*out), (0, "kept\n"), "{err}");
}

#[test]
fn a_service_that_is_stopped_ends_the_command_and_no_line_lands_below_its_mount() {
    if !has_fuse() {
        return;
    }
    let forced = |place: &Place| {
        let (code, _, err) = forebay(&["umount", "--force", &place.text("m/1")]);
        assert_eq!(code, 0, "{err}");
    };
    let signalled = |place: &Place| {
        let pid = rustix::process::Pid::from_raw(place.pid() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    };
    for stop in [&forced as &dyn Fn(&Place), &signalled] {
        let place = place();
        // A builtin: nothing else tells the shell that its file is gone.
        let script = "echo ready; while :; do echo x >> ${FOREBAY_MOUNTS##*:}/f; done 2>/dev/null";
        let mut args = args(&place, "2", script);
        args.insert(1, "--stop-limit");
        args.insert(2, "20s");
        let mut child = started(&args);
        until("lines are written", || {
            std::fs::metadata(place.0.path("m/1/f")).is_ok_and(|meta| meta.len() > 0)
        });
        stop(&place.0);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        nothing(&place.0);
        let below = std::fs::read_to_string(place.0.path("m/1/f"));
        let lines = below.map(|text| text.lines().count());
        assert!(lines.is_err(), "lines below the mount: {lines:?}");
    }
}

#[test]
fn wrong_input_is_one_line_and_starts_nothing() {
    let place = place();
    let (place, store, mount) = (&place.0, &place.1, &place.2);
    let hosts = place.text("hosts");
    let with = |more: &[&str], store: &str, mount: &str| {
        let head = ["run", "--store", store, "--mount", mount];
        forebay(&[&head, more, &["--", "true"]].concat())
    };
    let ranked = place.text("s{rank}");
    assert_fails(&with(&[], &ranked, mount), 2, &["share one store"]);
    std::fs::write(&hosts, "localhost\nno-such-host.invalid\n").unwrap();
    let got = with(&["--hosts", &hosts], store, mount);
    assert_fails(&got, 2, &["line 2", "unknown host no-such-host.invalid"]);
    let none = place.text("none");
    assert_fails(&with(&["--hosts", &none], store, mount), 2, &["host file"]);
    std::fs::write(&hosts, "localhost slots=2\n").unwrap();
    let got = with(&["--hosts", &hosts, "--launcher", "srun"], store, mount);
    assert_fails(&got, 2, &["--hosts is for mpirun"]);
    let got = with(&["--hosts", &hosts, "--nodes", "3"], store, mount);
    assert_fails(&got, 2, &["places for 2 servers", "--nodes says 3"]);
    if !cfg!(feature = "mpi") {
        let got = with(&["--hosts", &hosts], store, mount);
        assert_fails(&got, 1, &["without MPI", "--features mpi"]);
        let got = forebay(&["serve", "--store", store, "--mount", mount]);
        assert_fails(&got, 1, &["without MPI", "--features mpi"]);
    }
    assert!(!place.path("s").exists());
    if has_fuse() {
        let got = with(&[], store, &none);
        assert_fails(&got, 1, &["does not exist", "mkdir"]);
        assert!(!place.path("s").exists());
    }
}

#[test]
fn without_a_mount_the_command_is_told_where_the_server_is() {
    let (place, store, mount) = place();
    let script = "test -z \"$FOREBAY_MOUNT$FOREBAY_MOUNTS\" && test -S $FOREBAY_SOCKET/link-1 && echo $FOREBAY_SOCKET";
    let words = ["run", "--store", &store, "--no-mount", "--nodes", "2", "--"];
    let (code, out, err) = forebay(&[&words[..], &["sh", "-c", script]].concat());
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert_eq!(out.trim_end(), store);
    // Both flags contradict each other, and one is needed.
    for flags in [&["--no-mount", "--mount", &mount][..], &[]] {
        let words = [&["run", "--store", &store], flags, &["--", "true"]].concat();
        assert_eq!(forebay(&words).0, 2, "{flags:?}");
    }
    let words = [
        "run",
        "--store",
        &store,
        "--no-mount",
        "--launcher",
        "mpirun",
        "--",
        "true",
    ];
    assert_fails(&forebay(&words), 2, &["--no-mount", "embedded"]);
    assert!(!Path::new(&store).join("link-0").exists());
    drop(place);
}

#[test]
fn where_there_is_no_fuse_the_command_runs_with_a_warning_and_reaches_the_server() {
    let (place, store, mount) = place();
    let program = env!("CARGO_BIN_EXE_forebay");
    // Hides the device in a namespace of mounts of its own.
    let hide = "mount --bind /dev/null /dev/fuse && exec \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide, "sh", program, "run"]);
    command.args(["--store", &store, "--mount", &mount, "--"]);
    // Waits until the test has used the link, half a minute at most.
    let script = "test -S $FOREBAY_SOCKET/link-0 || exit 1; used=$FOREBAY_SOCKET/used; \
                  n=0; while [ ! -e $used ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done; \
                  test -e $used && echo reached";
    command.args(["sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = command.spawn().and_then(|child| {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = loop {
                    match Client::connect(&store) {
                        Ok(client) => break client,
                        Err(_) if ended.load(Ordering::SeqCst) => return,
                        Err(_) => std::thread::sleep(Duration::from_millis(20)),
                    }
                };
                client.write("/f", &[7; 2_000_000]).unwrap();
                assert!(client.read("/f").unwrap() == [7; 2_000_000]);
                std::fs::write(Path::new(&store).join("used"), "").unwrap();
            });
            let output = child.wait_with_output();
            ended.store(true, Ordering::SeqCst);
            output
        })
    });
    let hidden = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount --bind /dev/null /dev/fuse"])
        .output();
    if !hidden.is_ok_and(|hidden| hidden.status.success()) {
        forebay_testkit::prerequisites::skip(
            "a run without FUSE",
            "the device cannot be hidden here",
        );
        return;
    }
    let ran = ran.unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{err}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "reached\n", "{err}");
    for word in [
        "warning",
        "no /dev/fuse",
        &mount,
        "not in the store",
        "FOREBAY_SOCKET",
    ] {
        assert!(err.contains(word), "'{word}' is missing in: {err}");
    }
    drop(place);
}
