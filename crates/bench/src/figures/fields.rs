//! The figures about floating-point arrays. The paper (MRC-FS) gives its results in words; they are drawn here: throughput and I/O time
//! over the number of reference points and over the speed of the disk, minimum, maximum and average of a variable, and the ratio
//! of the codecs against their speed.

use super::figure::Figure;
use super::panel::{Curve, Panel, Series, bar_sets, curves, log_axis};
use super::results::Results;
use crate::report::Spread;
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape::{Circle, Cross, Diamond, Square, Triangle};

const BENCH: &str = "fields";
/// Before the number of points, and before the disk's MB/s, in names of cases.
const POINTS: (&str, &str) = ("points-", "");
const DISKS: (&str, &str) = ("e2e-", "");
/// The codec that has reference points.
const PAPER: &str = "paper";

const SUBJECTS: [Series; 10] = [
    Series::new("forebay", "Forebay (automatic)", "#0072b2", Circle),
    Series::new("field", "field", "#56b4e9", Diamond),
    Series::new(PAPER, "XOR (the paper)", "#d55e00", Square),
    Series::new("zstd-3", "zstd 3", "#999999", Triangle),
    Series::new("shuffle-zstd-3", "shuffle, zstd 3", "#009e73", Triangle),
    Series::new("shuffle-zstd-1", "shuffle, zstd 1", "#009e73", Diamond),
    Series::new("lz4", "LZ4", "#e69f00", Square),
    Series::new("pco-4", "pco 4", "#cc79a7", Diamond),
    Series::new("pco-8", "pco 8", "#cc79a7", Circle),
    Series::new("raw", "raw", "#222222", Cross),
];

const ENCODE: &str = "encode_bytes_per_s";
const DECODE: &str = "decode_bytes_per_s";
/// By metric.
const SPEEDS: [Series; 2] = [
    Series::new(ENCODE, "encoding", "#d55e00", Square),
    Series::new(DECODE, "decoding", "#0072b2", Circle),
];
const ONE_VALUE: [Series; 1] = [Series::new("one_value_ns", "one value", "#222222", Diamond)];
/// By the disk's MB/s.
const DISK_RATES: [Series; 3] = [
    Series::new("50", "disk of 50 MB/s", "#cc79a7", Square),
    Series::new("200", "of 200 MB/s", "#e69f00", Triangle),
    Series::new("1000", "of 1,000 MB/s", "#009e73", Diamond),
];

/// The figures, in order.
pub fn all(results: &Results) -> [(&'static str, Figure); 4] {
    [
        ("fields-points", points(results)),
        ("fields-disks", disks(results)),
        ("fields-mmat", min_max_average(results)),
        ("fields-ratio", ratio(results)),
    ]
}

/// The paper's codec over its number of reference points.
fn points(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Reference points of the paper's codec (MRC-FS)",
        3,
        "All arrays of fields, in containers of 1 MiB in memory; one of binary64 has at most 8,192 points. I/O time: computed of the speeds and the ratio, for 1 GB \
                  that is encoded, written, read and decoded, one after the other.",
    );
    let cases = results.numbered_cases(BENCH, ENCODE, POINTS);
    let ticks: Vec<_> = cases.iter().map(|c| (c.0, three_digits(c.0))).collect();
    let x = || Axis::log_at("reference points in a container", ticks.clone());
    let of = |case: &str, metric: &str| results.get(BENCH, case, metric, PAPER);
    let over_points = |value: &dyn Fn(&str) -> Option<Spread>| {
        let point = |(number, case): &(f64, &str)| Some((*number, value(case)?));
        cases.iter().filter_map(point).collect()
    };
    let speeds = curves(&SPEEDS, |metric| {
        over_points(&|case| Some(of(case, metric)?.times(1e-6)))
    });
    let io_times = curves(&DISK_RATES, |rate| {
        let disk = rate.parse::<f64>().unwrap_or(f64::NAN) * 1e6;
        over_points(&|case| {
            let [encode, decode, ratio] = [ENCODE, DECODE, "ratio"].map(|metric| of(case, metric));
            io_time(encode?, decode?, ratio?, disk)
        })
    });
    let one = curves(&ONE_VALUE, |metric| over_points(&|case| of(case, metric)));
    for (name, y, curves) in [
        ("throughput", "MB/s", speeds),
        ("I/O time", "seconds", io_times),
        ("time of one value", "ns", one),
    ] {
        let panel = Panel::of_curves(name, x(), log_axis(y, &curves), curves);
        figure.add(format!("{name} of points-..."), panel);
    }
    figure
}

