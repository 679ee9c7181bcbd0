//! Containers of every codec come back as they were, whole, by piece and by range, whatever their layout says.
use crate::arrays::{self, codecs};
use forebay_codec::container::{MAX_CONTAINER_LEN, MAX_HEAD_LEN, PIECE_LEN, piece_count};
use forebay_codec::general::RawCodec;
use forebay_codec::{
    Codec, CodecError, CodecId, ElementLayout, ElementType, EncodedContainer, OpenedContainer,
    StoredForm,
};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::for_each_seed;

fn layout(element: ElementType, stride: u32, phase: u32) -> ElementLayout {
    ElementLayout {
        element,
        stride,
        phase,
        row: 0,
    }
}

/// Encodes, and decodes all that there is to decode.
fn check(codec: &dyn Codec, layout: &ElementLayout, raw: &[u8], random: &mut Random) {
    let mut encoded = EncodedContainer::new();
    codec.encode(layout, raw, &mut encoded).unwrap();
    let what = format!("{codec:?} of {} bytes, {layout:?}", raw.len());
    assert!(encoded.encoded_len() <= MAX_HEAD_LEN + raw.len(), "{what}");
    assert_eq!(encoded.pieces(), piece_count(raw.len()), "{what}");
    let opened = OpenedContainer::open(encoded.head()).unwrap();
    assert_eq!((opened.codec(), opened.layout()), (codec.id(), layout));
    assert_eq!(
        (opened.raw_len(), opened.pieces()),
        (raw.len(), encoded.pieces())
    );
    for (k, expected) in raw.chunks(PIECE_LEN).enumerate() {
        assert_eq!(opened.piece_len(k), expected.len(), "{what}");
        let piece = encoded.piece(k);
        assert!(piece.len() <= expected.len(), "{what}: piece {k}");
        let mut out = vec![0xa5; expected.len()];
        opened.decode_piece(k, piece, &mut out).unwrap();
        assert!(out == expected, "{what}: piece {k}");
        for i in 0..5 {
            let start = random.index(expected.len() + 1);
            let most = if i == 0 { 8 } else { expected.len() };
            let range = start..start + random.index(most.min(expected.len() - start) + 1);
            let mut out = vec![0x5a; range.len()];
            opened
                .decode_range(k, piece, range.clone(), &mut out)
                .unwrap();
            assert!(
                out == expected[range.clone()],
                "{what}: {range:?} of piece {k}"
            );
        }
    }
}

/// A container of a full MiB, of which a tenth or so are numbers that a dictionary would hold: more of them than fit into a head.
#[test]
fn sparse_numbers_that_fill_a_dictionary_come_back() {
    let mut random = Random::new(8);
    for percent in [3, 8, 10, 12, 14] {
        let number = |random: &mut Random| match random.below(100) < percent {
            true => random.below(1 << 52) as f64 / 7.0,
            false => 0.0,
        };
        let raw: Vec<u8> = (0..MAX_CONTAINER_LEN / 8)
            .flat_map(|_| number(&mut random).to_le_bytes())
            .collect();
        for codec in codecs() {
            check(&*codec, &layout(ElementType::F64, 1, 0), &raw, &mut random);
        }
    }
}

#[test]
fn every_codec_type_stride_phase_and_length_comes_back() {
    let lens = [
        0,
        1,
        2,
        3,
        7,
        8,
        9,
        15,
        63,
        64,
        65,
        1000,
        PIECE_LEN - 1,
        PIECE_LEN,
        PIECE_LEN + 1,
        PIECE_LEN + 8,
        2 * PIECE_LEN - 3,
        3 * PIECE_LEN + 17,
    ];
    let mut random = Random::new(1);
    for codec in codecs() {
        for element in ElementType::ALL {
            for len in lens {
                for stride in [1, 2, 3, 7, 64, 65, 1000, u32::MAX] {
                    let phase = random.index(element.width()) as u32;
                    let raw = arrays::array(&mut random, element, stride as usize, phase, len);
                    check(&*codec, &layout(element, stride, phase), &raw, &mut random);
                }
                for phase in 0..element.width() as u32 {
                    let raw = arrays::array(&mut random, element, 1, phase, len);
                    check(&*codec, &layout(element, 1, phase), &raw, &mut random);
                }
            }
        }
    }
}

