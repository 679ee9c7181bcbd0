//! Folding: what goes in comes out, whatever it is, and regular input becomes few terms.

use crate::common::{Stream, stream};
use forebay_pattern::{Element, Folder};
use proptest::prelude::*;

fn fold(elements: &[Element]) -> Vec<forebay_pattern::Pattern> {
    let mut folder = Folder::new();
    for e in elements {
        folder.push_at(e.offset, e.len, e.addr).unwrap();
    }
    folder.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(400, 100_000)))]

    #[test]
    fn all_elements_come_back_in_order(Stream(elements) in stream()) {
        let patterns = fold(&elements);
        let back: Vec<Element> = patterns.iter().flat_map(|p| p.iter()).collect();
        prop_assert_eq!(&back, &elements);
        for p in &patterns {
            prop_assert_eq!(p.elements(), p.iter().count() as u64);
            prop_assert_eq!(p.bytes(), p.iter().map(|e| e.len).sum::<u64>());
            let lo = p.iter().map(|e| e.offset).min().unwrap();
            let hi = p.iter().map(|e| e.end()).max().unwrap();
            prop_assert_eq!(p.bounds(), (lo, hi));
            for (i, e) in p.iter().enumerate() {
                prop_assert_eq!(p.get(i as u64), Some(e));
            }
            prop_assert_eq!(p.get(p.elements()), None);
        }
    }

    #[test]
    fn what_lies_in_a_range_is_found_by_its_ends(
        rows in prop::collection::vec((1u64..40, 1u64..9, 0u64..90, 1u64..12, 0u64..60), 1..6), break_at: u8, ranges in prop::collection::vec((0u64..3000, 0u64..2000), 8),
    ) {
        let (mut elements, mut offset, mut addr) = (Vec::new(), 0, 7);
        for (count, len, gap, again, between) in rows {
            for k in 0..count * again {
                elements.push(Element { offset, len, addr });
                addr += len + 5 * u64::from(k == u64::from(break_at));
                offset += len + gap + if k % again == 0 { between } else { 0 };
            }
        }
        for p in fold(&elements) {
            let own: Vec<Element> = p.iter().collect();
            prop_assert_eq!(p.is_increasing(), own.windows(2).all(|w| w[0].end() <= w[1].offset));
            for (start, len) in ranges.iter().filter(|_| p.is_increasing()) {
                let range = *start..start + len;
                let found: Vec<u64> = p.within(&range).into_iter().flatten().collect();
                let inside = own.iter().flat_map(|e| (0..e.len).filter(|i| range.contains(&(e.offset + i))).map(|i| e.addr + i));
                prop_assert_eq!(found, inside.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn joined_elements_hold_the_same_bytes(Stream(elements) in stream()) {
        let mut folder = Folder::joining();
        for e in &elements {
            folder.push_at(e.offset, e.len, e.addr).unwrap();
        }
        let back: Vec<Element> = folder.finish().iter().flat_map(|p| p.iter()).collect();
        let mut expected: Vec<Element> = Vec::new();
        for e in elements.iter().filter(|e| e.len > 0) {
            match expected.last_mut() {
                Some(last) if last.end() == e.offset && last.addr + last.len == e.addr => last.len += e.len,
                _ => expected.push(*e),
            }
        }
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn patterns_go_in_as_their_elements_do(Stream(elements) in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4), joins: bool) {
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(elements.len() + 1)).collect();
        cuts.extend([0, elements.len()]);
        cuts.sort_unstable();
        let new = || if joins { Folder::joining() } else { Folder::new() };
        let (mut whole, mut each) = (new(), new());
        for part in cuts.windows(2) {
            for p in fold(&elements[part[0]..part[1]]) {
                whole.push_pattern(&p).unwrap();
                for e in p.iter() {
                    each.push_at(e.offset, e.len, e.addr).unwrap();
                }
                prop_assert!(p.rows() <= p.elements());
            }
        }
        let shown = |folder: &mut Folder| -> Vec<(String, Vec<Element>)> {
            folder.finish().iter().map(|p| (p.to_string(), p.iter().collect())).collect()
        };
        prop_assert_eq!(shown(&mut whole), shown(&mut each));
    }
}

#[test]
fn rows_of_many_writers_become_one_term() {
    let mut folder = Folder::joining();
    for rank in 0..512 {
        let mut own = Folder::joining();
        for i in 0..1000 {
            let (offset, addr) = (rank * 4096 + (i << 21), (rank * 1000 + i) * 4096);
            own.push_at(offset, 4096, addr).unwrap();
        }
        for p in own.finish() {
            folder.push_pattern(&p).unwrap();
        }
    }
    let all = folder.finish();
    assert_eq!((all.len(), all[0].terms(), all[0].rows()), (1, 1, 512));
}