/// Seconds in which 1 GB is encoded, written to such a disk (bytes a second), read and decoded, one after the other.
fn io_time(encode: Spread, decode: Spread, ratio: Spread, disk: f64) -> Option<Spread> {
    const BYTES: f64 = 1e9;
    let [encode, decode] = [encode.divide(BYTES)?, decode.divide(BYTES)?];
    let moved = ratio.divide(2.0 * BYTES / disk)?;
    let sum = |part: fn(&Spread) -> f64| part(&encode) + part(&decode) + part(&moved);
    Some(Spread {
        median: sum(|s| s.median),
        min: sum(|s| s.min),
        max: sum(|s| s.max),
        runs: encode.runs,
    })
}

/// What a store with each codec does on disks of several speeds.
fn disks(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Writing and reading fields over the speed of the disk",
        2,
        "Arrays of fields written to a store, synced, the last record read, then all of them; the disk is a model of so many \
                  MB/s in each direction. Throughput: bytes written and read, by the time of all.",
    );
    for (metric, name, y, scale) in [
        ("io_bytes_per_s", "throughput", "MB/s", 1e-6),
        ("io_time_s", "I/O time", "seconds", 1.0),
    ] {
        let cases = results.numbered_cases(BENCH, metric, DISKS);
        let mut curves = results.curves(BENCH, metric, &SUBJECTS, &cases);
        let values = curves.iter_mut().flat_map(|curve| &mut curve.1);
        values.for_each(|point| point.1 = point.1.times(scale));
        let ticks: Vec<_> = cases.iter().map(|c| (c.0, three_digits(c.0))).collect();
        let x = Axis::log_at("disk (MB/s)", ticks);
        let panel = Panel::of_curves(name, x, log_axis(y, &curves), curves);
        figure.add(format!("{metric} of e2e-..."), panel);
    }
    figure
}

fn min_max_average(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Minimum, maximum and average of every field (the paper's MMAT)",
        1,
        "All of each array is read from a store on a disk of 200 MB/s, and its least, largest and mean number are found.",
    );
    let found = |_: &(), who: &str| results.get(BENCH, "mmat-200", "io_time_s", who);
    let sets = bar_sets(&SUBJECTS, &[()], found);
    let panel = Panel::of_bars("I/O time", ("", "seconds"), 1.1, vec![String::new()], sets);
    figure.add("mmat-200", panel);
    figure
}

/// Ratio against speed of every codec, by folder.
fn ratio(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Ratio against speed of the codecs",
        2,
        "Geometric means over the arrays of each folder. Above and to the right is better. Containers of 1 MiB in pieces of 4 KiB that \
                  decode alone, one thread.",
    );
    for (folder, arrays) in [
        ("fields", "climate and weather fields"),
        ("checkpoints", "checkpoints of models"),
    ] {
        for (metric, verb) in [(ENCODE, "encoded"), (DECODE, "decoded")] {
            let point = |who: &str| {
                let speed = results.get(BENCH, folder, metric, who)?.median / 1e6;
                let ratio = results.get(BENCH, folder, "ratio", who)?;
                (speed > 0.0).then_some((speed, ratio))
            };
            let found: Vec<Curve> = curves(&SUBJECTS, |who| point(who).into_iter().collect());
            let speeds = || found.iter().flat_map(|curve| &curve.1).map(|point| point.0);
            let least = speeds().fold(f64::INFINITY, f64::min);
            let most = speeds().fold(0.0, f64::max);
            let panel = log_axis("ratio", &found).and_then(|y| {
                let x = Axis::log(&format!("{verb} MB/s"), least, most);
                Panel::of_curves(arrays, x, Some(y), found)
            });
            figure.add(format!("{metric} of {folder}"), panel);
        }
    }
    figure
}
