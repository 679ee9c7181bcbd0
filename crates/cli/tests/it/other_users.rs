//! What other users of the machine can put in one's way: names that a terminal obeys, sockets that are not one's own service's.
use crate::common::{Place, assert_fails, command, forebay, install, outcome, run};
use forebay_testkit::prerequisites::has_program;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Sets a terminal's title, rings, fakes a line, moves the cursor with a C1 byte, turns the reading direction.
const EVIL: &str = "a\x1b]0;owned\x07\nforebay: all is well\u{9b}2J\u{202e}\x7f";

/// Asserts that a terminal obeys none of it, and gives it.
#[track_caller]
fn harmless(text: &str) -> &str {
    let obeyed = |c: &char| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c);
    assert_eq!(text.chars().find(obeyed), None, "{text:?}");
    assert!(!text.contains("\nforebay: all is well"), "{text:?}");
    text
}

/// Runs the command, asserts that nothing it prints moves a terminal, and gives both outputs together.
#[track_caller]
fn printed(args: &[&str]) -> (i32, String) {
    let (code, out, err) = forebay(args);
    harmless(&out);
    harmless(&err);
    (code, out + &err)
}

#[test]
fn names_of_files_and_stores_are_printed_without_what_a_terminal_obeys() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (store, mount) = (
        place.text(&format!("s{EVIL}")),
        place.text(&format!("m{EVIL}")),
    );
    std::fs::create_dir(&mount).unwrap();
    let (code, text) = printed(&["mount", &store, &mount]);
    assert!(
        code == 0 && text.contains("\\x1b]0;owned\\x07\\nforebay"),
        "{text}"
    );
    let file = format!("{mount}/{EVIL}");
    std::fs::write(&file, "x").unwrap();
    let none = format!("{mount}/none{EVIL}");
    for args in [
        &["stat", &file][..],
        &["stat", &none],
        &["laminate", &file],
        &["status", &store],
        &["status", &none],
        &["stage", "out", &none, &place.text("o")],
        &["fsck", &store],
        &["fsck", &none],
        &["trace", "stats", &none],
        &["trace", "gen", EVIL],
        &["--config", &none, "mount", "a", "b"],
    ] {
        let (_, text) = printed(args);
        // A newline is one everywhere, also in the line of an error.
        assert!(text.contains("]0;owned\\"), "{args:?}: {text}");
        assert!(text.contains("\\nforebay"), "{args:?}: {text}");
    }
    // What cannot be copied is named by the service.
    let directory = std::fs::File::open(&mount).unwrap();
    // The address of a socket is short.
    let short = format!("/proc/self/fd/{}/k{EVIL}", directory.as_raw_fd());
    drop(UnixListener::bind(short).unwrap());
    drop(directory);
    let (code, text) = printed(&["stage", "out", &mount, &place.text("o")]);
    assert!(
        text.contains("skipped") && text.contains("\\x1b]0;owned"),
        "{text}"
    );
    assert_eq!(code, 0, "{text}");
    let log = std::fs::read_to_string(format!("{store}/log")).unwrap();
    harmless(&log);
    let (code, text) = printed(&["umount", &mount]);
    assert!(code == 0 && text.contains("\\x1b]0;owned"), "{text}");
    let (code, text) = printed(&["fsck", &store]);
    assert!(code == 0 && text.contains("\\x1b]0;owned"), "{text}");
}

#[test]
fn json_stays_json_and_has_the_names_as_they_are() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let file = place.text(&format!("m/{EVIL}"));
    std::fs::write(&file, "x").unwrap();
    let (code, out, err) = forebay(&["stat", "--json", &file]);
    assert_eq!(code, 0, "{err}");
    let value: serde_json::Value = serde_json::from_str(harmless(&out)).unwrap();
    assert_eq!(value["file"], *file);
    drop(UnixListener::bind(place.path(&format!("m/k{EVIL}"))).unwrap());
    let args = [
        "stage",
        "out",
        "--json",
        &place.mount_point(),
        &place.text("o"),
    ];
    let (code, out, err) = forebay(&args);
    assert_eq!(code, 0, "{err}");
    let value: serde_json::Value = serde_json::from_str(harmless(&out)).unwrap();
    assert!(value["lines"].to_string().contains("owned"), "{out}");
    place.umount_well();
}

