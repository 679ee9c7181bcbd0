//! Containers of any bytes and layouts come back, whole and in parts.
use super::*;
use crate::OpenedContainer;
use crate::container::{Codec, EncodedContainer, MAX_CONTAINER_LEN, PIECE_LEN};
use crate::element::{ElementLayout, ElementType};
use crate::error::CodecError;
use forebay_testkit::random::Random;
use forebay_testkit::seeds::for_each_seed;

/// Bytes that show what a layout can do with them: smooth, rough, of few values, of special values, random, in pieces.
pub(super) fn random_bytes(random: &mut Random, element: ElementType, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let (mut kind, mut value, mut slope) = (random.index(8), 0.0f64, 0.0);
    let zeros = if random.chance(30) {
        random.below(40)
    } else {
        0
    };
    while bytes.len() < len {
        if random.chance(1) && random.chance(20) {
            kind = random.index(8);
        }
        let noise = random.below(1 << 20) as f64 / (1 << 20) as f64 - 0.5;
        slope = slope * 0.9 + noise;
        value += slope;
        let special = [
            0,
            1 << 63,
            0x7ff0 << 48,
            0xfff0 << 48,
            random.next() | 0x7ff0 << 48,
            1,
            u64::MAX,
        ];
        let number = match kind {
            0 => value,
            1 => value * noise,
            2 => (random.below(9) as f64) / 3.0,
            3 => noise * noise * noise,
            4 => 0.0,
            _ => f64::from_bits(random.next()),
        };
        let mut bits = match element {
            ElementType::F64 => number.to_bits(),
            ElementType::F32 => (number as f32).to_bits().into(),
            ElementType::Bf16 => u64::from((number as f32).to_bits() >> 16),
            ElementType::F16 => u64::from((number as f32).to_bits() >> 14 & 0xffff),
        };
        if kind == 6 && random.chance(50) {
            bits = *random.pick(&special) >> (64 - 8 * element.width());
        }
        bits = bits >> zeros << zeros;
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.width()]);
    }
    bytes.truncate(len);
    bytes
}

pub(super) fn random_layout(random: &mut Random, element: ElementType) -> ElementLayout {
    ElementLayout {
        element,
        stride: *random.pick(&[0, 1, 1, 1, 2, 3, 5, 31, 33, 100, 200, 4000]),
        phase: *random.pick(&[0, 0, 0, 1, 2, 3, 5, 7, 100]),
        row: random.below(300) as u32,
    }
}

fn random_len(random: &mut Random) -> usize {
    match random.index(6) {
        0 => random.index(40),
        1 => random.index(3 * PIECE_LEN),
        2 => (PIECE_LEN * random.index(5) + 9).saturating_sub(random.index(18)),
        3 => random.index(20 * PIECE_LEN),
        4 => PIECE_LEN * random.index(40),
        _ => random.index(60 * PIECE_LEN),
    }
}

/// Decodes all pieces.
pub(super) fn decode(encoded: &EncodedContainer, base: &[u8]) -> Result<Vec<u8>, CodecError> {
    let opened = OpenedContainer::open(encoded.head())?;
    let mut raw = vec![0; opened.raw_len()];
    for (i, out) in raw.chunks_mut(PIECE_LEN).enumerate() {
        let base = match base {
            [] => base,
            base => &base[i * PIECE_LEN..][..out.len()],
        };
        opened.decode_piece_against(i, encoded.piece(i), base, out)?;
    }
    Ok(raw)
}

fn check(layout: &ElementLayout, raw: &[u8], base: Option<&[u8]>, random: &mut Random) {
    let mut encoded = EncodedContainer::new();
    match base {
        Some(base) => FieldCodec.encode_against(base, layout, raw, &mut encoded),
        None => FieldCodec.encode(layout, raw, &mut encoded),
    }
    .unwrap();
    let base = base.unwrap_or_default();
    assert!(
        encoded.encoded_len() <= raw.len() + 16,
        "{} for {}",
        encoded.encoded_len(),
        raw.len()
    );
    assert!(decode(&encoded, base).unwrap() == raw, "{layout:?}");
    let opened = OpenedContainer::open(encoded.head()).unwrap();
    for _ in 0..if raw.is_empty() { 0 } else { 20 } {
        let i = random.index(encoded.pieces());
        let raw = &raw[i * PIECE_LEN..][..opened.piece_len(i)];
        let base = match opened.has_base() {
            true => &base[i * PIECE_LEN..][..raw.len()],
            false => &[],
        };
        let from = random.index(raw.len());
        let to = from + *random.pick(&[0, 1, 4, 8, 100, 1000, 4096]);
        let range = from..to.min(raw.len());
        let mut out = vec![0; range.len()];
        opened
            .decode_range_against(i, encoded.piece(i), range.clone(), base, &mut out)
            .unwrap();
        assert!(
            out == raw[range.clone()],
            "{range:?} of piece {i} of {layout:?}"
        );
    }
}

