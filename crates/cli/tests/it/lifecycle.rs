//! Starting, using and stopping a service through the command: mounts, status, lamination, signals, dead servers.
use crate::common::{Place, assert_fails, command, forebay, kill, outcome, run};
use forebay_testkit::wait::until;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// How many mounts are below the place.
fn mounts(place: &Place) -> usize {
    let all = forebay_node::mount_table::all().unwrap();
    all.iter()
        .filter(|m| m.point.starts_with(place.path("m")))
        .count()
}

#[test]
fn four_nodes_share_their_files_and_a_stopped_service_keeps_them() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (code, out, err) = place.mount(&["--nodes", "4"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("m/0 to ") && out.contains("m/3"), "{out}");
    std::fs::write(place.path("m/0/a"), "from node 0").unwrap();
    assert_eq!(
        std::fs::read_to_string(place.path("m/3/a")).unwrap(),
        "from node 0"
    );
    let (code, out, _) = forebay(&["status", &place.store()]);
    assert_eq!(code, 0);
    assert!(out.lines().count() == 15 && out.contains("m/2"), "{out}");
    let (_, out, _) = forebay(&["status", &place.text("m/1"), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["members"].as_array().unwrap().len(), 4);
    assert!(
        status["total"]["data_bytes"].as_u64().unwrap() >= 11,
        "{out}"
    );
    let mode = std::fs::metadata(place.path("s/control"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let (code, out, err) = forebay(&["umount", &place.mount_point()]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(mounts(&place), 0);
    assert!(!place.path("s/control").exists());
    // The store is free at once, and has everything.
    place.mount_well(&["--nodes", "4"]);
    assert_eq!(
        std::fs::read_to_string(place.path("m/2/a")).unwrap(),
        "from node 0"
    );
    place.umount_well();
}

#[test]
fn a_path_with_node_in_braces_says_where_each_mount_goes() {
    let Some(place) = Place::mountable() else {
        return;
    };
    for node in ["a0z", "a1z"] {
        std::fs::create_dir(place.path(node)).unwrap();
    }
    let (code, out, err) = forebay(&[
        "mount",
        &place.store(),
        &place.text("a{node}z"),
        "--nodes",
        "2",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    std::fs::write(place.path("a0z/x"), "1").unwrap();
    assert_eq!(std::fs::read_to_string(place.path("a1z/x")).unwrap(), "1");
    place.umount_well();
}

#[test]
fn open_files_keep_a_mount_and_are_named_unless_forced() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let mut file = File::create(place.path("m/open")).unwrap();
    file.write_all(b"kept").unwrap();
    let me = format!("pid {}", std::process::id());
    assert_fails(
        &forebay(&["umount", &place.mount_point()]),
        1,
        &["EBUSY", &me, "--force"],
    );
    // One that has inherited the open file does not count itself.
    let heir = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["umount", &place.mount_point()])
        .stdin(file.try_clone().unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8(heir.stderr).unwrap();
    assert!(
        told.contains(&me) && !told.contains("by forebay (") && !told.contains(", forebay ("),
        "{told}"
    );
    file.write_all(b" going").unwrap();
    file.sync_all().unwrap();
    let (code, _, err) = forebay(&["umount", &place.mount_point(), "--force"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        file.write_all(b"x").and_then(|()| file.sync_all()).is_err(),
        "cut off"
    );
    drop(file);
    place.mount_well(&[]);
    assert_eq!(
        std::fs::read_to_string(place.path("m/open")).unwrap(),
        "kept going"
    );
    place.umount_well();
}

#[test]
fn a_service_that_a_signal_stops_is_ended_when_forced() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    // Closed before: a command that inherits it would wait for the server in `exec`.
    std::fs::write(place.path("m/kept"), "kept").unwrap();
    let pid = place.pid();
    let process = rustix::process::Pid::from_raw(pid as i32).unwrap();
    forebay_testkit::stopped::stop_process(process);
    let store = place.store();
    assert_fails(
        &forebay(&["umount", &store]),
        1,
        &["does not answer", "umount --force", &store],
    );
    assert!(forebay_node::processes::is_alive(pid));
    let (code, out, err) = forebay(&["umount", "--force", &place.mount_point()]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        err.contains(&format!("(pid {pid}) does not answer")),
        "{err}"
    );
    assert!(out.contains("is unmounted"), "{out}");
    assert!(!forebay_node::processes::is_alive(pid), "{out}{err}");
    place.mount_well(&[]);
    assert_eq!(std::fs::read(place.path("m/kept")).unwrap(), b"kept");
    place.umount_well();
}

#[test]
fn signals_stop_a_foreground_service_cleanly() {
    let Some(place) = Place::mountable() else {
        return;
    };
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut command = command(&[
            "mount",
            &place.store(),
            &place.mount_point(),
            "--foreground",
        ]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("is mounted on"), "{line}");
        std::fs::write(place.path("m/f"), format!("{signal:?}")).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let mut code = None;
        until("the service ends after a signal", || {
            code = child.try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(code.unwrap().code(), Some(0));
        assert_eq!(mounts(&place), 0);
        place.mount_well(&[]);
        assert_eq!(
            std::fs::read_to_string(place.path("m/f")).unwrap(),
            format!("{signal:?}")
        );
        place.umount_well();
    }
}

#[test]
fn a_service_whose_mounts_are_all_unmounted_from_outside_stops_by_itself() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    let pid = place.pid();
    std::fs::write(place.path("m/0/f"), "x").unwrap();
    for node in ["m/0", "m/1"] {
        let mut command = std::process::Command::new("fusermount3");
        assert_eq!(outcome(&run(command.arg("-u").arg(place.path(node)))).0, 0);
    }
    until("the service ends", || {
        !forebay_node::processes::is_alive(pid)
    });
    assert!(
        place.log().contains("every mount was unmounted"),
        "{}",
        place.log()
    );
    place.mount_well(&["--nodes", "2"]);
    assert_eq!(std::fs::read_to_string(place.path("m/1/f")).unwrap(), "x");
    place.umount_well();
}

#[test]
fn dead_mounts_are_detached_by_umount_and_by_the_next_mount() {
    let Some(place) = Place::mountable() else {
        return;
    };
    for by_umount in [true, false] {
        place.mount_well(&["--nodes", "3"]);
        std::fs::write(place.path("m/0/f"), "x").unwrap();
        place.kill();
        assert_eq!(mounts(&place), 3);
        assert_fails(
            &forebay(&["status", &place.store()]),
            1,
            &["no Forebay service runs", "forebay mount"],
        );
        if by_umount {
            let (code, out, err) = forebay(&["umount", &place.mount_point()]);
            assert_eq!(code, 0, "{err}");
            assert!(out.contains("3 dead mount"), "{out}");
            assert_eq!(mounts(&place), 0);
        }
    }
    place.mount_well(&["--nodes", "3"]);
    assert_eq!(std::fs::read_to_string(place.path("m/1/f")).unwrap(), "x");
    assert_eq!(mounts(&place), 3);
    place.umount_well();
    assert_fails(
        &forebay(&["umount", &place.mount_point()]),
        1,
        &["nothing is mounted", "findmnt"],
    );
}

#[test]
fn a_service_whose_store_was_moved_is_not_taken_for_dead() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let mut open = std::fs::File::create(place.path("m/f")).unwrap();
    std::fs::rename(place.path("s"), place.path("moved")).unwrap();
    assert_fails(
        &forebay(&["umount", &place.mount_point()]),
        1,
        &["still answers", "moved"],
    );
    std::fs::rename(place.path("moved"), place.path("s")).unwrap();
    std::io::Write::write_all(&mut open, b"goes on").unwrap();
    drop(open);
    place.umount_well();
    place.mount_well(&[]);
    assert_eq!(std::fs::read(place.path("m/f")).unwrap(), b"goes on");
    place.umount_well();
}

#[test]
fn laminated_files_cannot_be_changed_and_open_ones_cannot_be_laminated() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    let file = place.text("m/0/f");
    let mut open = File::create(&file).unwrap();
    open.write_all(b"final").unwrap();
    assert_fails(
        &forebay(&["laminate", &place.text("m/1/f")]),
        1,
        &["EBUSY", "close it"],
    );
    drop(open);
    // The last close tells the server after it has returned to the program.
    until("the file is laminated", || {
        forebay(&["laminate", &file]).0 == 0
    });
    assert!(File::options().write(true).open(&file).is_err());
    assert!(
        std::fs::OpenOptions::new()
            .append(true)
            .open(place.path("m/1/f"))
            .is_err()
    );
    assert_eq!(
        std::fs::read_to_string(place.path("m/1/f")).unwrap(),
        "final"
    );
    assert_fails(
        &forebay(&["laminate", &place.text("m/0/none")]),
        1,
        &["no such file"],
    );
    assert_fails(
        &forebay(&["laminate", "/proc/self/status"]),
        1,
        &["not on a Forebay mount"],
    );
    // A disk that keeps attributes must not make it look done.
    std::fs::write(place.path("elsewhere"), "changes").unwrap();
    assert_fails(
        &forebay(&["laminate", &place.text("elsewhere")]),
        1,
        &["not on a Forebay mount"],
    );
    place.umount_well();
}

#[test]
fn a_stopping_service_commits_what_programs_have_not() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let mut file = File::create(place.path("m/f")).unwrap();
    file.write_all(b"not yet committed").unwrap();
    let pid = place.pid();
    let process = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    until("the service ends", || {
        !forebay_node::processes::is_alive(pid)
    });
    drop(file);
    place.mount_well(&[]);
    assert_eq!(
        std::fs::read_to_string(place.path("m/f")).unwrap(),
        "not yet committed"
    );
    place.umount_well();
    kill(pid);
}