/// A directory with a control socket on which something that is no service gives this answer, once greeted.
fn impostor(store: &Path, answer: &'static str) -> std::thread::JoinHandle<()> {
    std::fs::create_dir_all(store).unwrap();
    let listener = UnixListener::bind(store.join("control")).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let hello = "{\"forebay\":1,\"program\":\"\\u001b[2J\",\"pid\":1}\n";
        for said in [hello, answer] {
            let mut line = String::new();
            // The client may have gone already.
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let _ = stream.get_mut().write_all(said.as_bytes());
        }
    })
}

#[test]
fn answers_of_a_control_socket_are_printed_without_what_a_terminal_obeys() {
    let place = Place::new();
    for (k, verb) in ["umount", "status"].into_iter().enumerate() {
        let store = place.path(&format!("i{k}"));
        let answer = "{\"Refused\":\"\\u001b]0;owned\\u0007\\nforebay: all is well\u{9b}2J\"}\n";
        let served = impostor(&store, answer);
        let (code, text) = printed(&[verb, store.to_str().unwrap()]);
        served.join().unwrap();
        assert!(code == 1 && text.contains("\\x1b]0;owned\\x07"), "{text}");
    }
}

/// Answers hello and then everything with "Stopped", as user 12345, in the directory it is given.
const IMPOSTOR: &str = r#"
import socket, sys, os
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen()
print("ready", flush=True)
c, _ = s.accept()
f = c.makefile("rw")
try:
    f.readline(); f.write('{"forebay":1,"program":"x","pid":99999999}\n'); f.flush()
    f.readline(); f.write('"Stopped"\n'); f.flush()
except OSError:
    pass
"#;