#[test]
fn any_bytes_come_back_whole_and_in_parts_by_any_layout() {
    for_each_seed("field_round_trips", (400, 40_000), |seed| {
        let mut random = Random::new(seed);
        let element = *random.pick(&ElementType::ALL);
        let len = random_len(&mut random);
        let raw = random_bytes(&mut random, element, len);
        // A hint that is wrong in one of three cases.
        let hint = if random.chance(33) {
            *random.pick(&ElementType::ALL)
        } else {
            element
        };
        let layout = random_layout(&mut random, hint);
        check(&layout, &raw, None, &mut random);
        let mut base = raw.clone();
        for byte in &mut base {
            if random.chance(20) {
                *byte = byte.wrapping_add(random.below(3) as u8);
            }
        }
        check(&layout, &raw, Some(&base), &mut random);
    });
}

/// The bytes of an array of the study and its type.
fn array(folder: &str, name: &str) -> Option<Vec<u8>> {
    let dir = forebay_testkit::datasets::dataset(folder)?;
    let packed = std::fs::read(dir.join(format!("{name}.bin.zst"))).unwrap();
    let mut raw = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap();
    std::io::Read::read_to_end(&mut decoder, &mut raw).unwrap();
    Some(raw)
}

fn encoded_len(layout: &ElementLayout, raw: &[u8]) -> usize {
    let mut len = 0;
    for part in raw.chunks(MAX_CONTAINER_LEN) {
        let mut encoded = EncodedContainer::new();
        FieldCodec.encode(layout, part, &mut encoded).unwrap();
        assert!(decode(&encoded, &[]).unwrap() == part);
        len += encoded.stored_len();
    }
    len
}

#[test]
fn real_fields_shrink_as_far_as_promised() {
    use ElementType::{F32, F64};
    // The last number is the ratio of byte shuffle and zstd -3 over the whole array.
    let fields = [
        ("a1b_air_temperature", F32, 1.81),
        ("glosea4_surface_temperature_a", F32, 2.13),
        ("colpex_potential_temperature", F32, 1.88),
        ("ostia_surface_temperature", F32, 2.41),
        ("ncep_uwnd", F32, 1.36),
        ("orca2_lat_bounds", F64, 4.28),
        ("gfs_temperature", F64, 4.94),
    ];
    let mut logs = 0.0;
    for (name, element, shuffled) in fields {
        let Some(raw) = array("data/fields", name) else {
            return;
        };
        let ratio = raw.len() as f64 / encoded_len(&ElementLayout::plain(element), &raw) as f64;
        println!("{name}: {ratio:.3}");
        assert!(ratio >= 1.03 * shuffled, "{name}: {ratio}");
        logs += ratio.ln() / fields.len() as f64;
    }
    // 0.95 of pco at level 8; what is measured is 3.6.
    assert!(logs.exp() >= 0.95 * 3.50, "{}", logs.exp());
}

#[test]
fn real_checkpoints_shrink_as_far_as_promised() {
    let mut all = (0, 0);
    for name in ["speaker_weights", "speaker_exp_avg", "speaker_exp_avg_sq"] {
        let Some(raw) = array("data/checkpoints", name) else {
            return;
        };
        all.0 += raw.len();
        all.1 += encoded_len(&ElementLayout::plain(ElementType::F32), &raw);
    }
    assert!(all.0 as f64 >= 1.2 * all.1 as f64, "{all:?}");
    let Some(raw) = array("data/checkpoints", "speaker_weights_bf16") else {
        return;
    };
    let ratio =
        raw.len() as f64 / encoded_len(&ElementLayout::plain(ElementType::Bf16), &raw) as f64;
    assert!(ratio >= 1.45, "{ratio}");
}

