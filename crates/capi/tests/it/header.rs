//! The header is what the functions say, and C and C++ take it without a word.
use crate::common::{run, source};
use forebay_testkit::prerequisites::has_program;
use std::process::Command;

/// The header as the sources have it. What makes a call sound is said to Rust alone: in C it goes without saying.
fn made() -> String {
    let config = cbindgen::Config::from_file(source("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_crate(source(""))
        .with_config(config)
        .generate()
        .unwrap();
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let mut kept = Vec::new();
    let mut skipping = false;
    for line in text.lines() {
        if line.trim() == "* # Safety" {
            skipping = true;
            // The empty line before it.
            if kept.last().is_some_and(|l: &&str| l.trim() == "*") {
                kept.pop();
            }
        }
        if line.trim() == "*/" {
            skipping = false;
        }
        if !skipping {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_header_says_what_the_functions_say() {
    let file = source("include/forebay.h");
    let made = made();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "include/forebay.h is not what the functions say; UPDATE_HEADER=1 makes it anew"
    );
}

#[test]
fn c_and_cpp_compile_the_header_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    for (compiler, standard, name) in [
        ("gcc", "-std=c99", "use.c"),
        ("gcc", "-std=c17", "use.c"),
        ("g++", "-std=c++11", "use.cpp"),
        ("g++", "-std=c++20", "use.cpp"),
    ] {
        if !has_program(compiler) {
            continue;
        }
        let program = dir.path().join(name);
        let text = "#include <forebay.h>\n#include <forebay.h>\nint main(void) { return forebay_version() == 0; }\n";
        std::fs::write(&program, text).unwrap();
        run(Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-c"])
            .arg("-I")
            .arg(source("include"))
            .arg(&program)
            .arg("-o")
            .arg(dir.path().join("use.o")));
    }
}
