//! `make install-c`: a program that knows no more than pkg-config tells it.
use crate::common::{World, built, run, source};
use forebay_testkit::prerequisites::has_program;
use std::process::Command;

#[test]
fn a_program_is_built_by_what_pkg_config_says() {
    if !has_program("gcc") || !has_program("pkg-config") {
        return;
    }
    let world = World::start();
    let prefix = world.dir.path().join("usr");
    let shown = prefix.to_str().unwrap();
    run(Command::new(source("../../scripts/install-c.sh"))
        .arg(&prefix)
        .arg(built()));
    let ask = |words: &[&str]| {
        let mut command = Command::new("pkg-config");
        command
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .args(words)
            .arg("forebay");
        run(&mut command)
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = ask(&["--cflags", "--libs"]);
    let program = world.dir.path().join("checkpoint");
    run(Command::new("gcc")
        .arg(source("../../examples/clients/checkpoint.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program));
    // The program names the library by its soname, which the installed link is.
    let said = run(Command::new(&program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .args([world.place(), "/installed", "4"]));
    assert_eq!(said, "14\n");
    for name in [
        "lib/libforebay.a",
        "lib/libforebay.so.0",
        "include/forebay.f90",
    ] {
        assert!(prefix.join(name).exists(), "{shown}/{name}");
    }
}
