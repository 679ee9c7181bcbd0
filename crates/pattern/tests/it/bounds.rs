//! Memory stays bounded however long a stream is: 20 M extents here, 1 G each with `SOAK=1`.

use forebay_pattern::Folder;
use forebay_testkit::random::Random;

const MOST: usize = 4 << 20;

fn stream(mut extent: impl FnMut(u64) -> (u64, u64)) -> usize {
    let count: u64 = forebay_testkit::seeds::count(1_000_000, 1_000_000_000);
    let mut folder = Folder::new();
    let (mut seen, mut terms) = (0, 0);
    let mut most = 0;
    for i in 0..count {
        let (offset, len) = extent(i);
        folder.push(offset, len).unwrap();
        if i % 4096 == 0 {
            most = most.max(folder.memory());
            for pattern in folder.finished() {
                seen += pattern.elements();
                terms += pattern.terms();
            }
        }
    }
    for pattern in folder.finish() {
        seen += pattern.elements();
        terms += pattern.terms();
    }
    assert_eq!(seen, count);
    assert!(most < MOST, "{most} bytes");
    terms
}

#[test]
fn strides_and_nests() {
    assert_eq!(stream(|i| (i * 8192, 4096)), 1);
    assert_eq!(
        stream(|i| (
            i / 1000 * 5_000_000 + i % 1000 / 10 * 40_000 + i % 10 * 1000,
            10
        )),
        1
    );
}

#[test]
fn random_offsets_lengths_and_steps() {
    let mut random = Random::new(1);
    stream(|_| (random.next() >> 20, random.next() >> 50));
    let (mut random, mut at) = (Random::new(1), 0);
    // Few different steps: repeats come and go.
    stream(|_| {
        at = (at + (random.next() >> 62) * 100) & ((1 << 50) - 1);
        (at, 1 + (random.next() >> 63))
    });
}

#[test]
fn nests_of_random_shape() {
    let (mut random, mut at, mut left, mut step) = (Random::new(1), 0u64, 0, 0);
    stream(|_| {
        if left == 0 {
            left = random.next() >> 58;
            step = random.next() >> 56;
            at = random.next() >> 30;
        } else {
            left -= 1;
        }
        at += step;
        (at, 8)
    });
}