#[test]
fn special_values_come_back_bit_for_bit() {
    let mut random = Random::new(2);
    for element in ElementType::ALL {
        for (name, raw) in arrays::special(element) {
            println!("{name} as {element:?}");
            for codec in codecs() {
                check(&*codec, &layout(element, 1, 0), &raw, &mut random);
                check(&*codec, &layout(element, 3, 1), &raw, &mut random);
            }
        }
    }
}

#[test]
fn random_arrays_of_each_type_come_back() {
    let codecs = codecs();
    // Each seed is an array of each type for each codec.
    for_each_seed("codec_arrays", (60, 10_000), |seed| {
        let mut random = Random::new(seed);
        for codec in &codecs {
            for element in ElementType::ALL {
                let stride = *random.pick(&[1, 1, 1, 2, 3, 8, 100]);
                let phase = random.index(element.width()) as u32;
                let bits = 4 + random.index(13);
                let len = random.index(1 << bits);
                let raw = arrays::array(&mut random, element, stride as usize, phase, len);
                check(&**codec, &layout(element, stride, phase), &raw, &mut random);
            }
        }
    });
}

#[test]
fn a_wrong_hint_gives_right_bytes() {
    let mut random = Random::new(3);
    for codec in codecs() {
        for truth in ElementType::ALL {
            let raw = arrays::array(&mut random, truth, 5, 1, 3 * PIECE_LEN + 100);
            for hint in ElementType::ALL {
                check(&*codec, &layout(hint, 3, 0), &raw, &mut random);
            }
        }
    }
}

#[test]
fn a_wrong_hint_costs_ratio() {
    let values = || (0..64 << 10).map(|i| 280.0 + 9.0 * (f64::from(i) * 1e-3).sin());
    let singles: Vec<u8> = values().flat_map(|v| (v as f32).to_le_bytes()).collect();
    let doubles: Vec<u8> = values().flat_map(f64::to_le_bytes).collect();
    let stored = |codec: &dyn Codec, layout: ElementLayout, raw: &[u8]| {
        let mut encoded = EncodedContainer::new();
        codec.encode(&layout, raw, &mut encoded).unwrap();
        encoded.encoded_len()
    };
    for codec in codecs() {
        // The others see bytes, not numbers.
        if !matches!(codec.id(), CodecId::Xor | CodecId::Field | CodecId::Pco) {
            continue;
        }
        use ElementType::{Bf16, F32, F64};
        // What the numbers are, and what the hint says: a type, and where the first one begins.
        for (truth, raw, wrong, phase) in [
            (F32, &singles, F64, 0),
            (F32, &singles, Bf16, 0),
            (F32, &singles, F32, 1),
            (F64, &doubles, F32, 0),
            (F64, &doubles, F64, 3),
        ] {
            let right = stored(&*codec, layout(truth, 1, 0), raw);
            let hinted = stored(&*codec, layout(wrong, 1, phase), raw);
            let what = format!("{codec:?}: {truth:?} {right}, {wrong:?} from {phase} {hinted}");
            assert!(right < hinted, "{what}");
        }
    }
}

#[test]
fn a_whole_container_comes_back_and_random_bytes_grow_by_the_head_alone() {
    let raw = seeded_bytes(4, MAX_CONTAINER_LEN);
    for codec in codecs() {
        for element in ElementType::ALL {
            let layout = layout(element, 1, 0);
            check(&*codec, &layout, &raw, &mut Random::new(5));
            let mut encoded = EncodedContainer::new();
            codec.encode(&layout, &raw, &mut encoded).unwrap();
            let grown = encoded.encoded_len() - raw.len();
            assert!(grown <= raw.len() / 1000, "{codec:?} grows by {grown}");
        }
    }
}

#[test]
fn a_container_that_does_not_shrink_is_to_be_stored_raw() {
    let (noise, wave) = (
        seeded_bytes(6, 3000),
        (0..750).map(|i| (i as f32 * 1e-3).sin()),
    );
    let wave: Vec<u8> = wave.flat_map(f32::to_le_bytes).collect();
    for codec in codecs() {
        let layout = layout(ElementType::F32, 1, 0);
        let mut encoded = EncodedContainer::new();
        let form = codec.encode(&layout, &noise, &mut encoded).unwrap();
        assert_eq!(form, StoredForm::Raw, "{codec:?}");
        assert_eq!(encoded.stored_len(), noise.len());
        check(&*codec, &layout, &noise, &mut Random::new(1));
        let form = codec.encode(&layout, &wave, &mut encoded).unwrap();
        let expected = match codec.id() {
            CodecId::Raw | CodecId::Zstd | CodecId::Lz4 => None,
            _ => Some(StoredForm::Encoded),
        };
        assert!(
            expected.is_none_or(|expected| form == expected),
            "{codec:?}"
        );
    }
}

