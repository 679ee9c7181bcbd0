//! Memory stays bounded however long a stream is: 20 M extents here, 1 G each with `SOAK=1`.

use forebay_pattern::Folder;

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

fn random() -> impl FnMut() -> u64 {
    let mut seed = 88172645463325252u64;
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
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
    let mut next = random();
    stream(|_| (next() >> 20, next() >> 50));
    let (mut next, mut at) = (random(), 0);
    // Few different steps: repeats come and go.
    stream(|_| {
        at = (at + (next() >> 62) * 100) & ((1 << 50) - 1);
        (at, 1 + (next() >> 63))
    });
}

#[test]
fn nests_of_random_shape() {
    let (mut next, mut at, mut left, mut step) = (random(), 0u64, 0, 0);
    stream(|_| {
        if left == 0 {
            left = next() >> 58;
            step = next() >> 56;
            at = next() >> 30;
        } else {
            left -= 1;
        }
        at += step;
        (at, 8)
    });
}
