//! Ratio, speeds and the time of one value of every codec, over each array of the datasets: medians of five.
//!
//! `cargo run --release -p forebay-codec --example codec_speed [array or codec, or a part of its name]...`
use forebay_codec::FieldCodec;
use forebay_codec::choose::{CodecChooser, CodecSpeeds, CostGoal, CostModel, choose};
use forebay_codec::container::{MAX_CONTAINER_LEN, PIECE_LEN};
use forebay_codec::cost::Bandwidths;
use forebay_codec::general::{ByteCodec, GeneralCodec, PcoCodec};
use forebay_codec::xor::{ReferencePoints, XorCodec};
use forebay_codec::{
    Codec, CodecHint, ElementLayout, ElementType, EncodedContainer, OpenedContainer,
};
use forebay_testkit::datasets::dataset;
use forebay_testkit::random::{Random, seeded_bytes};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

const RUNS: usize = 5;
/// Random values that are read in a run.
const VALUES: usize = 20_000;

struct Array {
    name: String,
    element: ElementType,
    bytes: Vec<u8>,
}

struct Measured {
    ratio: f64,
    encode: f64,
    decode: f64,
    value: f64,
}

fn codecs() -> Vec<(&'static str, Box<dyn Codec>)> {
    let general = |codec, shuffle| Box::new(GeneralCodec { codec, shuffle });
    let points = ReferencePoints::Best(Bandwidths::both(1e9));
    vec![
        ("field", Box::new(FieldCodec)),
        ("paper", Box::new(XorCodec { points })),
        ("zstd-3", general(ByteCodec::Zstd(3), false)),
        ("shuffle-zstd-3", general(ByteCodec::Zstd(3), true)),
        ("shuffle-zstd-1", general(ByteCodec::Zstd(1), true)),
        ("lz4", general(ByteCodec::Lz4, false)),
        ("shuffle-lz4", general(ByteCodec::Lz4, true)),
        ("pco-4", Box::new(PcoCodec { level: 4 })),
        ("pco-8", Box::new(PcoCodec { level: 8 })),
    ]
}

fn element(dtype: &str) -> Option<ElementType> {
    match dtype {
        "<f4" => Some(ElementType::F32),
        "<f8" => Some(ElementType::F64),
        "<f2" => Some(ElementType::F16),
        "bf16" => Some(ElementType::Bf16),
        _ => None,
    }
}

/// The arrays of a dataset: `NAME.bin.zst`, with its type in `NAME.json`.
fn arrays(folder: &str) -> Result<Vec<Array>, Box<dyn Error>> {
    let Some(dir) = dataset(folder) else {
        return Ok(Vec::new());
    };
    let mut arrays = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.to_str().and_then(|path| path.strip_suffix(".bin.zst")) else {
            continue;
        };
        let about = fs::read_to_string(format!("{name}.json"))?;
        let dtype = about.split("\"dtype\": \"").nth(1);
        let dtype = dtype.and_then(|rest| rest.split('"').next());
        let bytes = zstd::decode_all(fs::File::open(&path)?)?;
        arrays.push(Array {
            name: name.rsplit('/').next().unwrap_or(name).to_owned(),
            element: dtype.and_then(element).ok_or("an unknown type")?,
            bytes,
        });
    }
    arrays.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(arrays)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

/// What is chosen for each container, and how long choosing takes of encoding: with `chooser` sampled now and then, else each time.
fn measure_choices(array: &Array) -> Result<(), Box<dyn Error>> {
    let goals = [
        CostGoal::Bytes,
        CostGoal::Seconds(Bandwidths::both(2e8)),
        CostGoal::Seconds(Bandwidths::both(1e9)),
    ];
    for goal in goals {
        let model = CostModel {
            goal,
            speeds: CodecSpeeds::default(),
        };
        let mut out = EncodedContainer::new();
        let (mut choosing, mut sampling) = (Duration::ZERO, Duration::ZERO);
        let mut encoding = Duration::ZERO;
        let mut stored = 0;
        let mut last = None;
        for _ in 0..RUNS {
            let mut chooser = CodecChooser::new(CodecHint::default());
            stored = 0;
            for (k, raw) in array.bytes.chunks(MAX_CONTAINER_LEN).enumerate() {
                let at = (k * MAX_CONTAINER_LEN) as u64;
                let start = Instant::now();
                choose(at, raw, &CodecHint::default(), &model);
                sampling += start.elapsed();
                let start = Instant::now();
                let choice = chooser.next(at, raw, || model);
                choosing += start.elapsed();
                let start = Instant::now();
                choice.codec.encode(&choice.layout, raw, &mut out)?;
                encoding += start.elapsed();
                stored += out.stored_len();
                chooser.encoded(raw.len(), out.stored_len());
                last = Some((choice.codec.id().name(), choice.layout));
            }
        }
        let share = |time: Duration| 100.0 * time.as_secs_f64() / encoding.as_secs_f64();
        println!(
            "{:<32} {last:?} for {goal:?}: {:.3}, choosing {:.1} % of encoding, each container sampled {:.1} %",
            array.name,
            array.bytes.len() as f64 / stored as f64,
            share(choosing),
            share(sampling),
        );
    }
    Ok(())
}

