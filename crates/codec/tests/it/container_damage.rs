//! Changed heads and pieces of every codec: each is refused, or decodes to some bytes. Nothing panics.
use crate::arrays::{self, codecs};
use forebay_codec::container::PIECE_LEN;
use forebay_codec::{Codec, ElementLayout, ElementType, EncodedContainer, OpenedContainer};
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;
use forebay_testkit::seeds::count;

/// Opens a head, and decodes a piece in every way. Whether it was accepted.
fn decode(head: &[u8], index: usize, piece: &[u8]) -> bool {
    let Ok(opened) = OpenedContainer::open(head) else {
        return false;
    };
    let len = opened.piece_len(index);
    let mut whole = vec![0; len];
    let decoded = opened.decode_piece(index, piece, &mut whole).is_ok();
    for range in [
        0..len,
        len / 2..(len / 2 + 4).min(len),
        len.saturating_sub(3)..len,
    ] {
        let mut out = vec![0; range.len()];
        let found = opened.decode_range(index, piece, range.clone(), &mut out);
        // What is accepted whole has the same parts.
        if decoded {
            assert!(found.is_ok() && out == whole[range]);
        }
    }
    decoded
}

fn sample(codec: &dyn Codec, element: ElementType, seed: u64) -> EncodedContainer {
    let mut random = Random::new(seed);
    let phase = random.index(2) as u32;
    let stride = *random.pick(&[1, 1, 3]);
    let len = PIECE_LEN + random.index(700);
    let mut encoded = EncodedContainer::new();
    // Some of the arrays do not compress, and have nothing to damage.
    for _ in 0..20 {
        let raw = arrays::array(&mut random, element, stride as usize, phase, len);
        let layout = ElementLayout {
            element,
            stride,
            phase,
            row: 0,
        };
        codec.encode(&layout, &raw, &mut encoded).unwrap();
        if encoded.piece(0).len() < PIECE_LEN {
            break;
        }
    }
    encoded
}

#[test]
fn a_change_of_any_byte_does_no_harm() {
    for codec in codecs() {
        for element in ElementType::ALL {
            let encoded = sample(&*codec, element, 1);
            let (head, piece) = (encoded.head(), encoded.piece(0));
            assert!(decode(head, 0, piece), "{codec:?}");
            let step = count(23, 1);
            for at in 0..head.len() {
                for change in [1, 0x80, 0xff] {
                    let mut head = head.to_vec();
                    head[at] ^= change;
                    decode(&head, 0, piece);
                }
            }
            for at in (0..piece.len()).step_by(step) {
                for change in [1, 0x10, 0xff] {
                    let mut piece = piece.to_vec();
                    piece[at] ^= change;
                    decode(head, 0, &piece);
                }
            }
        }
    }
}

#[test]
fn a_cut_at_any_byte_does_no_harm() {
    for codec in codecs() {
        for element in ElementType::ALL {
            let encoded = sample(&*codec, element, 2);
            let (head, piece) = (encoded.head(), encoded.piece(0));
            for len in 0..head.len() {
                decode(&head[..len], 0, piece);
            }
            let step = count(11, 1);
            for len in (0..piece.len()).step_by(step) {
                decode(head, 0, &piece[..len]);
            }
        }
    }
}

/// Mutates heads and pieces of one codec; all that a corpus has is head, piece, and the head's length before both.
fn fuzz_codec(name: &str, belongs: fn(&dyn Codec) -> bool) {
    let mut corpus = Vec::new();
    for codec in codecs().iter().filter(|codec| belongs(&***codec)) {
        for (k, element) in ElementType::ALL.into_iter().enumerate() {
            for seed in 0..4 {
                let encoded = sample(&**codec, element, seed + 10 * k as u64);
                for piece in 0..encoded.pieces() {
                    let mut both = (encoded.head().len() as u16).to_le_bytes().to_vec();
                    both.push(piece as u8);
                    both.extend_from_slice(encoded.head());
                    both.extend_from_slice(encoded.piece(piece));
                    corpus.push(both);
                }
            }
        }
    }
    let mut accepted = 0u64;
    fuzz(name, 4_000, &corpus, |random, first, bytes| {
        let head_len = usize::from(u16::from_le_bytes([first[0], first[1]]));
        let (head, piece) = first[3..].split_at(head_len);
        let mutated = bytes.get(3..).unwrap_or_default();
        let cut = head_len.min(mutated.len());
        let index = usize::from(first[2]);
        // The head, the piece, or both.
        let found = match random.index(3) {
            0 => decode(&mutated[..cut], index, piece),
            1 => decode(head, index, &mutated[cut..]),
            _ => decode(&mutated[..cut], index, &mutated[cut..]),
        };
        accepted += u64::from(found);
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}

#[test]
fn mutated_xor_containers_do_no_harm() {
    fuzz_codec("codec_xor", |codec| codec.id().name() == "xor");
}

#[test]
fn mutated_zstd_containers_do_no_harm() {
    fuzz_codec("codec_zstd", |codec| codec.id().name().ends_with("zstd"));
}

#[test]
fn mutated_lz4_containers_do_no_harm() {
    fuzz_codec("codec_lz4", |codec| codec.id().name().ends_with("lz4"));
}

#[test]
fn mutated_pco_containers_do_no_harm() {
    fuzz_codec("codec_pco", |codec| codec.id().name() == "pco");
}

#[test]
fn mutated_field_containers_do_no_harm() {
    fuzz_codec("codec_field", |codec| codec.id().name() == "field");
}
