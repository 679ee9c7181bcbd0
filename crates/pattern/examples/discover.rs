//! How fast extents are folded: `cargo run --release -p forebay-pattern --example discover [MILLIONS]`.
use forebay_pattern::Folder;
use std::time::Instant;

fn main() {
    let millions: u64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(20);
    let n = millions * 1_000_000;
    let mut seed = 1u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let period = [3, 4, 7, 1, 9, 30, 2u64];
    run("strided", n, |i| (i * 8192, 4096));
    run("nested 2-d, 16 a row", n, |i| {
        ((i / 16) << 24 | (i % 16) << 12, 512)
    });
    run("nested 2-d, 4 a row", n, |i| {
        ((i / 4) << 24 | (i % 4) << 12, 512)
    });
    run("nested 3-d, 100 x 10", n, |i| {
        (
            i / 1000 * 10_000_000 + i % 1000 / 100 * 900_000 + i % 100 * 4096,
            512,
        )
    });
    run("nested 3-d, 4 x 4", n, |i| {
        (
            i / 16 * 10_000_000 + i % 16 / 4 * 900_000 + i % 4 * 4096,
            512,
        )
    });
    let sum: u64 = period.iter().sum();
    run("period of 7", n, |i| {
        (
            i / 7 * sum + period[..(i % 7) as usize].iter().sum::<u64>(),
            1,
        )
    });
    run("random offsets", n / 4, |_| (random() >> 30 << 12, 4096));
    run("random offsets, few", n / 4, |_| {
        ((random() >> 54) << 12, 4096)
    });
    run("random offsets and lengths", n / 4, |_| {
        (random() >> 24, random() >> 50)
    });
}

fn run(name: &str, n: u64, mut extent: impl FnMut(u64) -> (u64, u64)) {
    // Generated first, so that only folding is timed; in parts, so that they stay in the cache.
    let mut folder = Folder::new();
    let (mut terms, mut elements, mut most, mut time) = (0, 0, 0, 0.0);
    let mut part = vec![(0, 0); 4096];
    let mut i = 0;
    while i < n {
        for slot in &mut part {
            *slot = extent(i);
            i += 1;
        }
        let start = Instant::now();
        for &(offset, len) in &part {
            folder.push(offset, len).expect("small offsets");
        }
        let done = folder.finished();
        time += start.elapsed().as_secs_f64();
        most = most.max(folder.memory());
        terms += done.iter().map(|p| p.terms()).sum::<usize>();
        elements += done.iter().map(|p| p.elements()).sum::<u64>();
    }
    let done = folder.finish();
    terms += done.iter().map(|p| p.terms()).sum::<usize>();
    elements += done.iter().map(|p| p.elements()).sum::<u64>();
    assert_eq!(elements, i);
    println!(
        "{name:<28} {:>8.1} M extents/s {terms:>10} terms {most:>8} bytes",
        i as f64 / time / 1e6
    );
}