fn measure(codec: &dyn Codec, array: &Array) -> Result<Measured, Box<dyn Error>> {
    let layout = ElementLayout {
        element: array.element,
        stride: 1,
        phase: 0,
        row: 0,
    };
    let containers: Vec<&[u8]> = array.bytes.chunks(MAX_CONTAINER_LEN).collect();
    let mut encoded = vec![EncodedContainer::new(); containers.len()];
    let mut times = Vec::new();
    for _ in 0..=RUNS {
        let start = Instant::now();
        for (raw, out) in containers.iter().zip(&mut encoded) {
            codec.encode(&layout, raw, out)?;
        }
        times.push(start.elapsed());
    }
    let encode = median(times.split_off(1));
    let mut decoded = vec![0; array.bytes.len()];
    let mut times = Vec::new();
    for _ in 0..=RUNS {
        let start = Instant::now();
        for (out, encoded) in decoded.chunks_mut(MAX_CONTAINER_LEN).zip(&encoded) {
            let opened = OpenedContainer::open(encoded.head())?;
            for (k, out) in out.chunks_mut(PIECE_LEN).enumerate() {
                opened.decode_piece(k, encoded.piece(k), out)?;
            }
        }
        times.push(start.elapsed());
    }
    assert!(decoded == array.bytes, "{} differs", array.name);
    let decode = median(times.split_off(1));
    let opened: Result<Vec<OpenedContainer>, _> = encoded
        .iter()
        .map(|c| OpenedContainer::open(c.head()))
        .collect();
    let opened = opened?;
    let size = array.element.width();
    let mut times = Vec::new();
    for run in 0..RUNS as u64 {
        let mut random = Random::new(run);
        let start = Instant::now();
        for _ in 0..VALUES {
            let at = random.index(array.bytes.len() / size) * size;
            let (container, at) = (at / MAX_CONTAINER_LEN, at % MAX_CONTAINER_LEN);
            let (piece, at) = (at / PIECE_LEN, at % PIECE_LEN);
            let mut value = [0; 8];
            let bytes = encoded[container].piece(piece);
            opened[container].decode_range(piece, bytes, at..at + size, &mut value[..size])?;
            std::hint::black_box(value);
        }
        times.push(start.elapsed());
    }
    let stored: usize = encoded.iter().map(EncodedContainer::stored_len).sum();
    let raw = array.bytes.len() as f64;
    Ok(Measured {
        ratio: raw / stored as f64,
        encode: raw / encode,
        decode: raw / decode,
        value: median(times) / VALUES as f64,
    })
}

fn print(array: &str, codec: &str, m: &Measured) {
    println!(
        "{array:<32} {codec:<16} {:>7.3} {:>8.0} {:>8.0} {:>8.0}",
        m.ratio,
        m.encode / 1e6,
        m.decode / 1e6,
        m.value * 1e9
    );
}

fn geometric_mean(all: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    (all.iter().map(|m| of(m).ln()).sum::<f64>() / all.len() as f64).exp()
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let random = Array {
        name: "random".into(),
        element: ElementType::F32,
        bytes: seeded_bytes(1, 4 << 20),
    };
    println!(
        "array                            codec              ratio  enc MB/s dec MB/s value ns"
    );
    for (folder, arrays) in [
        ("fields", arrays("data/fields")?),
        ("checkpoints", arrays("data/checkpoints")?),
        ("random", vec![random]),
    ] {
        for array in &arrays {
            if wanted.is_empty()
                || wanted
                    .iter()
                    .any(|part| array.name.contains(part) || part == "auto")
            {
                measure_choices(array)?;
            }
        }
        for (name, codec) in codecs() {
            let mut all = Vec::new();
            for array in &arrays {
                let named = |part: &String| array.name.contains(part) || name == part;
                if wanted.is_empty() || wanted.iter().any(named) {
                    let measured = measure(&*codec, array)?;
                    print(&array.name, name, &measured);
                    all.push(measured);
                }
            }
            if all.len() > 1 {
                let mean = Measured {
                    ratio: geometric_mean(&all, |m| m.ratio),
                    encode: geometric_mean(&all, |m| m.encode),
                    decode: geometric_mean(&all, |m| m.decode),
                    value: geometric_mean(&all, |m| m.value),
                };
                print(&format!("= {folder}"), name, &mean);
            }
        }
    }
    Ok(())
}