#[test]
fn a_control_socket_of_another_user_is_not_asked() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be several users");
        return;
    }
    // Debian's own, which other users may run.
    let python = "/usr/bin/python3";
    if !has_program(python) {
        return;
    }
    let place = Place::new();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    open(&place.path("."), 0o755);
    let program = place.path("forebay");
    install(&program);
    // Whose directory, who asks, what is said.
    for (k, (owner, asker, word)) in [
        (0, 0, "not by user 0"),
        (54321, 54321, "not by user 54321"),
        (12345, 54321, "belongs to user 12345"),
    ]
    .into_iter()
    .enumerate()
    {
        let store = place.path(&format!("i{k}"));
        std::fs::create_dir(&store).unwrap();
        open(&store, 0o777);
        chown(&store, Some(owner), None).unwrap();
        let socket = store.join("control");
        let mut served = Command::new(python)
            .args(["-c", IMPOSTOR, socket.to_str().unwrap()])
            .uid(12345)
            .stdout(std::process::Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(served.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        let mut ask = command(&["umount", store.to_str().unwrap()]);
        let mut ask_as = Command::new(&program);
        ask_as
            .args(ask.get_args())
            .env_clear()
            .uid(asker)
            .gid(asker);
        let said = outcome(&run(ask_as.current_dir("/")));
        // It waits for somebody else.
        served.kill().unwrap();
        served.wait().unwrap();
        ask.current_dir("/");
        assert!(said.0 == 1 && said.2.contains(word), "{said:?}");
    }
}

#[test]
fn files_that_never_end_are_refused_with_the_limit_and_little_memory() {
    let place = Place::new();
    let sparse = |name: &str, head: &str| {
        let path = place.text(name);
        std::fs::write(&path, head).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(400 << 20).unwrap();
        path
    };
    let header = "rank,op,file_id,offset,length,start,end\n";
    let (line, first) = (sparse("line.csv", header), sparse("first.csv", ""));
    std::fs::write(
        place.path("far.csv"),
        format!("{header}0,read,4000000000,0,1,0.1,0.2\n"),
    )
    .unwrap();
    let far = place.text("far.csv");
    let names = sparse("names.files.csv", "file_id,record_id,basename\n");
    std::fs::write(
        place.path("names.csv"),
        format!("{header}0,read,0,0,1,0.1,0.2\n"),
    )
    .unwrap();
    let named = place.text("names.csv");
    let zero = "/dev/zero";
    let trace = ["mount", "a", "b", "--prefetch-trace", zero];
    for (args, path, limit) in [
        (&["--config", zero, "mount", "a", "b"][..], zero, "1.0 MiB"),
        (&["stage", "in", "--manifest", zero], zero, "64.0 MiB"),
        (&["trace", "stats", zero], zero, "65,536 bytes"),
        (&["trace", "stats", &line], &line, "65,536 bytes"),
        (&["trace", "stats", &first], &first, "65,536 bytes"),
        (&["trace", "stats", &named], &names, "65,536 bytes"),
        (&["trace", "stats", &far], &far, "1,048,576"),
        (&trace, zero, "65,536 bytes"),
    ] {
        let own = command(args);
        let mut limited = Command::new("sh");
        // Of memory there is little, so that reading on ends the program and not the machine.
        limited
            .args(["-c", "ulimit -v 600000; exec \"$@\"", "sh"])
            .arg(own.get_program())
            .args(own.get_args())
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .current_dir(place.path("."));
        let said = outcome(&run(&mut limited));
        assert!(said.0 == 1 || said.0 == 2, "{args:?}: {said:?}");
        assert!(
            said.2.contains(path) && said.2.contains(limit),
            "{args:?}: {said:?}"
        );
        assert_eq!(said.2.lines().count(), 1, "{said:?}");
    }
}

#[test]
fn a_manifest_with_a_nul_byte_is_refused_by_its_line_before_anything_is_copied() {
    let place = Place::new();
    let manifest = place.text("list");
    std::fs::write(&manifest, "/a /b\n/etc/host\0s /c\n").unwrap();
    for args in [
        &["stage", "in", "--manifest", &manifest][..],
        &["stage", "out", "--manifest", &manifest],
    ] {
        assert_fails(&forebay(args), 2, &["line 2", "NUL"]);
    }
}

#[test]
fn traces_and_plots_are_never_written_through_a_link_that_somebody_planted() {
    let place = Place::new();
    let (target, plain) = (place.text("precious"), place.text("t.trace"));
    let made = forebay(&["trace", "gen", "tile", "-o", &plain]);
    assert_eq!(made.0, 0, "{made:?}");
    std::fs::write(&target, "mine").unwrap();
    let link = |name: &str| {
        std::os::unix::fs::symlink(&target, place.path(name)).unwrap();
        place.text(name)
    };
    let (trace, csv, svg) = (link("l.trace"), link("l.csv"), link("l.svg"));
    // A CSV comes with a table of names.
    link("n.files.csv");
    for args in [
        &["trace", "gen", "tile", "-o", &trace][..],
        &["trace", "convert", &plain, &trace],
        &["trace", "convert", &plain, &csv],
        &["trace", "convert", &plain, &place.text("n.csv")],
        &["trace", "plot", &plain, "-o", &svg],
        &["trace", "record", "-o", &trace, "--", "true"],
    ] {
        let said = forebay(args);
        let (code, _, err) = &said;
        assert!(
            *code != 0 && err.contains("symbolic link"),
            "{args:?}: {said:?}"
        );
        assert_eq!(
            std::fs::read_to_string(&target).unwrap(),
            "mine",
            "{args:?}"
        );
    }
    // What is a file is replaced as a whole, and devices are written as ever.
    let other = place.path("hard.trace");
    std::fs::write(place.path("old.trace"), "old").unwrap();
    std::fs::hard_link(place.path("old.trace"), &other).unwrap();
    for path in [place.text("old.trace"), "/dev/null".into()] {
        let made = forebay(&["trace", "gen", "tile", "-o", &path]);
        assert_eq!(made.0, 0, "{made:?}");
    }
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "old");
    assert_eq!(
        std::fs::read(place.path("old.trace")).unwrap(),
        std::fs::read(&plain).unwrap()
    );
    let left = std::fs::read_dir(place.path(".")).unwrap().flatten();
    let hidden = |e: &std::fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(b".");
    assert_eq!(left.filter(hidden).count(), 0);
}

#[cfg(feature = "mpi")]
#[test]
fn an_empty_secret_is_refused_instead_of_meaning_none() {
    let place = Place::new();
    let args = [
        "serve",
        "--store",
        &place.store(),
        "--mount",
        &place.mount_point(),
    ];
    for secret in ["", " \n"] {
        let said = outcome(&run(command(&args).env("FOREBAY_SECRET", secret)));
        assert_fails(&said, 2, &["FOREBAY_SECRET", "holds no secret", "unset it"]);
    }
    assert!(!place.path("s").exists());
}
