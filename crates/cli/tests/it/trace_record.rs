//! Recordings through a real mount: every operation is in them, and their replay makes the same calls again.
use crate::common::{Place, assert_fails, command, forebay, has_fuse, outcome, run};
use forebay_testkit::prerequisites::has_program;
use forebay_testkit::wait::until;
use forebay_trace::{Action, Kind, Recording, Trace};
use std::collections::BTreeMap;

/// Records a command with further arguments; insists that it goes well.
#[track_caller]
fn record(place: &Place, output: &str, args: &[&str], program: &[&str]) -> Recording {
    let (store, output) = (place.store(), place.text(output));
    let first = ["trace", "record", "--mount", &store, "-o", &output];
    let (code, out, err) = forebay(&[&first, args, &["--"], program].concat());
    assert_eq!(code, 0, "{out}{err}{}", place.log());
    let recording = forebay_trace::open(output.as_ref()).unwrap();
    assert_eq!(recording.loss, None);
    recording
}

/// What each rank read and wrote, in its order; ranks that did neither do not count, nor does how they are numbered.
fn work(trace: &Trace) -> Vec<Vec<(String, &'static str, u64, u64)>> {
    let mut ranks: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for op in &trace.ops {
        let file = trace.files[op.file as usize].clone();
        let calls = ranks.entry(op.rank).or_default();
        calls.push((file, Action::from(op.kind).name(), op.offset, op.len));
    }
    let mut work: Vec<_> = ranks.into_values().collect();
    work.sort();
    work
}

#[test]
fn a_recorded_program_and_its_replay_make_the_same_calls() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    let (made, first) = (place.text("made"), place.text("first"));
    let mounts = format!("{0}/0,{0}/1", place.mount_point());
    let gen_args = [
        "nested-2d",
        "ranks=3",
        "size=3000",
        "inner=5",
        "middle=4",
        "readers=3",
    ];
    let (code, _, err) = forebay(&[&["trace", "gen"], &gen_args[..], &["-o", &made]].concat());
    assert_eq!(code, 0, "{err}");
    let replay = |output: &str, trace: &str, threads: u32| {
        let threads = format!("--threads={threads}");
        let program = env!("CARGO_BIN_EXE_forebay");
        let args = [
            "trace",
            "replay",
            trace,
            "--mounts",
            &mounts,
            &threads,
            "--no-check",
        ];
        record(
            &place,
            output,
            &["--threads"],
            &[&[program], &args[..]].concat(),
        )
    };
    let recorded = replay("first", &made, 3);
    let source = forebay_trace::load(made.as_ref()).unwrap();
    let trace = recorded.trace();
    assert!(
        trace.ops.iter().any(|op| op.kind == Kind::Read),
        "reads are seen too"
    );
    assert_eq!(work(&trace), work(&source));

    let again = replay("second", &first, recorded.ranks);
    assert_eq!(work(&again.trace()), work(&source));
    place.umount_well();
}

