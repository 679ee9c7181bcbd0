//! What is chosen: by the bytes alone, by hints, and as the store is slower or faster.
use crate::arrays::element_bytes;
use forebay_codec::choose::{CodecChoice, CodecSpeeds, CostGoal, CostModel, choose};
use forebay_codec::cost::Bandwidths;
use forebay_codec::{Codec, CodecId, ElementType};
use forebay_testkit::random::{Random, seeded_bytes};

const BYTES: CostModel = CostModel {
    goal: CostGoal::Bytes,
    speeds: CodecSpeeds::DEFAULT,
};

fn seconds(bandwidth: f64) -> CostModel {
    CostModel {
        goal: CostGoal::Seconds(Bandwidths::both(bandwidth)),
        ..BYTES
    }
}

fn chosen(at: u64, raw: &[u8], hint: &str, model: &CostModel) -> CodecChoice {
    choose(at, raw, &hint.parse().unwrap(), model)
}

fn numbers(element: ElementType, n: usize, value: impl FnMut(usize) -> f64) -> Vec<u8> {
    (0..n)
        .map(value)
        .flat_map(|v| element_bytes(element, v))
        .collect()
}

/// A smooth field with some noise.
fn field(element: ElementType, n: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    numbers(element, n, |i| {
        20.0 * (i as f64 * 1e-2).sin() + random.below(1000) as f64 * 1e-5
    })
}

/// Weights: a normal distribution around zero.
fn weights(element: ElementType, n: usize) -> Vec<u8> {
    let mut random = Random::new(2);
    numbers(element, n, |_| {
        let sum: f64 = (0..12)
            .map(|_| random.below(1 << 32) as f64 / 4294967296.0)
            .sum();
        (sum - 6.0) * 0.02
    })
}

#[test]
fn the_type_of_fields_and_weights_is_found() {
    for element in ElementType::ALL {
        for (name, raw) in [
            ("field", field(element, 100_000)),
            ("weights", weights(element, 100_000)),
        ] {
            let choice = chosen(0, &raw, "auto", &BYTES);
            let found = choice.layout.element;
            // Differences of both types of 16 bits are the same.
            let same_integers = name == "field" && found.width() == element.width();
            assert!(found == element || same_integers, "{name}: {choice:?}");
            assert_eq!(
                (choice.layout.stride, choice.layout.phase),
                (1, 0),
                "{name}: {choice:?}"
            );
        }
    }
}

#[test]
fn the_stride_of_records_is_found() {
    let raw = numbers(ElementType::F32, 90_000, |i| match i % 3 {
        0 => 250.0 + (i as f64 * 1e-4).sin(),
        1 => -1e-5 * (2.0 + (i as f64 * 2e-4).cos()),
        _ => 1e8 + i as f64,
    });
    let layout = chosen(0, &raw, "auto", &BYTES).layout;
    assert!(
        layout.element == ElementType::F32 && layout.stride.is_multiple_of(3),
        "{layout:?}"
    );
}

#[test]
fn numbers_begin_where_the_file_or_its_bytes_say() {
    let raw = field(ElementType::F64, 50_000);
    for at in [0u64, 3, 8, 13, 1 << 40] {
        let from = &raw[(at % 8) as usize..];
        let layout = chosen(at, from, "auto", &BYTES).layout;
        assert_eq!(
            (layout.element, (at + u64::from(layout.phase)) % 8),
            (ElementType::F64, 0)
        );
    }
    let behind_a_head: Vec<u8> = seeded_bytes(1, 5).into_iter().chain(raw).collect();
    let layout = chosen(0, &behind_a_head, "auto", &BYTES).layout;
    assert_eq!((layout.element, layout.phase), (ElementType::F64, 5));
}

