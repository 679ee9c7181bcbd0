//! Encoded segments: they come back, changed ones are refused, and what is whole is read.

use crate::common::{Stream, stream};
use forebay_pattern::{Element, Error, Folder, FrameLoss, LogSource, Segment};
use proptest::prelude::*;

fn segments(elements: &[Element]) -> Vec<Segment> {
    let mut folder = Folder::new();
    for e in elements {
        folder.push_at(e.offset, e.len, e.addr).unwrap();
    }
    let source = LogSource { member: 3, log: 77 };
    folder
        .finish()
        .into_iter()
        .map(|p| Segment::new(source, 5, p))
        .collect()
}

fn decode_all(bytes: &[u8]) -> (Vec<Segment>, Vec<FrameLoss>) {
    let (back, lost) = forebay_pattern::decode_all(bytes);
    assert!(back.globals.is_empty());
    (back.segments, lost)
}

fn same(a: &Segment, b: &Segment) -> bool {
    (a.source, a.first, a.last, a.limit) == (b.source, b.first, b.last, b.limit)
        && a.pattern.iter().eq(b.pattern.iter())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(300, 100_000)))]

    #[test]
    fn segments_come_back(Stream(elements) in stream(), limit: Option<u32>, last in 5u64..9) {
        let mut all = segments(&elements);
        let mut bytes = Vec::new();
        for segment in &mut all {
            segment.last = last;
            if let Some(limit) = limit {
                segment.truncate(limit.into());
            }
            segment.encode(&mut bytes);
        }
        let (back, lost) = decode_all(&bytes);
        prop_assert_eq!(lost, vec![]);
        prop_assert_eq!(back.len(), all.len());
        prop_assert!(back.iter().zip(&all).all(|(a, b)| same(a, b)));
        // What was read is written as it was.
        let again: Vec<u8> = back.iter().flat_map(Segment::encoded).collect();
        prop_assert!(again.len() <= bytes.len());
    }

    #[test]
    fn no_changed_byte_goes_unnoticed_and_the_others_stay_readable(
        Stream(elements) in stream(),
        at: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let Some(one) = segments(&elements).into_iter().next() else {
            return Ok(());
        };
        let whole = one.encoded();
        let mut bytes = [&whole[..], &whole[..], &whole[..]].concat();
        let at = whole.len() + at.index(whole.len());
        bytes[at] ^= 1 << bit;
        let (back, lost) = decode_all(&bytes);
        prop_assert!(back.iter().all(|b| same(b, &one)));
        prop_assert!(!back.is_empty() && back.len() < 3);
        prop_assert_eq!(lost[0].at, whole.len());
        // Only a changed length can take the third along.
        if at > whole.len() + 10 {
            prop_assert_eq!((back.len(), lost.len(), lost[0].len), (2, 1, whole.len()));
        }
        let cut = at.min(bytes.len());
        let (back, lost) = decode_all(&[&whole[..], &whole[..cut - whole.len()]].concat());
        prop_assert_eq!(back.len(), 1);
        prop_assert_eq!(lost.len(), usize::from(cut > whole.len()));
    }

    #[test]
    fn bodies_that_nobody_wrote_are_refused_or_read(body in proptest::collection::vec(0u8..40, 0..60)) {
        let mut bytes = vec![1, body.len() as u8 + 4];
        bytes.extend(&body);
        bytes.extend(forebay_checksum::crc32c(&bytes).to_le_bytes());
        let (back, lost) = decode_all(&bytes);
        prop_assert_eq!(back.len() + lost.len(), 1);
        for segment in back {
            let pattern = &segment.pattern;
            prop_assert!(pattern.iter().take(1000).enumerate().all(|(i, e)| pattern.get(i as u64) == Some(e)));
            if pattern.elements() < 10_000 {
                let again = segment.encoded();
                prop_assert!(same(&Segment::decode(&mut &again[..], 0).unwrap(), &segment));
            }
        }
    }
}

#[test]
fn a_newer_version_is_stepped_over() {
    let one = segments(&[Element {
        offset: 8,
        len: 4,
        addr: 0,
    }])
    .remove(0);
    let mut newer = one.encoded();
    newer[0] = 2;
    let (back, lost) = decode_all(&[newer.clone(), one.encoded()].concat());
    assert_eq!(back.len(), 1);
    let why = Error::Newer {
        at: 0,
        version: 2,
        known: 17,
    };
    assert_eq!(
        (lost[0].at, lost[0].len, &lost[0].why),
        (0, newer.len(), &why)
    );
    assert!(lost[0].why.to_string().contains("version 2"));
}

#[test]
fn a_strided_log_takes_few_bytes() {
    let mut folder = Folder::new();
    for i in 0..256 * 1024u64 {
        folder.push(511 * 4096 + i * (2 << 20), 4096).unwrap();
    }
    let source = LogSource {
        member: 511,
        log: 1 << 40,
    };
    let segment = Segment::new(source, 1000, folder.finish().remove(0));
    assert!(
        segment.encoded().len() <= 48,
        "{} bytes",
        segment.encoded().len()
    );
}

#[test]
fn loops_whose_fingerprints_are_alike_stay_apart_and_equal_ones_one() {
    // Rows of 5 pairs 40 apart, of 2 pairs 38 apart, and of 5 again.
    let pairs = |start: u64, stride: u64, count: u64| {
        (0..count).flat_map(move |k| [start + k * stride, start + k * stride + 25])
    };
    let rows = [
        (4000, 40, 5),
        (8000, 38, 2),
        (4008, 40, 5),
        (9000, 40, 4),
        (4070, 40, 5),
        (9500, 38, 2),
        (4016, 40, 5),
    ];
    let mut folder = forebay_pattern::Folder::joining();
    for (addr, at) in (0..).zip(rows.into_iter().flat_map(|(s, d, c)| pairs(s, d, c))) {
        folder.push_at(at, 1, addr).unwrap();
    }
    for pattern in folder.finish() {
        let segment = forebay_pattern::Segment::new(Default::default(), 1, pattern);
        let back = forebay_pattern::Segment::decode(&mut &segment.encoded()[..], 0).unwrap();
        assert!(back.pattern.iter().eq(segment.pattern.iter()));
        assert_eq!(segment.pattern.loops(), 3);
    }
}
