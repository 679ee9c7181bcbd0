//! Looking up every offset of a pattern, against a list of its elements.
use super::*;
use crate::{Element, Folder, Pattern};
use proptest::prelude::*;

/// Nested loops with strides of any sign, and steps between loops.
fn pattern() -> impl Strategy<Value = Pattern> {
    let level = (1u64..5, -30i64..40);
    let nest = (
        proptest::collection::vec(level, 1..4),
        1u64..12,
        1usize..4,
        0usize..20,
    );
    proptest::collection::vec(nest, 1..4).prop_map(|nests| {
        let mut folder = Folder::new();
        for (levels, len, twice, cut) in nests {
            let mut all = vec![0i64];
            for (count, stride) in levels {
                let inner = all;
                let step = |k: u64| inner.iter().map(move |o| o + k as i64 * stride);
                all = (0..count).flat_map(step).collect();
            }
            all = (0..twice as i64)
                .flat_map(|t| all.iter().map(move |o| o + t * 13))
                .collect();
            all.truncate(all.len() - cut % all.len());
            for offset in all {
                folder.push((2000 + offset) as u64, len).unwrap();
            }
        }
        folder.finish().remove(0)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(300, 50_000)))]

    #[test]
    fn every_byte_is_found_in_the_newest_element_and_every_start_is_next(pattern in pattern()) {
        let mut before = 0;
        for term in &pattern.terms {
            let elements = pattern.arena.elements(term.shape);
            let all: Vec<Element> = pattern.iter().skip(before).take(elements as usize).collect();
            before += all.len();
            let (lo, hi) = pattern.term_bounds(term);
            for off in lo - 3..hi + 3 {
                let rel = off.wrapping_sub(term.start) as i64;
                let found = hit(&pattern.arena, term.shape, elements, rel).map(|h| Element {
                    offset: term.start.wrapping_add(h.rel as u64),
                    len: h.len,
                    addr: term.addr + h.bytes_before,
                });
                let newest = all.iter().rfind(|e| e.offset <= off && off < e.end());
                prop_assert_eq!(found.as_ref(), newest, "at {}", off);
                let next = next_start(&pattern.arena, term.shape, elements, rel);
                let next = next.map(|s| term.start.wrapping_add(s as u64));
                prop_assert_eq!(next, all.iter().map(|e| e.offset).filter(|o| *o > off).min(), "behind {}", off);
            }
        }
    }
}
