//! The example `mmat` in its three languages, on files of known content: what it computes is the same.
use crate::common::{Place, forebay, outcome, run};
use forebay_testkit::prerequisites::has_program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn source(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mmat");
    examples.join(name)
}

/// The programs that can be run here: each with the words that start it.
fn programs(place: &Place) -> Vec<Vec<PathBuf>> {
    let mut programs = Vec::new();
    let mut compile = |compiler: &str, options: &[&str], name: &str| {
        if !has_program(compiler) {
            return;
        }
        let built = place.path(&format!("{name}.out"));
        let mut command = Command::new(compiler);
        command
            .args(options)
            .arg("-o")
            .arg(&built)
            .arg(source(name));
        let (code, out, err) = outcome(&run(&mut command));
        assert_eq!(code, 0, "{compiler}: {out}{err}");
        programs.push(vec![built]);
    };
    compile("cc", &["-O1", "-Wall", "-Wextra", "-Werror"], "mmat.c");
    compile("rustc", &["--edition", "2024", "-O"], "mmat.rs");
    if has_program("python3") {
        programs.push(vec!["python3".into(), source("mmat.py")]);
    }
    programs
}

fn mmat(program: &[PathBuf], args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(args);
    outcome(&run(&mut command))
}

/// Minimum, maximum, average and number of values.
fn numbers(text: &str) -> [f64; 4] {
    let names = ["minimum", "maximum", "average", "values"];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    std::array::from_fn(|k| {
        let (name, value) = lines[k].split_once(' ').unwrap();
        assert_eq!(name, names[k]);
        value.parse().unwrap()
    })
}

#[test]
fn all_languages_find_the_same_minimum_maximum_and_average() {
    let place = Place::new();
    // Over two blocks of 4 MiB, with a part of a number at the end, and one that is none.
    let mut values: Vec<f32> = (0..1_500_000u32)
        .map(|i| (i as f32 * 1e-3).sin() * 90.0 + 15.0)
        .collect();
    values[10] = f32::NAN;
    let mut bytes: Vec<u8> = vec![9; 6];
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes.extend([1, 2]);
    let file = place.text("variable");
    fs::write(&file, &bytes).unwrap();
    let programs = programs(&place);
    for stride in [1usize, 3, 1 << 20] {
        let every: Vec<f64> = values
            .iter()
            .step_by(stride)
            .map(|v| f64::from(*v))
            .collect();
        let every: Vec<f64> = every.into_iter().filter(|v| !v.is_nan()).collect();
        let expected = [
            every.iter().copied().fold(f64::INFINITY, f64::min),
            every.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            every.iter().sum::<f64>() / every.len() as f64,
            every.len() as f64,
        ];
        for program in &programs {
            let args = [&file, "f32", "6", &stride.to_string()];
            let (code, out, err) = mmat(program, &args);
            assert_eq!(code, 0, "{program:?}: {err}");
            let found = numbers(&out);
            assert_eq!(found[..2], expected[..2], "{program:?} {out}");
            // The average is of a sum that each adds up in its own way.
            assert!((found[2] - expected[2]).abs() < 1e-9, "{program:?} {out}");
            assert_eq!(found[3], expected[3], "{program:?} {out}");
        }
    }
}

#[test]
fn numbers_of_eight_bytes_are_read_and_files_without_any_are_refused() {
    let place = Place::new();
    let values = [-2.5f64, 1e300, 7.0, 0.25];
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let [file, short] = ["variable", "short"].map(|f| place.text(f));
    fs::write(&file, bytes).unwrap();
    fs::write(&short, "1234567").unwrap();
    for program in programs(&place) {
        let (code, out, err) = mmat(&program, &[&file, "f64"]);
        assert_eq!(code, 0, "{program:?}: {err}");
        assert_eq!(numbers(&out), [-2.5, 1e300, 2.5e299, 4.0], "{program:?}");
        for wrong in [[&short, "f64"], [&place.text("none"), "f32"]] {
            let (code, out, err) = mmat(&program, &wrong);
            assert_eq!((code, out.as_str()), (1, ""), "{program:?}");
            assert_eq!(err.lines().count(), 1, "{program:?}: {err}");
        }
        let (code, _, err) = mmat(&program, &[&file, "f16"]);
        assert!(code > 0 && err.starts_with("usage: "), "{program:?}: {err}");
    }
}

#[test]
fn on_a_mount_they_find_what_they_find_in_a_directory() {
    let Some(place) = Place::mountable() else {
        return;
    };
    // Encoded as it is written.
    place.mount_well(&["--nodes", "2", "--codec-when", "inline"]);
    let values = (0..1_200_000u32).map(|i| f64::from(i).sqrt());
    let bytes: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
    // Written through one node, read through the other.
    let plain = place.text("variable");
    rustix::fs::setxattr(
        place.path("m/0"),
        "user.forebay.codec",
        b"field,f64",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    for file in [&plain, &place.text("m/0/variable")] {
        fs::write(file, &bytes).unwrap();
    }
    let (code, out, err) = forebay(&["stat", &place.text("m/0/variable"), "--json"]);
    assert_eq!(code, 0, "{err}");
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    let field = &shown["storage"]["report"]["codecs"]["field"];
    let [raw, stored] = ["bytes", "stored"].map(|what| field[what].as_u64().unwrap_or(0));
    assert!(raw as usize > bytes.len() / 2 && stored < raw, "{out}");
    for program in programs(&place) {
        let expected = mmat(&program, &[&plain, "f64", "16", "5"]);
        let found = mmat(&program, &[&place.text("m/1/variable"), "f64", "16", "5"]);
        assert_eq!(found, expected);
        assert_eq!(found.0, 0, "{found:?}");
    }
    place.umount_well();
}
