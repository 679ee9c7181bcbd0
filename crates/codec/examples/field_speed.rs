//! The `field` codec on the arrays of the study: ratio, encode and decode speed, and the time of one value at a random place.
//!
//! ```sh
//! cargo run --release -p forebay-codec --example field_speed [-- NAME]
//! ```
//! Arrays are those of `fields` and `checkpoints` in `../shared/data`, or where `FOREBAY_SHARED` says. With a name, those alone whose
//! names contain it. Each number is the best of some runs on one core.
use forebay_codec::element::{ElementLayout, ElementType};
use forebay_codec::field::{CONTAINER, Encoded, FieldDecoder, SPAN, encode, encode_against};
use forebay_testkit::datasets::dataset;
use forebay_testkit::random::Random;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ratios of the study: shuffle + zstd -3 over the whole array, and pco at level 8.
const STUDY: [(&str, f64, f64); 7] = [
    ("a1b_air_temperature", 1.81, 1.92),
    ("glosea4_surface_temperature_a", 2.13, 2.37),
    ("colpex_potential_temperature", 1.88, 1.99),
    ("ostia_surface_temperature", 2.41, 2.70),
    ("ncep_uwnd", 1.36, 1.69),
    ("orca2_lat_bounds", 4.28, 12.43),
    ("gfs_temperature", 4.94, 12.45),
];

fn read_array(path: &Path) -> Vec<u8> {
    let packed = std::fs::read(path).expect("an array can be read");
    let mut raw = Vec::new();
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("an array is packed by zstd");
    decoder
        .read_to_end(&mut raw)
        .expect("an array can be unpacked");
    raw
}

fn element(name: &str) -> ElementType {
    match name {
        n if n.ends_with("bf16") => ElementType::Bf16,
        n if n.ends_with("f16") => ElementType::F16,
        "orca2_lat_bounds" | "gfs_temperature" => ElementType::F64,
        _ => ElementType::F32,
    }
}

/// The shortest of some runs.
fn fastest(mut run: impl FnMut()) -> Duration {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 5 || begun.elapsed() < Duration::from_millis(400) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
        runs += 1;
    }
    best
}

struct Measured {
    ratio: f64,
    encode: f64,
    decode: f64,
}

fn measure(name: &str, layout: &ElementLayout, raw: &[u8], base: Option<&[u8]>) -> Measured {
    let containers: Vec<&[u8]> = raw.chunks(CONTAINER).collect();
    let bases: Vec<&[u8]> = base.map_or(Vec::new(), |b| b.chunks(CONTAINER).collect());
    let mut encoded: Vec<Encoded> = vec![Encoded::default(); containers.len()];
    let encode_time = fastest(|| {
        for (i, (src, out)) in containers.iter().zip(&mut encoded).enumerate() {
            match bases.get(i) {
                Some(base) => encode_against(base, layout, src, out),
                None => encode(layout, src, out),
            }
            .expect("a container is not too long");
        }
    });
    let len: usize = encoded.iter().map(Encoded::total_len).sum();
    let opened: Vec<FieldDecoder> = encoded
        .iter()
        .map(|e| FieldDecoder::parse(&e.head).expect("a head is parsed"))
        .collect();
    let base_of = |i: usize, span: usize, len: usize| {
        bases.get(i).map_or(&[][..], |b| &b[span * SPAN..][..len])
    };
    let mut out = vec![0; raw.len()];
    let decode_time = fastest(|| {
        for (i, (out, opened)) in out.chunks_mut(CONTAINER).zip(&opened).enumerate() {
            for (span, out) in out.chunks_mut(SPAN).enumerate() {
                let base = base_of(i, span, out.len());
                opened
                    .decode_span_against(encoded[i].span(span), span, base, out)
                    .expect("a span is decoded");
            }
        }
    });
    assert!(out == raw, "{name} does not come back");
    let width = layout.element.width();
    let mut random = Random::new(1);
    let mut times = Vec::new();
    for _ in 0..20_000 {
        let at = random.index(raw.len() / width) * width;
        let (i, rest) = (at / CONTAINER, at % CONTAINER);
        let (span, rest) = (rest / SPAN, rest % SPAN);
        let mut value = [0; 8];
        let base = base_of(i, span, opened[i].span_len(span));
        let start = Instant::now();
        let value = &mut value[..width];
        opened[i]
            .decode_range_against(encoded[i].span(span), span, rest..rest + width, base, value)
            .expect("a value is decoded");
        times.push(start.elapsed());
        assert!(
            *value == raw[at..at + width],
            "a value of {name} does not come back"
        );
    }
    times.sort();
    let measured = Measured {
        ratio: raw.len() as f64 / len as f64,
        encode: raw.len() as f64 / encode_time.as_secs_f64() / 1e9,
        decode: raw.len() as f64 / decode_time.as_secs_f64() / 1e9,
    };
    let study = STUDY.iter().find(|(n, ..)| *n == name);
    let study = study.map_or(String::new(), |(_, zstd, pco)| {
        format!("{zstd:6.2} {pco:6.2}")
    });
    println!(
        "{name:32} {:7.3} {study:13} {:6.2} {:6.2} {:5} {:5}  {:?}",
        measured.ratio,
        measured.encode,
        measured.decode,
        times[times.len() / 2].as_nanos(),
        times[times.len() * 99 / 100].as_nanos(),
        opened[0]
    );
    measured
}