#[test]
fn every_operation_is_recorded_with_its_file_its_process_and_its_error() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let m = place.mount_point();
    // Known before the recording begins.
    std::fs::create_dir(place.path("m/old")).unwrap();
    std::fs::write(place.path("m/old/file"), "0123456789").unwrap();
    // Its end may come late: a process that another test has just started has it too, until it runs its program.
    until("the file is closed everywhere", || {
        let (_, out, _) = forebay(&["status", &place.store(), "--json"]);
        let status: serde_json::Value = serde_json::from_str(&out).unwrap();
        status["total"]["open_files"] == 0
    });
    let script = format!(
        "cd {m} && exec 3<old/file && mkdir d && printf abcde > d/a && mv d/a d/b && ln -s b d/l && cat d/l <&3 && truncate -s 2 d/b \
         && OMPI_COMM_WORLD_RANK=5 dd if=d/b of=d/c bs=2 count=1 status=none && cp d/c d/e && rm d/b && ls d && ! cat none"
    );
    let recording = record(&place, "t", &[], &["bash", "-c", &script]);
    let seen = |action: Action, path: &str| {
        let calls = recording.calls.iter();
        let found =
            calls.filter(|c| c.action == action && recording.files[c.file as usize].path == path);
        found.copied().collect::<Vec<_>>()
    };
    // A file has one name in a recording, the last it was met under.
    let writes: Vec<_> = seen(Action::Write, "d/b");
    assert_eq!(
        writes.iter().map(|c| (c.offset, c.len)).collect::<Vec<_>>(),
        [(0, 5)]
    );
    assert_eq!(seen(Action::Create, "d/b").len(), 1, "as d/a");
    assert_eq!(seen(Action::Truncate, "d/b")[0].len, 2);
    assert_eq!(seen(Action::Unlink, "d/b").len(), 1);
    assert_eq!(seen(Action::Rename, "d/b").len(), 1);
    assert_eq!(seen(Action::MakeDirectory, "d").len(), 1);
    assert!(!seen(Action::List, "d").is_empty());
    assert_eq!(seen(Action::Symlink, "d/l").len(), 1);
    let opened = seen(Action::Open, "old/file");
    assert_eq!(opened.len(), 1);
    assert_eq!(opened[0].offset & 3, 0, "for reading");
    let missing = seen(Action::Lookup, ".")
        .into_iter()
        .filter(|c| c.error != 0);
    assert!(missing.map(|c| c.error).all(|e| e == 2), "ENOENT");
    // What was opened is closed.
    let of = |action| {
        recording
            .calls
            .iter()
            .filter(|c| c.action == action && c.error == 0)
            .count()
    };
    assert_eq!(of(Action::Close), of(Action::Open) + of(Action::Create));
    // The rank that a launcher gave; the others follow it.
    assert_eq!(recording.processes[&5].program, "dd");
    let copied = seen(Action::Write, "d/c");
    assert_eq!((copied.len(), copied[0].rank), (1, 5));
    // `cp` has the file system copy: that is a read and a write, too.
    let copied: Vec<_> = [(Action::Copy, "d/c"), (Action::CopyTo, "d/e")]
        .iter()
        .map(|(action, path)| seen(*action, path)[0].data().unwrap())
        .map(|op| (op.kind, op.offset, op.len))
        .collect();
    assert_eq!(copied, [(Kind::Read, 0, 2), (Kind::Write, 0, 2)]);
    assert!(
        recording
            .calls
            .iter()
            .all(|c| c.rank >= 5 && c.start <= c.end)
    );
    assert!(recording.calls.is_sorted_by_key(|c| c.start));

    // The same as CSV, and what stats say of it.
    let (from, to) = (place.text("t"), place.text("t.csv"));
    let (code, _, err) = forebay(&["trace", "convert", &from, &to]);
    assert_eq!(code, 0, "{err}");
    let csv = forebay_trace::open(to.as_ref()).unwrap();
    assert_eq!(csv.calls, recording.calls);
    let (code, out, _) = forebay(&["trace", "stats", &from, "--json"]);
    assert_eq!(code, 0);
    let stats: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(stats["actions"]["unlink"]["calls"], 1);
    assert_eq!(stats["actions"]["truncate"]["failed"], 0);
    let (_, out, _) = forebay(&["trace", "stats", &from]);
    assert!(out.contains("-d_b ") && out.contains("mkdir"), "{out}");
    place.umount_well();
}

#[test]
fn the_exit_code_is_the_commands_and_nothing_is_left_on() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let (store, output) = (place.store(), place.text("t"));
    let args = ["trace", "record", "--mount", &store, "-o", &output, "--"];
    let result = forebay(&[&args[..], &["sh", "-c", "exit 7"]].concat());
    assert_eq!(result.0, 7, "{}", result.2);
    // Of a program that is not there, none is left that holds nothing; one that was there before stays.
    for there in [true, false] {
        if !there {
            std::fs::remove_file(&output).unwrap();
        }
        let result = forebay(&[&args[..], &[&place.text("none")]].concat());
        assert!(
            result.0 == 127 && result.2.contains("no trace"),
            "{}",
            result.2
        );
        assert_eq!(place.path("t").exists(), there);
    }
    let inner = [&[env!("CARGO_BIN_EXE_forebay")], &args[..], &["true"]].concat();
    let result = forebay(&[&args[..], &inner[..]].concat());
    assert_eq!(result.0, 1);
    assert!(result.2.contains("running already"), "{}", result.2);
    // One after the other is fine, and the files of the servers are gone.
    record(&place, "t", &["--cached"], &["true"]);
    let left: Vec<_> = std::fs::read_dir(place.path(".")).unwrap().collect();
    assert_eq!(left.len(), 3, "store, mount point, trace: {left:?}");
    place.umount_well();
}

