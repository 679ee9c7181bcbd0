//! Folding: what goes in comes out, whatever it is, and regular input becomes few terms.
#![allow(clippy::unwrap_used)]
mod common;

use common::{Stream, stream};
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
    #![proptest_config(ProptestConfig::with_cases(common::cases(400)))]

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
}
