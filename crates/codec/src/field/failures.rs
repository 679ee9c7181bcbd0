//! Damaged heads and spans are refused or give other bytes: no panic, and nothing allocated beyond what a head may say.
use super::tests::{decode, random_bytes, random_layout};
use super::*;
use crate::element::ElementType;
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;

fn corpus() -> Vec<Encoded> {
    let mut random = Random::new(7);
    let mut corpus = Vec::new();
    for i in 0..48 {
        let element = ElementType::ALL[i % 4];
        let len = SPAN * (1 + random.index(12)) + random.index(9);
        let raw = random_bytes(&mut random, element, len);
        let mut encoded = Encoded::default();
        encode(&random_layout(&mut random, element), &raw, &mut encoded).unwrap();
        corpus.push(encoded);
    }
    corpus.retain(|e| FieldDecoder::parse(&e.head).unwrap().element().is_some());
    assert!(corpus.len() > 20, "{}", corpus.len());
    corpus
}

/// Decodes a span and parts of it, whatever comes of it.
fn decode_anyhow(opened: &FieldDecoder, span: &[u8], index: usize, random: &mut Random) -> bool {
    let mut out = vec![0; opened.span_len(index)];
    let base = vec![0x3f; out.len()];
    let whole = opened.decode_span_against(span, index, &base, &mut out);
    for _ in 0..4 {
        let from = random.index(out.len());
        let to = out.len().min(from + random.index(600));
        let part = &mut vec![0; to - from];
        if opened
            .decode_range_against(span, index, from..to, &base, part)
            .is_ok()
            && whole.is_ok()
        {
            assert!(part[..] == out[from..to], "a part is that of the whole");
        }
    }
    whole.is_ok()
}

#[test]
fn mutated_spans_are_refused_or_give_bytes() {
    let containers = corpus();
    let spans: Vec<(usize, Vec<u8>)> = (0..containers.len())
        .flat_map(|c| (0..containers[c].ends.len()).map(move |i| (c, i)))
        .map(|(c, i)| (c, containers[c].span(i).to_vec()))
        .collect();
    let bytes: Vec<Vec<u8>> = spans.iter().map(|(_, s)| s.clone()).collect();
    let opened: Vec<FieldDecoder> = containers
        .iter()
        .map(|e| FieldDecoder::parse(&e.head).unwrap())
        .collect();
    let mut accepted = 0u64;
    fuzz("field_spans", 20_000, &bytes, |random, first, mutated| {
        let of = spans.iter().position(|(_, s)| s == first).unwrap();
        let opened = &opened[spans[of].0];
        let index = random.index(opened.spans());
        accepted += u64::from(decode_anyhow(opened, &mutated, index, random));
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}

#[test]
fn mutated_heads_are_refused_or_decode_any_span() {
    let containers = corpus();
    let heads: Vec<Vec<u8>> = containers.iter().map(|e| e.head.clone()).collect();
    let mut accepted = 0u64;
    fuzz("field_heads", 20_000, &heads, |random, first, mutated| {
        let Ok(opened) = FieldDecoder::parse(&mutated) else {
            return;
        };
        accepted += 1;
        assert!(opened.raw_len() <= CONTAINER);
        let of = heads.iter().position(|h| h == first).unwrap();
        if opened.raw_len() > 0 {
            let span = random.index(containers[of].ends.len());
            let index = random.index(opened.spans());
            decode_anyhow(&opened, containers[of].span(span), index, random);
        }
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}

#[test]
fn heads_and_spans_cut_anywhere_are_refused() {
    for encoded in corpus().iter().step_by(7) {
        for cut in 0..encoded.head.len() {
            assert!(FieldDecoder::parse(&encoded.head[..cut]).is_err(), "{cut}");
        }
        let mut longer = encoded.head.clone();
        longer.push(0);
        assert!(FieldDecoder::parse(&longer).is_err());
        let opened = FieldDecoder::parse(&encoded.head).unwrap();
        let span = encoded.span(0);
        let mut out = vec![0; opened.span_len(0)];
        for cut in 0..span.len() {
            assert!(
                opened.decode_span(&span[..cut], 0, &mut out).is_err(),
                "{cut} of {}",
                span.len()
            );
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let raw = vec![7; 5000];
    let layout = crate::element::ElementLayout::plain(ElementType::F32);
    let mut encoded = Encoded::default();
    encode(&layout, &raw, &mut encoded).unwrap();
    assert_eq!(decode(&encoded, &[]), Ok(raw.clone()));
    let opened = FieldDecoder::parse(&encoded.head).unwrap();
    let mut out = [0; 8];
    let mut range = |index, range| opened.decode_range(encoded.span(0), index, range, &mut out);
    assert_eq!(range(0, 0..8), Ok(()));
    assert_eq!(range(0, 0..7), Err(FieldError::Range));
    assert_eq!(range(0, 4090..4098), Err(FieldError::Range));
    assert_eq!(range(2, 0..8), Err(FieldError::Range));
    assert_eq!(range(usize::MAX, 0..8), Err(FieldError::Range));
    let long = vec![0; CONTAINER + 1];
    assert_eq!(
        encode(&layout, &long, &mut encoded),
        Err(FieldError::TooLong)
    );
    assert_eq!(
        encode_against(&raw[1..], &layout, &raw, &mut encoded),
        Err(FieldError::Base)
    );
    let other = [0x20, 0, 0, 0];
    assert_eq!(
        FieldDecoder::parse(&other).unwrap_err(),
        FieldError::Version(2)
    );
}