#[test]
fn where_nothing_can_be_recorded_it_is_said_before_the_command_runs() {
    let place = Place::new();
    let (store, output) = (place.store(), place.text("t"));
    let ran = place.text("ran");
    let args = [
        "trace", "record", "--mount", &store, "-o", &output, "--", "touch", &ran,
    ];
    assert_fails(&forebay(&args), 1, &["no service", "forebay mount"]);
    if has_fuse() {
        place.mount_well(&[]);
        let inside = place.text("m/t");
        let args = [
            "trace", "record", "--mount", &store, "-o", &inside, "--", "touch", &ran,
        ];
        assert_fails(&forebay(&args), 2, &["record into itself", "-o"]);
        place.umount_well();
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn of_a_server_that_is_killed_the_recording_has_what_is_whole_and_says_so() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let (store, output) = (place.store(), place.text("t"));
    let script = format!(
        "echo hello > {}/a; sleep 1.5; kill -9 {}",
        place.mount_point(),
        place.pid()
    );
    let mut record = command(&["trace", "record", "--mount", &store, "-o", &output, "--"]);
    let (code, _, err) = outcome(&run(record.args(["sh", "-c", &script])));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("cut off") && err.contains("are lost"), "{err}");
    // What was written of it is a whole trace, of what was known.
    let recording = forebay_trace::open(output.as_ref()).unwrap();
    assert_eq!(recording.loss, None);
    assert!(
        recording.calls.iter().any(|c| c.action == Action::Write),
        "{err}"
    );
}

#[test]
fn what_is_written_while_a_service_of_one_node_is_recorded_has_the_time_of_its_writes() {
    if !has_program("make") {
        return;
    }
    let Some(place) = Place::mountable() else {
        return;
    };
    // The kernel keeps written pages, but none of a mount that is recorded; or it never does.
    for written in ["on", "off"] {
        place.mount_well(&["--writeback", written]);
        let m = place.mount_point();
        // Known to the kernel before the recording begins; its pages come later.
        std::fs::write(place.path("m/in"), "of before").unwrap();
        let script = format!(
            "cd {m} && : > f && sleep 0.1 && date +%s.%N > {0}/between && printf abc >> f && printf defgh >> f && stat -c %.9Y f > {0}/seen \
             && printf 'out: in\n\tcat in > out\n' > Makefile && sleep 0.1 && printf later > in && make -s && stat -c %.9Y out > {0}/made",
            place.text(".")
        );
        let recording = record(&place, "t", &[], &["sh", "-e", "-c", &script]);
        let time = |name: &str| -> f64 {
            let text = std::fs::read_to_string(place.path(name)).unwrap();
            text.trim().parse().unwrap()
        };
        // The kernel's clock for files ticks some hundred times a second.
        let (between, seen, made) = (time("between"), time("seen"), time("made"));
        assert!(
            seen > between - 0.02,
            "{written}: {seen} is before {between}"
        );
        // Every write once, as the program made it, and nothing that the kernel did by itself.
        let of = |name: &str, action: Action| -> Vec<(u64, u64)> {
            let named = |c: &&forebay_trace::Call| recording.files[c.file as usize].path == name;
            let calls = recording.calls.iter().filter(named);
            let calls = calls.filter(|c| c.action == action);
            calls.map(|c| (c.offset, c.len)).collect()
        };
        assert_eq!(of("f", Action::Write), [(0, 3), (3, 5)], "{written}");
        assert_eq!(of("f", Action::SetAttributes), [], "{written}");
        let told = |name: &str| {
            let m = std::fs::metadata(place.path(name)).unwrap();
            (m.len(), m.modified().unwrap())
        };
        let shown = ["m/f", "m/out", "m/in"].map(told);
        assert_eq!(shown.map(|(len, _)| len), [8, 5, 5], "{written}");
        // There is nothing left to make.
        let make = || {
            outcome(&run(
                std::process::Command::new("make").args(["-C", &m, "-q"])
            ))
        };
        assert_eq!(make().0, 0, "{written}: {:?}", make());
        place.umount_well();
        place.mount_well(&["--writeback", written]);
        assert_eq!(["m/f", "m/out", "m/in"].map(told), shown, "{written}");
        assert_eq!(make().0, 0, "{written}: {:?}", make());
        let kept = shown[1].1.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!((kept.as_secs_f64() - made).abs() < 0.02, "{written}");
        for name in ["f", "out", "in", "Makefile"] {
            std::fs::remove_file(place.path("m").join(name)).unwrap();
        }
        place.umount_well();
    }
}