#[test]
fn few_distinct_values_get_a_dictionary_although_a_sample_is_too_short_for_one() {
    let mut random = Random::new(5);
    let mut step = 600.0;
    let raw = numbers(ElementType::F64, 1 << 17, |_| {
        step = (step + random.below(41) as f64 - 20.0).clamp(0.0, 1200.0);
        187.3 + 0.1 * step
    });
    for hint in ["auto", "auto,f64"] {
        let choice = chosen(0, &raw, hint, &BYTES);
        assert_eq!(choice.codec.id(), CodecId::Field, "{hint}");
        assert!(choice.expected < 0.15, "{hint}: {choice:?}");
    }
}

#[test]
fn few_values_in_no_order_get_a_dictionary_too() {
    let mut random = Random::new(6);
    let values: Vec<f64> = (0..300)
        .map(|_| random.below(1 << 52) as f64 * 1e-3)
        .collect();
    let raw = numbers(ElementType::F64, 1 << 17, |_| *random.pick(&values));
    let choice = chosen(0, &raw, "auto,f64", &BYTES);
    assert_eq!(choice.codec.id(), CodecId::Field);
    assert!(choice.expected < 0.2, "{choice:?}");
}

#[test]
fn many_interleaved_series_are_shuffled() {
    let raw = numbers(ElementType::F32, 1 << 18, |i| {
        let (series, time) = (i % 40, i / 40);
        (series as f64 + 1.5).exp2() * (1.0 + 1e-4 * (time as f64 * 1e-3).sin())
    });
    let choice = chosen(0, &raw, "auto,f32", &BYTES);
    assert_eq!(choice.codec.id(), CodecId::ShuffleZstd, "{choice:?}");
}

#[test]
fn noise_stays_raw_and_text_is_not_numbers() {
    for model in [BYTES, seconds(1e8)] {
        let noise = chosen(0, &seeded_bytes(3, 1 << 20), "auto", &model);
        assert_eq!(noise.codec.id(), CodecId::Raw);
    }
    let mut random = Random::new(4);
    let words = [
        "storage ",
        "of ",
        "the ",
        "node ",
        "is ",
        "local ",
        "and\n",
        "fast ",
        "checkpoint ",
    ];
    let text: String = (0..50_000).map(|_| *random.pick(&words)).collect();
    let choice = chosen(0, text.as_bytes(), "auto", &BYTES);
    assert_eq!(choice.codec.id(), CodecId::Zstd);
}

#[test]
fn a_fast_store_gets_faster_codecs() {
    let raw = field(ElementType::F32, 200_000);
    assert_eq!(
        chosen(0, &raw, "auto", &seconds(5e7)).codec.id(),
        CodecId::Field
    );
    assert_eq!(
        chosen(0, &raw, "auto", &seconds(1e11)).codec.id(),
        CodecId::Raw
    );
}

#[test]
fn a_hint_is_followed() {
    let raw = field(ElementType::F32, 100_000);
    for (hint, id) in [
        ("raw", CodecId::Raw),
        ("xor", CodecId::Xor),
        ("field,f64,stride=7,row=11", CodecId::Field),
        ("zstd", CodecId::ShuffleZstd),
        ("lz4", CodecId::ShuffleLz4),
        ("pco", CodecId::Pco),
    ] {
        let choice = chosen(0, &raw, hint, &BYTES);
        assert_eq!(choice.codec.id(), id, "{hint}");
        if hint.contains("f64") {
            let layout = choice.layout;
            assert_eq!(
                (layout.element, layout.stride, layout.row),
                (ElementType::F64, 7, 11)
            );
        }
    }
}

#[test]
fn anything_is_chosen_for() {
    for len in [0, 1, 7, 100, 4095, 4096, 5000, 20_000] {
        for hint in [
            "auto",
            "zstd",
            "lz4",
            "field,f64,stride=4294967295",
            "auto,bf16",
        ] {
            for model in [BYTES, seconds(1e9), seconds(0.0), seconds(f64::INFINITY)] {
                chosen(u64::MAX, &seeded_bytes(1, len), hint, &model);
                chosen(1, &vec![0; len], hint, &model);
            }
        }
    }
}
