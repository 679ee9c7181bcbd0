//! Settings come from file, environment and command line, in this order; what is wrong is named with its place.
//! Seen from outside: a wrong value tells which source won.
use crate::common::{Place, assert_fails, command, outcome, run};

/// Runs `mount` (on a directory that does not exist, so that nothing starts) with a file, an environment and flags.
fn mount(file: &str, env: &[(&str, &str)], flags: &[&str]) -> (i32, String, String) {
    let place = Place::new();
    std::fs::write(place.path("c.toml"), file).unwrap();
    let (store, point, config) = (
        place.text("none/s"),
        place.text("none/m"),
        place.text("c.toml"),
    );
    let mut command = command(&[&["--config", &config, "mount", &store, &point], flags].concat());
    outcome(&run(command.envs(env.iter().copied())))
}

#[test]
fn the_environment_wins_over_the_file_and_the_command_line_over_both() {
    let file = "memory = \"1MiB\"\n";
    assert_fails(
        &mount(file, &[], &[]),
        2,
        &["memory in", "c.toml", "at least 16MiB"],
    );
    assert_fails(
        &mount(file, &[("FOREBAY_MEMORY", "2MiB")], &[]),
        2,
        &["FOREBAY_MEMORY", "2MiB"],
    );
    let flags = ["--memory", "3MiB"];
    assert_fails(
        &mount(file, &[("FOREBAY_MEMORY", "2MiB")], &flags),
        2,
        &["--memory", "3MiB"],
    );
    // A right value on top of wrong ones gets as far as the missing directory.
    let flags = ["--memory", "64MiB"];
    assert_fails(
        &mount(file, &[("FOREBAY_MEMORY", "2MiB")], &flags),
        1,
        &["none", "create it"],
    );
}

#[test]
fn an_unknown_key_is_an_error_with_the_nearest_one() {
    assert_fails(
        &mount("consistence = \"posix\"\n", &[], &[]),
        2,
        &["'consistence'", "c.toml", "'consistency'"],
    );
    assert_fails(
        &mount("[nodes]\nn = 1\n", &[], &[]),
        2,
        &["'nodes'", "table"],
    );
    assert_fails(&mount("nodes = \n", &[], &[]), 2, &["c.toml, line 1"]);
}

#[test]
fn a_configuration_file_that_is_named_must_exist() {
    let mut command = command(&["mount", "/nonexistent/s", "/nonexistent/m"]);
    let result = outcome(&run(command.env("FOREBAY_CONFIG", "/nonexistent/c.toml")));
    assert_fails(&result, 2, &["/nonexistent/c.toml", "--config"]);
}

#[test]
fn the_users_own_file_is_read_if_it_exists() {
    let place = Place::new();
    std::fs::create_dir(place.path("forebay")).unwrap();
    std::fs::write(place.path("forebay/config.toml"), "nodes = 0\n").unwrap();
    let mut command = command(&["mount", "/nonexistent/s", "/nonexistent/m"]);
    let result = outcome(&run(command.env("XDG_CONFIG_HOME", place.path("."))));
    assert_fails(&result, 2, &["forebay/config.toml", "from 1 to 64"]);
}

#[test]
fn config_shows_every_setting_and_where_it_comes_from() {
    let place = Place::new();
    let file = place.text("c.toml");
    std::fs::write(&file, "nodes = 2\nmemory = \"20MiB\"\nquota = \"1G\"\n").unwrap();
    let with = |args: &[&str]| {
        let mut command = command(&[&["--config", &file, "config"], args].concat());
        outcome(&run(command
            .env("FOREBAY_MEMORY", "30MiB")
            .env("FOREBAY_QUOTA", "2G")))
    };
    let (code, out, err) = with(&["show", "--json", "--quota", "3G"]);
    assert_eq!(code, 0, "{err}");
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["file"], *file);
    for (key, value, from) in [
        ("nodes", "2", "file"),
        ("memory", "30MiB", "environment"),
        ("quota", "3G", "flag"),
        ("durability", "process", "default"),
    ] {
        let setting = &shown["settings"][key];
        assert_eq!(
            (&setting["value"], &setting["from"]),
            (&value.into(), &from.into()),
            "{out}"
        );
    }
    let all = shown["settings"].as_object().unwrap();
    assert_eq!(all.len(), forebay_cli::settings::TABLE.len());
    let (code, out, _) = with(&["show"]);
    let line = |key: &str| {
        out.lines()
            .find(|l| l.starts_with(key))
            .unwrap()
            .to_string()
    };
    assert!(
        code == 0 && line("memory").ends_with("FOREBAY_MEMORY"),
        "{out}"
    );
    assert!(
        line("nodes").ends_with("file") && out.contains(&file),
        "{out}"
    );
    let (code, out, err) = with(&["check"]);
    assert!(code == 0 && out.contains("3 settings chosen"), "{out}{err}");
    assert_fails(&with(&["check", "--nodes", "0"]), 2, &["--nodes"]);
    assert_fails(
        &with(&["check", "--memory", "1024T"]),
        2,
        &["this machine has"],
    );
    std::fs::write(&file, "memroy = 1\n").unwrap();
    assert_fails(&with(&["check"]), 2, &["memroy", "'memory'", &file]);
    let (code, out, err) = with(&["check", "--json"]);
    assert_eq!((code, &err[..]), (2, ""), "{out}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["valid"], false);
    let error = said["error"].as_str().unwrap();
    assert!(
        error.contains("memroy") && error.contains("'memory'"),
        "{out}"
    );
}
