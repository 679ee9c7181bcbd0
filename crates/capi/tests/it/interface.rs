//! What the functions do, as programs in C and Fortran call them.
use crate::common::{World, built, compiled, run, source};
use std::io::Write;
use std::process::Command;

#[test]
fn a_program_in_c_finds_every_function_as_the_header_says() {
    let world = World::start();
    let to = world.dir.path().join("calls");
    let strict = [
        "-std=gnu17",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        "-g",
    ];
    let Some(program) = compiled("gcc", &strict, &[source("tests/it/calls.c")], &to) else {
        return;
    };
    let said = run(Command::new(program).arg(world.place()));
    assert_eq!(said, "all right\n");
    // What it wrote on one node is there on the other.
    assert_eq!(world.clients[1].read("/c/kept").unwrap(), b"from C");
}

#[test]
fn the_examples_in_c_and_fortran_write_what_they_read() {
    let world = World::start();
    let examples = source("../../examples/clients");
    let programs = [
        compiled(
            "gcc",
            &["-O1", "-Wall", "-Wextra", "-Werror"],
            &[examples.join("checkpoint.c")],
            &world.dir.path().join("c"),
        ),
        compiled(
            "gfortran",
            &["-O1", "-Wall", "-Wextra"],
            &[
                source("fortran/forebay.f90"),
                examples.join("checkpoint.f90"),
            ],
            &world.dir.path().join("f"),
        ),
    ];
    let expected: Vec<u8> = (0..1000u32)
        .flat_map(|i| (f64::from(i) * f64::from(i)).to_le_bytes())
        .collect();
    for (n, program) in programs.iter().flatten().enumerate() {
        let path = format!("/made{n}");
        let said = run(Command::new(program).args([world.place(), &path, "1000"]));
        assert_eq!(said.trim().parse::<f64>().unwrap(), 332_833_500.0);
        assert_eq!(world.clients[1].read(&path).unwrap(), expected);
        assert!(!world.clients[0].exists(format!("{path}.tmp")));
        let failed = Command::new(program)
            .args(["/nonexistent", &path, "1"])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(
            !failed.status.success() && words.contains("checkpoint: connect: cannot connect to"),
            "{words}"
        );
    }
}

#[test]
fn the_worker_of_the_benchmark_does_its_job() {
    let world = World::start();
    let to = world.dir.path().join("worker");
    let sources = [source("../bench/clients/worker.c")];
    let strict = ["-std=gnu17", "-Wall", "-Wextra", "-Werror", "-O1"];
    let Some(program) = compiled("gcc", &strict, &sources, &to) else {
        return;
    };
    world.clients[0].create_dir_all("/b/0").unwrap();
    let job = |rank: u32, task: &str| {
        let job = format!(
            r#"{{"dir":"/b","rank":{rank},"of":2,"task":{task},"link":"{}"}}"#,
            world.place()
        );
        let mut child = Command::new(&program)
            .arg(job)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && said.starts_with("ready\n{\"start\":"),
            "{said}"
        );
        said[said.rfind(':').unwrap() + 1..]
            .trim_end_matches("}\n")
            .to_string()
    };
    for layout in ["Own", "Segments", "Strided", "Random"] {
        let records = format!(r#"{{"layout":"{layout}","record":4096,"bytes":65536}}"#);
        if layout != "Random" {
            for rank in 0..2 {
                assert_eq!(job(rank, &format!(r#"{{"Write":{records}}}"#)), "32768");
            }
        }
        for rank in 0..2 {
            assert_eq!(job(rank, &format!(r#"{{"Read":{records}}}"#)), "32768");
        }
    }
    assert_eq!(world.clients[1].metadata("/b/data").unwrap().len(), 65536);
    assert_eq!(job(0, r#"{"Create":10}"#), "5");
    assert!(world.clients[1].exists("/b/0/f0.4"));
    assert_eq!(job(1, r#"{"Stat":10}"#), "5");
    assert_eq!(job(0, r#"{"Unlink":10}"#), "5");
    assert!(!world.clients[1].exists("/b/0/f0.4"));
}

#[test]
fn the_program_on_the_page_says_what_it_wrote() {
    let page = std::fs::read_to_string(source("../../docs/c.md")).unwrap();
    let (_, from) = page.split_once("```c\n").unwrap();
    let (text, _) = from.split_once("```").unwrap();
    let world = World::start();
    let file = world.dir.path().join("hello.c");
    std::fs::write(&file, text).unwrap();
    let to = world.dir.path().join("hello");
    let Some(program) = compiled("gcc", &["-Wall", "-Wextra", "-Werror"], &[file], &to) else {
        return;
    };
    assert_eq!(run(Command::new(&program).arg(world.place())), "hello\n");
    assert_eq!(world.clients[1].read("/hello").unwrap(), b"hello");
    assert!(!Command::new(&program).status().unwrap().success());
}

#[test]
fn the_library_exports_its_functions_alone_and_knows_its_name() {
    let library = built().join("libforebay.so");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let names: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert!(names.contains(&"forebay_pwritev"), "{names:?}");
    let others: Vec<_> = names
        .iter()
        .filter(|n| !n.starts_with("forebay_"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(
        dynamic.contains("Library soname: [libforebay.so.0]"),
        "{dynamic}"
    );
}