#[test]
fn what_no_container_can_be_is_refused() {
    let mut out = EncodedContainer::new();
    let too_long = vec![0; MAX_CONTAINER_LEN + 1];
    for codec in codecs() {
        let good = layout(ElementType::F32, 1, 0);
        assert!(matches!(
            codec.encode(&good, &too_long, &mut out),
            Err(CodecError::ContainerTooLong { .. })
        ));
    }
}

#[test]
fn a_layout_means_what_is_nearest_to_it() {
    let mut out = EncodedContainer::new();
    for codec in codecs() {
        let odd = layout(ElementType::F32, 0, 7);
        codec.encode(&odd, &[1; 100], &mut out).unwrap();
        let opened = OpenedContainer::open(out.head()).unwrap();
        assert_eq!(*opened.layout(), layout(ElementType::F32, 1, 3));
    }
}

#[test]
fn a_container_is_written_over_the_one_before() {
    let mut random = Random::new(6);
    for codec in codecs() {
        let (mut used, mut fresh) = (EncodedContainer::new(), EncodedContainer::new());
        let layout = layout(ElementType::F32, 1, 0);
        let long = arrays::array(&mut random, ElementType::F32, 1, 0, 5 * PIECE_LEN);
        codec.encode(&layout, &long, &mut used).unwrap();
        let short = arrays::array(&mut random, ElementType::F32, 1, 0, PIECE_LEN + 5);
        codec.encode(&layout, &short, &mut used).unwrap();
        codec.encode(&layout, &short, &mut fresh).unwrap();
        assert_eq!(used, fresh, "{codec:?}");
    }
}

#[test]
fn wrong_pieces_ranges_and_buffers_are_refused() {
    let mut encoded = EncodedContainer::new();
    let layout = layout(ElementType::F32, 1, 0);
    RawCodec
        .encode(&layout, &[7; PIECE_LEN + 10], &mut encoded)
        .unwrap();
    let opened = OpenedContainer::open(encoded.head()).unwrap();
    let mut out = [0; 20];
    let refused = |r: Result<(), CodecError>| matches!(r, Err(CodecError::OutOfRange { .. }));
    assert!(refused(opened.decode_piece(2, &[], &mut [])));
    assert!(refused(opened.decode_piece(usize::MAX, &[], &mut [])));
    assert!(refused(opened.decode_range(
        1,
        encoded.piece(1),
        0..11,
        &mut out[..11]
    )));
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = 3..2;
    assert!(refused(opened.decode_range(
        1,
        encoded.piece(1),
        reversed,
        &mut []
    )));
    let wrong = opened.decode_piece(1, encoded.piece(1), &mut out);
    assert_eq!(
        wrong,
        Err(CodecError::WrongBuffer {
            expected: 10,
            found: 20
        })
    );
    let wrong = opened.decode_range(1, encoded.piece(1), 0..3, &mut out[..4]);
    assert_eq!(
        wrong,
        Err(CodecError::WrongBuffer {
            expected: 3,
            found: 4
        })
    );
}

#[test]
fn heads_of_other_versions_and_codecs_are_told_apart() {
    let mut encoded = EncodedContainer::new();
    RawCodec
        .encode(&layout(ElementType::F64, 1, 0), &[1; 10], &mut encoded)
        .unwrap();
    let with = |at: usize, byte: u8| {
        let mut head = encoded.head().to_vec();
        head[at] = byte;
        OpenedContainer::open(&head).err()
    };
    assert_eq!(with(0, 1), None);
    assert_eq!(with(0, 2), Some(CodecError::UnknownVersion(2)));
    assert_eq!(with(1, 77), Some(CodecError::UnknownCodec(77)));
    assert!(matches!(with(2, 4), Some(CodecError::DamagedHead(_))));
    assert!(matches!(with(3, 8), Some(CodecError::DamagedHead(_))));
    assert!(matches!(
        with(7, 1),
        Some(CodecError::ContainerTooLong { .. })
    ));
    assert!(matches!(
        OpenedContainer::open(&vec![1; MAX_HEAD_LEN + 1]).err(),
        Some(CodecError::DamagedHead(_))
    ));
}
