//! Damaged heads and pieces are refused or give other bytes: no panic, and nothing allocated beyond what a head may say.
use super::FieldCodec;
use super::tests::{random_bytes, random_layout};
use crate::OpenedContainer;
use crate::container::{Codec, EncodedContainer, MAX_CONTAINER_LEN, PIECE_LEN};
use crate::element::ElementType;
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;

fn corpus() -> Vec<EncodedContainer> {
    let mut random = Random::new(7);
    let mut corpus = Vec::new();
    for i in 0..60 {
        let element = ElementType::ALL[i % 4];
        let len = PIECE_LEN * (1 + random.index(12)) + random.index(9);
        let raw = random_bytes(&mut random, element, len);
        let mut encoded = EncodedContainer::new();
        let layout = random_layout(&mut random, element);
        let base: Vec<u8> = raw
            .iter()
            .map(|byte| byte ^ u8::from(random.chance(10)))
            .collect();
        match i % 5 {
            0 => FieldCodec.encode_against(&base, &layout, &raw, &mut encoded),
            _ => FieldCodec.encode(&layout, &raw, &mut encoded),
        }
        .unwrap();
        corpus.push(encoded);
    }
    // Others have no parameters.
    corpus.retain(|e| e.head().len() > 16);
    assert!(corpus.len() > 20, "{}", corpus.len());
    corpus
}

/// Decodes a piece and parts of it, whatever comes of it.
fn decode_anyhow(
    opened: &OpenedContainer,
    piece: &[u8],
    index: usize,
    random: &mut Random,
) -> bool {
    let mut out = vec![0; opened.piece_len(index)];
    let base = vec![0x3f; out.len()];
    let whole = opened.decode_piece_against(index, piece, &base, &mut out);
    for _ in 0..4 {
        let from = random.index(out.len());
        let to = out.len().min(from + random.index(600));
        let part = &mut vec![0; to - from];
        if opened
            .decode_range_against(index, piece, from..to, &base, part)
            .is_ok()
            && whole.is_ok()
        {
            assert!(part[..] == out[from..to], "a part is that of the whole");
        }
    }
    whole.is_ok()
}

#[test]
fn mutated_pieces_are_refused_or_give_bytes() {
    let containers = corpus();
    let pieces: Vec<(usize, Vec<u8>)> = (0..containers.len())
        .flat_map(|c| (0..containers[c].pieces()).map(move |i| (c, i)))
        .map(|(c, i)| (c, containers[c].piece(i).to_vec()))
        .collect();
    let bytes: Vec<Vec<u8>> = pieces.iter().map(|(_, s)| s.clone()).collect();
    let opened: Vec<OpenedContainer> = containers
        .iter()
        .map(|e| OpenedContainer::open(e.head()).unwrap())
        .collect();
    let mut accepted = 0u64;
    fuzz("field_pieces", 20_000, &bytes, |random, first, mutated| {
        let of = pieces.iter().position(|(_, s)| s == first).unwrap();
        let opened = &opened[pieces[of].0];
        let index = random.index(opened.pieces());
        accepted += u64::from(decode_anyhow(opened, &mutated, index, random));
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}

#[test]
fn mutated_heads_are_refused_or_decode_any_piece() {
    let containers = corpus();
    let heads: Vec<Vec<u8>> = containers.iter().map(|e| e.head().to_vec()).collect();
    let mut accepted = 0u64;
    fuzz("field_heads", 20_000, &heads, |random, first, mutated| {
        let Ok(opened) = OpenedContainer::open(&mutated) else {
            return;
        };
        accepted += 1;
        assert!(opened.raw_len() <= MAX_CONTAINER_LEN);
        let of = heads.iter().position(|h| h == first).unwrap();
        if opened.raw_len() > 0 {
            let piece = random.index(containers[of].pieces());
            let index = random.index(opened.pieces());
            decode_anyhow(&opened, containers[of].piece(piece), index, random);
        }
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}

#[test]
fn heads_and_pieces_cut_anywhere_are_refused() {
    for encoded in corpus().iter().step_by(7) {
        let head = encoded.head();
        for cut in 0..head.len() {
            // No parameters are parameters: all pieces are raw.
            assert!(
                cut == 16 || OpenedContainer::open(&head[..cut]).is_err(),
                "{cut}"
            );
        }
        let mut longer = head.to_vec();
        longer.push(0);
        assert!(OpenedContainer::open(&longer).is_err());
        let opened = OpenedContainer::open(head).unwrap();
        let piece = encoded.piece(0);
        let mut out = vec![0; opened.piece_len(0)];
        let base = out.clone();
        for cut in 0..piece.len() {
            let decoded = opened.decode_piece_against(0, &piece[..cut], &base, &mut out);
            assert!(decoded.is_err(), "{cut} of {}", piece.len());
        }
    }
}