fn geometric_mean(of: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = of.clone().count().max(1) as f64;
    (of.map(f64::ln).sum::<f64>() / n).exp()
}

/// Weights as bfloat16, rounded to nearest, and the same after some steps of the size that Adam takes.
fn steps_apart(weights: &[u8]) -> [Vec<u8>; 4] {
    let mut random = Random::new(2);
    let rounded = |f: f32| ((f.to_bits() + 0x7fff + (f.to_bits() >> 16 & 1)) >> 16) as u16;
    let mut made = [const { Vec::new() }; 4];
    for word in weights.as_chunks().0 {
        let before = f32::from_le_bytes(*word);
        // The sum of 100 steps of about 1e-5, mostly of changing sign.
        let normal: f32 = (0..12)
            .map(|_| random.below(1 << 20) as f32 / (1 << 20) as f32)
            .sum::<f32>()
            - 6.0;
        let after = before + normal * 1e-4;
        made[0].extend(rounded(before).to_le_bytes());
        made[1].extend(rounded(after).to_le_bytes());
        made[2].extend(before.to_le_bytes());
        made[3].extend(after.to_le_bytes());
    }
    made
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    println!(
        "{:32} {:>7} {:>6} {:>6} {:>6} {:>6} {:>5} {:>5}",
        "array", "ratio", "zstd-3", "pco-8", "enc", "dec", "one", "p99"
    );
    for folder in ["data/fields", "data/checkpoints"] {
        let Some(dir) = dataset(folder) else { continue };
        let mut names: Vec<String> = std::fs::read_dir(&dir)
            .expect("a folder can be read")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".bin.zst")?.to_string()))
            .filter(|name| name.contains(&only))
            .collect();
        names.sort();
        let mut all = Vec::new();
        for name in names {
            let raw = read_array(&dir.join(format!("{name}.bin.zst")));
            all.push(measure(
                &name,
                &ElementLayout::plain(element(&name)),
                &raw,
                None,
            ));
            if name == "speaker_weights" {
                let [before, after, before32, after32] = steps_apart(&raw);
                measure(
                    "bf16 against base",
                    &ElementLayout::plain(ElementType::Bf16),
                    &after,
                    Some(&before),
                );
                measure(
                    "f32 against base",
                    &ElementLayout::plain(ElementType::F32),
                    &after32,
                    Some(&before32),
                );
            }
        }
        println!(
            "{folder:32} {:7.3} {:13} {:6.2} {:6.2}",
            geometric_mean(all.iter().map(|m| m.ratio)),
            "",
            geometric_mean(all.iter().map(|m| m.encode)),
            geometric_mean(all.iter().map(|m| m.decode)),
        );
    }
}
