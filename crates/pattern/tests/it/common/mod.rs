//! Streams of extents for the tests: strides of any sign, nested, repeated with periods, cut, overlapping, random, mixed.

use forebay_pattern::Element;
use proptest::prelude::*;

/// Extents of one log in log order.
#[derive(Debug, Clone)]
pub struct Stream(pub Vec<Element>);

/// One part of a stream, as offsets and lengths. Offsets are relative, and may be negative.
fn part() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let level = (1u64..6, -40i64..60);
    let nested = (
        proptest::collection::vec(level, 1..4),
        1u64..20,
        any::<u16>(),
    )
        .prop_map(|(levels, len, cut)| {
            let mut all = vec![(0i64, len)];
            for (count, stride) in levels {
                let inner = all;
                all = (0..count)
                    .flat_map(|k| {
                        inner
                            .iter()
                            .map(move |(o, l)| (o + k as i64 * stride, *l))
                            .collect::<Vec<_>>()
                    })
                    .collect();
            }
            let keep = all.len() - usize::from(cut) % (all.len() / 3 + 1);
            all.truncate(keep);
            all
        });
    let periodic = (
        proptest::collection::vec((-30i64..30, 1u64..9), 1..9),
        1usize..9,
        0usize..8,
    )
        .prop_map(|(period, times, tail)| {
            let mut at = 0;
            let steps = period
                .iter()
                .cycle()
                .take(period.len() * times + tail % period.len());
            steps
                .map(|(step, len)| {
                    let here = at;
                    at += step;
                    (here, *len)
                })
                .collect()
        });
    let random = proptest::collection::vec((0i64..400, 0u64..20), 0..30);
    let rows = (proptest::collection::vec(1u64..7, 1..12), 1i64..9, 1u64..9).prop_map(
        |(rows, stride, len)| {
            let row = |(y, count): (usize, &u64)| {
                (0..*count)
                    .map(move |x| (y as i64 * 70 + x as i64 * stride, len))
                    .collect::<Vec<_>>()
            };
            rows.iter().enumerate().flat_map(row).collect()
        },
    );
    prop_oneof![4 => nested, 3 => periodic, 1 => random, 2 => rows]
}

/// Streams of several parts, each repeated some times, with gaps in the log between some.
pub fn stream() -> impl Strategy<Value = Stream> {
    let repeated = (part(), 1usize..4, -100i64..200, 0i64..500, any::<bool>());
    (proptest::collection::vec(repeated, 1..5), 0u64..3).prop_map(|(parts, gap)| {
        let (mut out, mut addr) = (Vec::new(), 17);
        for (part, times, stride, start, broken) in parts {
            for k in 0..times {
                for &(offset, len) in &part {
                    // No offset is below 0: the least is -40 * 5 * 3 - 30 * 9 * 9 - 100 * 3.
                    let offset = (4000 + start + k as i64 * stride + offset) as u64;
                    out.push(Element { offset, len, addr });
                    addr += len;
                }
            }
            addr += if broken { gap } else { 0 };
        }
        Stream(out)
    })
}
