//! `forebay run` with `--stage-in` and `--stage-out`: what the command finds, where its files go, and what is said when not.
use crate::common::left::nothing;
use crate::common::{Place, assert_fails, command, forebay, has_fuse};
use forebay_testkit::random::seeded_bytes;
use std::process::Stdio;

fn run(place: &Place, more: &[&str], script: &str) -> (i32, String, String) {
    forebay(
        &args(place, more, script)
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    )
}

fn args(place: &Place, more: &[&str], script: &str) -> Vec<String> {
    let (store, mount) = (place.store(), place.mount_point());
    let head = ["run", "--store", &store, "--mount", &mount, "--nodes", "2"];
    let all = [&head, more, &["--", "sh", "-c", script]].concat();
    all.iter().map(|text| text.to_string()).collect()
}

fn plant(place: &Place) {
    std::fs::create_dir_all(place.path("in/d")).unwrap();
    std::fs::write(place.path("in/d/a"), seeded_bytes(1, 100_000)).unwrap();
    std::fs::write(place.path("in/b"), "bee").unwrap();
    std::fs::write(place.path("alone"), "one").unwrap();
}

#[test]
fn a_command_finds_what_was_staged_in_and_its_files_come_out() {
    let Some(place) = Place::mountable() else {
        return;
    };
    plant(&place);
    let (tree, file) = (place.text("in:/tree"), place.text("alone"));
    let out = format!("tree/d:{}", place.text("out"));
    let script = "cd $FOREBAY_MOUNT && ls tree/d tree/b alone && echo new > tree/d/n; exit 3";
    let ins = ["--stage-in", &tree, "--stage-in", &file];
    let (code, said, err) = run(&place, &[&ins[..], &["--stage-out", &out]].concat(), script);
    // Also when the command failed; its exit code stays.
    assert_eq!(
        (code, &*said),
        (3, "alone\ntree/b\n\ntree/d:\na\n"),
        "{err}"
    );
    assert!(
        err.contains("staged in: 3 files") && err.contains("staged out: 2 files"),
        "{err}"
    );
    assert_eq!(
        std::fs::read(place.path("out/a")).unwrap(),
        seeded_bytes(1, 100_000)
    );
    assert_eq!(
        std::fs::read_to_string(place.path("out/n")).unwrap(),
        "new\n"
    );
    nothing(&place);
    // A manifest, and everything there is.
    let list = format!(
        "{0}/m/1/tree/b {0}/bee\n/alone '{0}/a lone'\n",
        place.text("").trim_end_matches('/')
    );
    std::fs::write(place.path("list"), list).unwrap();
    let (list, all) = (format!("@{}", place.text("list")), place.text("all"));
    let (code, _, err) = run(&place, &["--stage-out", &list, "--stage-out", &all], "true");
    assert_eq!(code, 0, "{err}");
    assert_eq!(std::fs::read_to_string(place.path("bee")).unwrap(), "bee");
    assert_eq!(
        std::fs::read_to_string(place.path("a lone")).unwrap(),
        "one"
    );
    assert_eq!(
        std::fs::read_to_string(place.path("all/tree/d/n")).unwrap(),
        "new\n"
    );
    nothing(&place);
}

#[test]
fn what_cannot_be_staged_is_said_and_nothing_is_lost() {
    let Some(place) = Place::mountable() else {
        return;
    };
    plant(&place);
    // Before anything starts.
    let none = place.text("none");
    let below = place.text("none/x");
    for (more, code, words) in [
        (["--stage-in", &none], 1, ["none", "No such file"]),
        (["--stage-out", &below], 1, ["none", "create it"]),
        (
            ["--stage-out", "a:b:c"],
            2,
            ["--stage-out a:b:c", "one colon"],
        ),
        (
            ["--stage-in", &*format!("@{none}")],
            2,
            ["cannot read the manifest", "none"],
        ),
        (
            ["--stage-out", &place.text("m/x")],
            2,
            ["below --mount", "outside"],
        ),
        (["--stage-out", &place.text("s/x")], 1, ["s", "create it"]),
    ] {
        assert_fails(&run(&place, &more, "echo started"), code, &words);
    }
    assert!(!place.path("s").exists());
    // A stage-in that fails: the command is not started.
    std::fs::write(place.path("b"), "x").unwrap();
    let two = [place.text("in:/x"), place.text("alone:/x/d/a/below")];
    let (code, out, err) = run(
        &place,
        &["--stage-in", &two[0], "--stage-in", &two[1]],
        "echo started",
    );
    assert_eq!((code, &*out), (1, ""), "{err}");
    assert!(err.contains("the command was not started"), "{err}");
    nothing(&place);
    // A stage-out that fails: the command's code if it has one, else 1; and the data is still there.
    std::fs::write(place.path("taken"), "x").unwrap();
    let taken = format!("/:{}", place.text("taken"));
    for (script, want) in [("echo y > $FOREBAY_MOUNT/y", 1), ("exit 4", 4)] {
        let (code, _, err) = run(&place, &["--stage-out", &taken], script);
        assert_eq!(code, want, "{err}");
        assert!(
            err.contains("stage out: ") && err.contains("stays in the store"),
            "{err}"
        );
        nothing(&place);
    }
    std::fs::remove_file(place.path("taken")).unwrap();
    let (code, _, err) = run(&place, &["--stage-out", &taken], "true");
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        std::fs::read_to_string(place.path("taken/y")).unwrap(),
        "y\n"
    );
    assert_eq!(
        std::fs::read_to_string(place.path("taken/x/b")).unwrap(),
        "bee"
    );
}

#[test]
fn after_a_signal_only_a_command_that_ends_well_is_staged_out() {
    if !has_fuse() {
        return;
    }
    for (end, staged) in [("exit 9", false), ("exit 0", true)] {
        let place = Place::new();
        let out = place.text("out");
        let script = format!(
            "trap 'echo told > $FOREBAY_MOUNT/f; {end}' TERM; echo ready; sleep 1000 & wait"
        );
        let args = args(&place, &["--stage-out", &out], &script);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut run = command(&args);
        let mut child = run
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            ended.status.code(),
            Some(if staged { 0 } else { 9 }),
            "{err}"
        );
        assert_eq!(place.path("out/f").exists(), staged, "{err}");
        assert_eq!(err.contains("nothing is staged out"), !staged, "{err}");
        nothing(&place);
    }
}
