//! Arrays that look like fields, weights, tables and noise, and the codecs that are tested with them.
use forebay_codec::FieldCodec;
use forebay_codec::cost::Bandwidths;
use forebay_codec::general::{ByteCodec, GeneralCodec, PcoCodec, RawCodec};
use forebay_codec::xor::{ReferencePoints, XorCodec};
use forebay_codec::{Codec, ElementType};
use forebay_testkit::random::{Random, seeded_bytes};

/// Every codec, some with several settings.
pub fn codecs() -> Vec<Box<dyn Codec>> {
    let general = |codec, shuffle| Box::new(GeneralCodec { codec, shuffle });
    let xor = |points| Box::new(XorCodec { points });
    vec![
        Box::new(RawCodec),
        xor(ReferencePoints::Best(Bandwidths::both(1e9))),
        xor(ReferencePoints::Count(1)),
        xor(ReferencePoints::Count(3000)),
        general(ByteCodec::Zstd(3), false),
        general(ByteCodec::Zstd(1), true),
        general(ByteCodec::Lz4, false),
        general(ByteCodec::Lz4, true),
        Box::new(PcoCodec { level: 4 }),
        Box::new(FieldCodec),
    ]
}

/// The bytes of a number of this type, from an f64 that is rounded to it in some way.
pub fn element_bytes(element: ElementType, value: f64) -> Vec<u8> {
    match element {
        ElementType::F32 => (value as f32).to_le_bytes().to_vec(),
        ElementType::F64 => value.to_le_bytes().to_vec(),
        ElementType::Bf16 => (value as f32).to_le_bytes()[2..].to_vec(),
        ElementType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
    }
}

/// `len` bytes, of which whole elements begin at `phase`: one of several kinds of arrays.
pub fn array(
    random: &mut Random,
    element: ElementType,
    stride: usize,
    phase: u32,
    len: usize,
) -> Vec<u8> {
    let mut bytes = random.nonzero_bytes(phase as usize);
    let kind = random.index(7);
    let unit = |random: &mut Random| random.below(1 << 53) as f64 / (1u64 << 53) as f64;
    let (scale, step) = (10f64.powi(random.index(9) as i32 - 4), unit(random));
    let few: Vec<f64> = (0..20).map(|_| (unit(random) - 0.5) * 1e3).collect();
    let mut walk = vec![250.0; stride.clamp(1, 16)];
    let mut i = 0;
    while bytes.len() < len {
        let column = i % walk.len();
        let value = match kind {
            0 => 280.0 + scale * (i as f64 * step * 0.01).sin(),
            1 => {
                walk[column] += (unit(random) - 0.5) * scale;
                walk[column]
            }
            2 => (unit(random) + unit(random) + unit(random) - 1.5) * scale,
            3 => *random.pick(&few),
            4 => (i as f64 * step * 10.0).round() / 8.0,
            5 => scale,
            _ => {
                bytes.extend(seeded_bytes(random.next(), element.width()));
                i += 1;
                continue;
            }
        };
        bytes.extend(element_bytes(element, value));
        i += 1;
    }
    bytes.truncate(len);
    bytes
}

/// Arrays of the values that arithmetic would change or lose.
pub fn special(element: ElementType) -> Vec<(&'static str, Vec<u8>)> {
    const LEN: usize = 4096 + 1000;
    let size = element.width();
    let bits = 8 * size as u32;
    let (exponent, mantissa) = match element {
        ElementType::F32 => (8, 23),
        ElementType::F64 => (11, 52),
        ElementType::Bf16 => (8, 7),
        ElementType::F16 => (5, 10),
    };
    let infinity = ((1u64 << exponent) - 1) << mantissa;
    let sign = 1u64 << (bits - 1);
    let of = |value: &mut dyn FnMut(u64) -> u64| -> Vec<u8> {
        let values = (0..(LEN / size) as u64).map(value);
        values
            .flat_map(|v| v.to_le_bytes()[..size].to_vec())
            .collect()
    };
    let mut random = Random::new(9);
    let mut seeded = || random.next();
    let low = (1u64 << mantissa) - 1;
    let one = [
        0,
        sign,
        infinity,
        infinity | sign,
        infinity | 1,
        infinity | sign | low,
        1,
        sign | 1,
        low,
        low + 1,
        infinity - 1,
        (infinity - 1) | sign,
    ];
    let all = if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    vec![
        ("zeros", of(&mut |_| 0)),
        ("minus zeros", of(&mut |_| sign)),
        ("zeros of both signs", of(&mut |i| sign * (i % 3 % 2))),
        ("infinities", of(&mut |i| infinity | (sign * (i % 2)))),
        ("one NaN", of(&mut |_| infinity | 1)),
        (
            "NaNs with payloads",
            of(&mut |i| infinity | (sign * (i % 2)) | ((i * 0x9e37_79b9) & low).max(1)),
        ),
        (
            "denormals",
            of(&mut |i| ((i * 0x9e37_79b9) & low) | (sign * (i % 5 % 2))),
        ),
        ("ones", of(&mut |_| all)),
        (
            "every special value",
            of(&mut |i| one[i as usize % one.len()]),
        ),
        (
            "special values at random",
            of(&mut |_| one[seeded() as usize % one.len()]),
        ),
        ("every exponent", of(&mut |i| (i << mantissa) & all)),
        ("every bit", of(&mut |i| 1u64 << (i % u64::from(bits)))),
        (
            "growing widths",
            of(&mut |i| (1u64 << (i % u64::from(bits))) - 1),
        ),
        ("random bits", seeded_bytes(3, LEN)),
        (
            "a NaN among numbers",
            of(&mut |i| {
                if i == 700 {
                    infinity | 5
                } else {
                    infinity / 2 + i
                }
            }),
        ),
    ]
}