#[test]
fn the_row_before_makes_a_field_shorter_if_the_layout_names_it() {
    let Some(raw) = array("data/fields", "a1b_air_temperature") else {
        return;
    };
    let plain = ElementLayout::plain(ElementType::F32);
    let rows = ElementLayout { row: 49, ..plain };
    let (without, with) = (encoded_len(&plain, &raw), encoded_len(&rows, &raw));
    assert!(with * 102 < without * 100, "{with} of {without}");
}

#[test]
fn a_row_of_more_than_half_a_piece_changes_nothing() {
    let wave: Vec<u8> = (0..9000)
        .flat_map(|i| (280.0 + (i as f32 * 0.01).sin()).to_le_bytes())
        .collect();
    let plain = ElementLayout::plain(ElementType::F32);
    let rows = ElementLayout { row: 513, ..plain };
    assert_eq!(encoded_len(&plain, &wave), encoded_len(&rows, &wave));
}

#[test]
fn a_stride_of_any_length_that_a_piece_holds_is_used() {
    let mut random = Random::new(3);
    // Series of far apart values, each of which changes little.
    for stride in [5usize, 33, 40, 100, 200, 500] {
        let mut series: Vec<f32> = (0..stride).map(|i| (i as f32 * 1.7).exp2() % 1e6).collect();
        let raw: Vec<u8> = (0..100 * 1024)
            .flat_map(|i| {
                let value = &mut series[i % stride];
                *value += *value * random.below(100) as f32 * 1e-6;
                value.to_le_bytes()
            })
            .collect();
        let plain = ElementLayout::plain(ElementType::F32);
        let strided = ElementLayout {
            stride: stride as u32,
            ..plain
        };
        let (without, with) = (encoded_len(&plain, &raw), encoded_len(&strided, &raw));
        assert!(with * 10 < without * 9, "{stride}: {with} of {without}");
    }
}

#[test]
fn another_base_of_the_same_length_is_refused() {
    let mut random = Random::new(4);
    let base = random_bytes(&mut random, ElementType::F32, 3 * PIECE_LEN + 100);
    let mut raw = base.clone();
    raw.iter_mut().step_by(40).for_each(|byte| *byte ^= 1);
    let layout = ElementLayout::plain(ElementType::F32);
    let mut encoded = EncodedContainer::new();
    FieldCodec
        .encode_against(&base, &layout, &raw, &mut encoded)
        .unwrap();
    assert!(OpenedContainer::open(encoded.head()).unwrap().has_base());
    assert_eq!(decode(&encoded, &base), Ok(raw.clone()));
    for at in [0, PIECE_LEN + 7, base.len() - 1] {
        let mut other = base.clone();
        other[at] ^= 4;
        assert_eq!(decode(&encoded, &other), Err(CodecError::OtherBase));
    }
    let short = FieldCodec.encode_against(&base[1..], &layout, &raw, &mut encoded);
    assert!(matches!(short, Err(CodecError::WrongBase { .. })));
}

#[test]
fn an_error_has_what_the_codec_says_as_its_source() {
    use std::error::Error;
    let wave: Vec<u8> = (0..2000)
        .flat_map(|i| (280.0 + (i as f32 * 0.01).sin()).to_le_bytes())
        .collect();
    let layout = ElementLayout::plain(ElementType::F32);
    let mut encoded = EncodedContainer::new();
    FieldCodec.encode(&layout, &wave, &mut encoded).unwrap();
    let head = encoded.head();
    let cut = OpenedContainer::open(&head[..head.len() - 1]).unwrap_err();
    assert_eq!(
        cut.source().map(ToString::to_string),
        Some(FieldError::Truncated.to_string())
    );
    let opened = OpenedContainer::open(head).unwrap();
    let piece = &encoded.piece(0)[..100];
    let cut = opened
        .decode_piece(0, piece, &mut [0; PIECE_LEN])
        .unwrap_err();
    let source = cut.source().map(ToString::to_string);
    assert_eq!(source, Some(FieldError::Truncated.to_string()));
}
