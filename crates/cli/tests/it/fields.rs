//! `forebay fields analyze`: what it measures of files of known content, as text, JSON and picture; what it refuses.
use crate::common::{Place, assert_fails, forebay};
use forebay_testkit::random::seeded_bytes;
use std::fs;
use std::process::Command;

/// The codecs of a table, and the automatic choice.
const CODECS: [&str; 9] = [
    "raw",
    "xor",
    "field",
    "zstd",
    "shuffle-zstd",
    "lz4",
    "shuffle-lz4",
    "pco",
    "auto",
];

/// A field of binary32 that every codec of numbers makes shorter: smooth, with some noise.
fn field(values: usize) -> Vec<u8> {
    let noise = seeded_bytes(1, values);
    let value = |(i, noise): (usize, &u8)| {
        280.0 + 10.0 * (i as f32 * 1e-2).sin() + f32::from(*noise) * 1e-4
    };
    noise
        .iter()
        .enumerate()
        .map(value)
        .flat_map(f32::to_le_bytes)
        .collect()
}

fn json(args: &[&str]) -> serde_json::Value {
    let (code, out, err) = forebay(&[&["fields", "analyze", "--json"], args].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("field"), field(16_000)).unwrap();
    fs::write(place.path("noise"), seeded_bytes(2, 20_000)).unwrap();
    place
}

#[test]
fn the_table_has_every_codec_and_a_recommendation_in_one_sentence() {
    let place = place();
    let [field, noise] = ["field", "noise"].map(|f| place.text(f));
    let (code, out, err) = forebay(&["fields", "analyze", &field, &noise]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for codec in CODECS {
        let rows = out.lines().filter(|l| l.split(' ').next() == Some(codec));
        assert_eq!(rows.count(), 2, "{codec} in {out}");
    }
    for part in [
        "field: all 62.5 KiB, as f32 with stride 1 (type and stride guessed)",
        "noise: all 19.5 KiB, as",
        "Auto takes field for 1 container.",
        "Auto takes raw for 1 container.",
        "Recommended: `raw`, for no codec",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert_eq!(out.matches("Recommended: `").count(), 2, "{out}");
}

#[test]
fn json_has_the_numbers_of_every_codec() {
    let place = place();
    let report = json(&[&place.text("field"), "--type", "f32"]);
    let file = &report["files"][0];
    assert_eq!(file["bytes"], 64_000);
    assert_eq!(file["sampled_bytes"], 64_000);
    assert_eq!(file["type"], "f32");
    assert_eq!(file["guessed"], serde_json::json!(["stride"]));
    let codecs = file["codecs"].as_array().unwrap();
    let names: Vec<&str> = codecs
        .iter()
        .map(|c| c["codec"].as_str().unwrap())
        .collect();
    assert_eq!(names, CODECS[..8]);
    for codec in codecs.iter().chain([&file["auto"]]) {
        for number in ["ratio", "encode_bytes_per_s", "decode_bytes_per_s"] {
            assert!(codec[number].as_f64().unwrap() > 0.9, "{number}: {codec}");
        }
        assert!(codec["one_value_ns"].as_u64().unwrap() > 0, "{codec}");
    }
    let ratio = |k: usize| codecs[k]["ratio"].as_f64().unwrap();
    assert!(ratio(0) <= 1.0 && ratio(2) > 1.2, "{codecs:?}");
    let recommended = file["recommended"].as_str().unwrap();
    assert!(recommended.ends_with(",f32"), "{recommended}");
}

#[test]
fn numbers_behind_a_header_are_measured_as_they_would_be_without_it() {
    let place = place();
    let header = seeded_bytes(3, 10);
    let behind = [&header[..], &field(16_000)].concat();
    fs::write(place.path("behind"), behind).unwrap();
    let (plain, behind) = (place.text("field"), place.text("behind"));
    let report = json(&["--type", "f32", "--offset", "10", &behind]);
    let plain = json(&["--type", "f32", &plain]);
    let encoded = |report: &serde_json::Value| {
        let codec = &report["files"][0]["codecs"][2]["encoded_bytes"];
        codec.as_u64().unwrap()
    };
    assert!(encoded(&report).abs_diff(encoded(&plain)) < 400);
    // With the type a store would look for numbers at the file's first byte.
    let recommended = report["files"][0]["recommended"].as_str().unwrap();
    assert!(!recommended.contains("f32"), "{recommended}");
}

#[test]
fn a_large_file_is_sampled_and_the_output_says_so() {
    let place = Place::new();
    // Zeros take no room on the disk.
    let file = fs::File::create(place.path("large")).unwrap();
    file.set_len(200 << 20).unwrap();
    let large = place.text("large");
    let (code, out, err) = forebay(&["fields", "analyze", "--type", "f64", &large]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let head = "large: a sample of 64.0 MiB from all over 200.0 MiB, as f64 with stride 1 (stride guessed)";
    assert!(out.contains(head), "{out}");
    let offset = (200u64 << 20) - 1024;
    let (_, out, _) = forebay(&["fields", "analyze", "--offset", &offset.to_string(), &large]);
    assert!(
        out.contains("large: all 1.0 KiB from byte 209714176 on"),
        "{out}"
    );
}

#[test]
fn the_picture_has_a_point_for_each_codec() {
    let place = place();
    let [field, svg] = ["field", "p.svg"].map(|f| place.text(f));
    let (code, _, err) = forebay(&["fields", "analyze", &field, "--plot", &svg]);
    assert_eq!(code, 0, "{err}");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    for codec in CODECS {
        assert!(drawn.contains(&format!(">{codec} ")), "{codec}");
    }
    assert!(drawn.contains("decoded bytes a second"), "{drawn}");
}

#[test]
fn what_cannot_be_analyzed_is_one_line_with_the_next_step() {
    let place = place();
    let [field, empty, pipe] = ["field", "empty", "pipe"].map(|f| place.text(f));
    fs::write(&empty, "").unwrap();
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let directory = place.text("");
    let wrong: [(&[&str], &[&str]); 9] = [
        (&[&place.text("none")], &["none", "that you may read"]),
        (&[&field, &empty], &["empty is empty", "a file of numbers"]),
        (&[&directory], &["no regular file", "name the files in it"]),
        (&[&pipe], &["no regular file", "copy"]),
        (
            &[&field, "--offset", "64000"],
            &["64,000 bytes", "--offset"],
        ),
        (&[&field, "--type", "f128"], &["f128", "bf16", "--help"]),
        (&[&field, "--stride", "0"], &["'0'", "--help"]),
        (&[&field, "--plot", "p.pdf"], &["p.pdf", ".svg"]),
        (&[], &["<FILE>", "forebay fields analyze --help"]),
    ];
    for (args, parts) in wrong {
        let result = forebay(&[&["fields", "analyze"], args].concat());
        assert_fails(&result, 2, parts);
    }
}

#[test]
fn files_are_only_read() {
    let place = place();
    let before = fs::read(place.path("field")).unwrap();
    let modified = || fs::metadata(place.path("field")).unwrap().modified();
    let time = modified().unwrap();
    json(&[&place.text("field")]);
    assert_eq!(fs::read(place.path("field")).unwrap(), before);
    assert_eq!(modified().unwrap(), time);
}
