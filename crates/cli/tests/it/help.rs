//! The help teaches: every subcommand says what it is for, settings say their defaults, usage errors say where to look.
use crate::common::{assert_fails, command, forebay};
use forebay_testkit::turns;

#[test]
fn the_help_names_every_verb_and_the_first_two_commands() {
    let (code, out, _) = forebay(&["--help"]);
    assert_eq!(code, 0);
    for verb in [
        "demo",
        "mount",
        "umount",
        "status",
        "laminate",
        "stage",
        "fsck",
        "dedup",
        "fields",
        "trace",
        "config",
        "completions",
        "man",
        "version",
    ] {
        assert!(
            out.lines().any(|l| l.trim_start().starts_with(verb)),
            "{verb} in {out}"
        );
    }
    assert!(
        out.contains("forebay mount ~/store ~/fb") && out.contains("Exit codes"),
        "{out}"
    );
    assert!(
        !out.contains("__serve") && !out.contains("__worker"),
        "{out}"
    );
}

#[test]
fn the_help_of_mount_says_defaults_and_environment() {
    let (code, out, _) = forebay(&["mount", "--help"]);
    assert_eq!(code, 0);
    for part in [
        "--nodes",
        "[default: 192MiB]",
        "FOREBAY_START_LIMIT",
        "MOUNTPOINT/0",
        "--foreground",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
}

#[test]
fn no_verb_shows_the_help_and_is_wrong_usage() {
    let (code, _, err) = forebay(&[]);
    assert_eq!(code, 2);
    assert!(err.contains("Usage:"), "{err}");
}

#[test]
fn wrong_usage_is_one_line_that_says_where_to_look() {
    assert_fails(
        &forebay(&["mont"]),
        2,
        &["mont", "'mount'", "forebay --help"],
    );
    assert_fails(
        &forebay(&["mount", "/tmp"]),
        2,
        &["<MOUNTPOINT>", "forebay mount --help"],
    );
    assert_fails(&forebay(&["demo", "--size", "huge"]), 2, &["huge", "64MiB"]);
    assert_fails(
        &forebay(&["mount", "/a", "/b", "--memroy", "1G"]),
        2,
        &["--memroy", "--memory"],
    );
    assert_fails(&forebay(&["demo", "--nodes", "1"]), 2, &["--nodes 2"]);
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, _) = forebay(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("laminate"), "{shell}");
    }
    assert_fails(&forebay(&["completions", "tcsh"]), 2, &["tcsh", "bash"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let _turn = turns::shared();
    let verbs: [&[&str]; 3] = [
        &["completions", "bash"],
        &["completions", "fish"],
        &["trace", "gen", "list"],
    ];
    for args in verbs {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(args);
        let child = command.stdout(writer).stderr(std::process::Stdio::piped());
        let output = child.spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &said[..]), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn every_command_has_a_man_page_from_the_same_definitions() {
    let place = crate::common::Place::new();
    let dir = place.text("man1");
    assert_eq!(forebay(&["man", &dir]).0, 0);
    let page = |name: &str| std::fs::read_to_string(place.path(&format!("man1/{name}.1"))).unwrap();
    let mount = page("forebay-mount");
    // A page writes a dash as it is typed.
    assert!(
        mount.contains("start\\-limit") && mount.contains("FOREBAY_DURABILITY"),
        "{mount}"
    );
    let synopsis = |page: &str| {
        let (_, rest) = page.split_once(".SH SYNOPSIS").unwrap();
        rest.split_once(".SH").unwrap().0.replace('\\', "")
    };
    for part in [
        "[--nodes <N>]",
        "[--salvage]",
        "[--allow-other[=<BOOL>]]",
        "<STORE> <MOUNTPOINT>",
    ] {
        assert!(
            synopsis(&mount).contains(part),
            "{part} in {}",
            synopsis(&mount)
        );
    }
    let stage = synopsis(&page("forebay-stage"));
    assert!(
        stage.contains("forebay stage") && stage.contains("<COMMAND>"),
        "{stage}"
    );
    for name in [
        "forebay",
        "forebay-stage-in",
        "forebay-trace-record",
        "forebay-config-show",
    ] {
        assert!(page(name).contains(".SH NAME"), "{name}");
    }
    assert!(!place.path("man1/forebay-__serve.1").exists());
    let (code, out, err) = forebay(&["man"]);
    assert!(code == 0 && out == page("forebay"), "{err}");
}

#[test]
fn the_version_is_also_told_to_programs() {
    let (code, out, _) = forebay(&["version", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && value["store_format"].is_u64(), "{out}");
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    let (code, text, _) = forebay(&["version"]);
    let first = format!("forebay {}", env!("CARGO_PKG_VERSION"));
    assert!(code == 0 && text.lines().next() == Some(&first), "{text}");
    assert_eq!(forebay(&["--version"]).1.trim(), first);
}
