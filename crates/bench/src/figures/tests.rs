//! Figures from results as the benchmarks write them.

use super::panel::PanelContent;
use super::*;
use crate::report::Report;

const SUBJECTS: [(&str, f64); 3] = [("forebay", 4e6), ("leveldb", 2e5), ("rocksdb", 3e5)];

fn index(cases: &[&'static str]) -> String {
    let mut report = Report::new("index", "leveldb");
    let mut text = String::new();
    for case in cases {
        for (who, rate) in SUBJECTS {
            for metric in ["put_ops_per_s", "get_cold_ops_per_s", "get_warm_ops_per_s"] {
                for change in [0.9, 1.0, 1.2] {
                    report.add(case, metric, who, "1/s", rate * change);
                }
            }
        }
        text += &report.json(case);
    }
    text
}

fn drawn(lines: &str) -> Vec<(&'static str, Option<Figure>)> {
    let mut results = Results::default();
    results.add(lines).unwrap();
    let drawn = |figure: Figure| Some(figure).filter(|f| !f.panels.is_empty());
    let figures = all(&results).into_iter();
    figures.map(|(name, f)| (name, drawn(f))).collect()
}

fn named(lines: &str, name: &str) -> Option<Figure> {
    let found = drawn(lines).into_iter().find(|f| f.0 == name);
    found.unwrap().1
}

#[test]
fn only_what_was_measured_is_drawn() {
    assert!(drawn("").iter().all(|f| f.1.is_none()));
    let lines = index(&["ior-1m-drift", "ior-8m-drift", "btio-c"]);
    let there: Vec<_> = drawn(&lines)
        .into_iter()
        .filter(|f| f.1.is_some())
        .map(|f| f.0)
        .collect();
    assert_eq!(there, ["figure-03", "figure-08", "figure-09", "figure-11"]);
    let nine = named(&lines, "figure-09").unwrap();
    assert_eq!(nine.panels.len(), 3, "drifting writers only");
    assert!(nine.missing.contains(&"ior-32m-drift".to_string()));
    assert!(!nine.missing.iter().any(|m| m.starts_with("ior-1m-drift")));
    let without = lines.lines().filter(|l| !l.contains("rocksdb"));
    let without: Vec<_> = without.collect();
    let nine = named(&without.join("\n"), "figure-09").unwrap();
    assert!(
        nine.missing
            .contains(&"ior-8m-drift of rocksdb".to_string())
    );
    assert!(!nine.svg().contains("RocksDB") && nine.svg().contains("LevelDB"));
}

/// 1 / 4e6 a second is 0.25 us; 1 / 2e5 is 5.
#[test]
fn bars_show_the_time_of_one_operation() {
    let mut eight = named(&index(&["ior-1m-random"]), "figure-08").unwrap();
    finish(&mut eight, 2);
    let svg = eight.svg();
    assert!(
        svg.contains(">0.25</text>") && svg.contains(">5</text>"),
        "{svg}"
    );
    assert!(eight.caption.contains("Medians of 3 runs") && eight.caption.contains("2 cores"));
}

/// What the log-ring's simulation says is what its figure shows.
#[test]
fn the_ring_figure_has_all_its_panels() {
    let mut report = Report::new("ring", "direct");
    let mut text = String::new();
    for case in [
        "ring-local-4",
        "ring-local-64",
        "ring-mpi-4",
        "ring-sim-4",
        "ring-sim-16384",
    ] {
        for (who, latency) in [
            ("ring", 30.0),
            ("ring-fitted", 20.0),
            ("direct", 3000.0),
            ("mdhim", 4e4),
        ] {
            report.add(case, "latency_us", who, "us", latency);
            report.add(case, "root_messages", who, "messages", 2.0);
        }
        text += &report.json(case);
    }
    let figure = named(&text, "figure-12").unwrap();
    assert_eq!((figure.panels.len(), figure.missing.len()), (4, 0));
    let svg = figure.svg();
    for words in [
        "16,384",
        "log-ring, fitted",
        "MDHIM-like",
        "latency (µs)",
        "100,000",
    ] {
        assert!(svg.contains(&format!(">{words}</text>")), "{words}");
    }
    // A case that is not a number of servers is not in the way.
    report.add("ring-sim-every", "latency_us", "ring", "us", 1.0);
    text += &report.json("ring-sim-every");
    assert_eq!(named(&text, "figure-12").unwrap().svg(), svg);
}

#[test]
fn rates_and_calls_of_patterns() {
    let mut report = Report::new("pattern", "published");
    let mut text = String::new();
    for case in ["milc-a", "random", "openpmd-8-1024.posix-reads"] {
        for (who, bytes) in [("raw", 48_000.0), ("published", 9600.0), ("forebay", 48.0)] {
            report.add(case, "merged_bytes", who, "B", bytes);
        }
        text += &report.json(case);
    }
    let one = named(&text, "figure-01").unwrap();
    let svg = one.svg();
    assert_eq!(one.panels.len(), 2);
    assert!(one.missing.contains(&"btio-q16".to_string()));
    for words in ["MILC A", "1r", "1,000", "5"] {
        assert!(svg.contains(&format!(">{words}</text>")), "{words}");
    }
    let sixteen = named(&text, "figure-16").unwrap();
    assert_eq!((sixteen.panels.len(), sixteen.missing.len()), (1, 2));
    let svg = sixteen.svg();
    assert!(svg.contains("(A) 1,000 times smaller") && svg.matches("<path d=").count() == 16);
}

#[test]
fn checkpoints_over_the_number_of_writes() {
    let mut report = Report::new("checkpoint", "patterns-off");
    let mut text = String::new();
    for case in ["fs-test-512x4k", "fs-test-512x256k", "fs-test-64x4k"] {
        for who in ["forebay", "patterns-off"] {
            for metric in [
                "write_open_s",
                "write_bytes_per_s",
                "read_open_s",
                "index_memory_bytes",
            ] {
                report.add(case, metric, who, "", 5000.0);
            }
        }
        text += &report.json(case);
    }
    let of = |name| named(&text, name).unwrap();
    assert_eq!(
        (of("figure-13").panels.len(), of("figure-14").panels.len()),
        (2, 1)
    );
    let fifteen = of("figure-15");
    assert_eq!(fifteen.missing, ["index_disk_bytes"]);
    let svg = fifteen.svg();
    // The case with real bytes and fewer writers is no point of these.
    assert_eq!(
        svg.matches("<circle").count(),
        2 + 1,
        "two points, and the legend"
    );
    assert!(svg.contains("entries of 56 bytes") && svg.contains(">256</text>"));
}

#[test]
fn what_fetching_ahead_saves_is_a_panel_a_case() {
    let mut report = Report::new("prefetch", "none");
    let mut text = String::new();
    for case in ["pagoda", "random"] {
        for (who, time) in [("none", 2.0), ("forebay", 0.1), ("perfect", 0.09)] {
            report.add(case, "io_time_s", who, "s", time);
            report.add(case, "read_p99_s", who, "s", time / 1e3);
        }
        text += &report.json(case);
    }
    let effect = named(&text, "figure-21").unwrap();
    assert_eq!((effect.panels.len(), effect.columns), (4, 2));
    assert_eq!(effect.missing, ["openpmd"]);
    let svg = effect.svg();
    for words in [
        "Forebay: patterns",
        "no prefetching",
        "0.1",
        "2,000",
        "random",
    ] {
        assert!(svg.contains(&format!(">{words}</text>")), "{words}");
    }
    assert!(!svg.contains("readahead"));
    let requests = named(&text, "figure-20").unwrap();
    let dots = requests.svg().matches("h3v3h-3z").count();
    assert_eq!(dots, 12 * 196 + 2 * 196);
    // Not without the replay.
    let random: Vec<&str> = text.lines().filter(|l| l.contains("random")).collect();
    assert!(named(&random.join("\n"), "figure-20").is_none());
}

#[test]
fn fields_are_drawn_over_points_over_disks_and_against_speed() {
    let mut report = Report::new("fields", "raw");
    let mut text = String::new();
    for case in ["points-256", "points-4096", "fields"] {
        for who in ["paper", "lz4"] {
            if who == "paper" || case == "fields" {
                report.add(case, "encode_bytes_per_s", who, "B/s", 1e9);
                report.add(case, "decode_bytes_per_s", who, "B/s", 2e9);
                report.add(case, "ratio", who, "ratio", 2.0);
            }
        }
        text += &report.json(case);
    }
    for case in ["e2e-50", "e2e-200", "e2e-disk", "mmat-200"] {
        for (who, time) in [("raw", 4.0), ("field", 1.7)] {
            report.add(case, "io_time_s", who, "s", time);
        }
        text += &report.json(case);
    }
    let points = named(&text, "fields-points").unwrap();
    assert_eq!(points.missing, ["time of one value of points-..."]);
    // On a disk of 200 MB/s 1 GB takes 1 s to encode, half a second to decode, and 2.5 s each way.
    let PanelContent::Curves { curves, .. } = &points.panels[1].content else {
        panic!("{points:?}");
    };
    let found = curves.iter().find(|c| c.0.subject == "200").unwrap();
    assert_eq!(
        found.1.iter().map(|p| p.1.median).collect::<Vec<_>>(),
        [6.5, 6.5]
    );
    let disks = named(&text, "fields-disks").unwrap();
    assert_eq!((disks.panels.len(), disks.missing.len()), (1, 1));
    assert!(!disks.svg().contains("LZ4"));
    assert!(
        named(&text, "fields-mmat")
            .unwrap()
            .svg()
            .contains(">1.7</text>")
    );
    let ratio = named(&text, "fields-ratio").unwrap();
    assert_eq!((ratio.panels.len(), ratio.missing.len()), (2, 2));
}

#[test]
fn files_are_written_and_nothing_to_draw_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("index.jsonl");
    std::fs::write(&lines, index(&["tile-io"])).unwrap();
    let mut args = FiguresArgs {
        from: vec![dir.path().into()],
        to: dir.path().join("drawn"),
        cores: Some(2),
        svg_only: true,
    };
    run(&args).unwrap();
    let files = std::fs::read_dir(&args.to).unwrap();
    let files: Vec<_> = files.map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files, ["figure-10.svg"]);
    std::fs::write(&lines, "").unwrap();
    assert!(run(&args).is_err_and(|e| e.0.contains("nothing to draw")));
    args.from = vec![dir.path().join("absent.jsonl")];
    assert!(run(&args).is_err_and(|e| e.0.contains("absent.jsonl")));
}

/// PNGs need the font; where it is not, that is said.
#[cfg(feature = "png")]
#[test]
fn a_png_has_text() {
    let renderer = png_renderer().unwrap();
    let figure = named(&index(&["tile-io"]), "figure-10").unwrap();
    let with = renderer.png(&figure.svg()).unwrap();
    let no_words = figure
        .svg()
        .replace("font-size", "display=\"none\" font-size");
    let without = renderer.png(&no_words).unwrap();
    assert!(with.starts_with(b"\x89PNG") && with.len() > without.len() + 1000);
}
