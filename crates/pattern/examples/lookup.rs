//! Index size and lookup time of shared files: `cargo run --release -p forebay-pattern --example lookup`.
use forebay_pattern::{Folder, LogSource, MapLookup, PatternMap, Patterns, Segment, decode_all};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    // FS-TEST: 512 writers, 256 Ki strided writes each: 134 M extents.
    report("fs-test 512 x 256 Ki", 512, |rank, push| {
        (0..256 * 1024).for_each(|k| push((k * 512 + rank) * 4096, 4096))
    });
    report("the same, random log numbers", 512, |rank, push| {
        (0..1024).for_each(|k| push((k * 512 + rank) * 4096, 4096))
    });
    report("tile 16 x 16, 4096 rows", 256, |rank, push| {
        let (x, y) = (rank % 16, rank / 16);
        (0..4096).for_each(|row| push(((y * 4096 + row) * 16 + x) * 4096, 4096));
    });
    btio(16, 408, 2);
    btio(8, 162, 5);
}

/// NAS BTIO: q * q ranks with q cells on diagonals of a cube, rows of x as calls.
fn btio(q: u64, grid: u64, dumps: u64) {
    let edge = |at: u64| {
        let (size, larger) = (grid / q, grid % q);
        (at * size + at.min(larger), size + u64::from(at < larger))
    };
    report(
        &format!("btio q {q} grid {grid} dumps {dumps}"),
        q * q,
        |rank, push| {
            for (dump, layer) in (0..dumps).flat_map(|d| (0..q).map(move |l| (d, l))) {
                let (cx, cy) = ((rank % q + layer) % q, (rank / q + q - layer) % q);
                let ((x, width), (y, height), (z, depth)) = (edge(cx), edge(cy), edge(layer));
                for row in 0..height * depth {
                    let (y, z) = (y + row % height, z + row / height);
                    push((((dump * grid + z) * grid + y) * grid + x) * 40, width * 40);
                }
            }
        },
    );
}

fn report(name: &str, ranks: u64, extents: impl Fn(u64, &mut dyn FnMut(u64, u64))) {
    let (mut segments, mut disk, mut count) = (Vec::new(), 0, 0u64);
    let start = Instant::now();
    for rank in 0..ranks {
        let mut folder = Folder::joining();
        extents(rank, &mut |offset, len| {
            folder.push(offset, len).expect("small offsets");
            count += 1;
        });
        let log = if name.contains("random") {
            (rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
        } else {
            7 + rank
        };
        let source = LogSource {
            member: (rank / 8) as u16,
            log,
        };
        for pattern in folder.finish() {
            let segment = Segment::new(source, 1 + rank, pattern);
            disk += segment.encoded().len();
            segments.push(segment);
        }
    }
    let folded = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let merged = Patterns::merged(segments);
    let merging = start.elapsed();
    let (globals, left) = (merged.globals.len(), merged.segments.len());
    let bytes = merged.encoded();
    let start = Instant::now();
    let map: PatternMap = decode_all(&bytes).0.map();
    let opened = start.elapsed();
    println!(
        "{name}: {count} extents, {:.0} M/s; {disk} bytes of {ranks} logs' segments; merged in {merging:.1?} to {globals} global patterns and {left} segments, \
         {} bytes; opened in {opened:.1?}, {} entries, {} bytes of memory",
        count as f64 / folded / 1e6,
        bytes.len(),
        map.entries(),
        map.memory()
    );
    let end = map.end();
    let mut seed = 88172645463325252u64;
    let mut times = Vec::new();
    for _ in 0..2001 {
        let offsets: [u64; 64] = std::array::from_fn(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % end
        });
        let start = Instant::now();
        for offset in offsets {
            match black_box(map.lookup(black_box(offset))) {
                MapLookup::Data(_) => {}
                other => panic!("{other:?} at {offset}"),
            }
        }
        times.push(start.elapsed().as_nanos() as f64 / 64.0);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "    lookup: median {:.0} ns, 99th percentile {:.0} ns",
        times[1000], times[1980]
    );
    let start = Instant::now();
    let mut pieces = Vec::new();
    map.resolve(0..end.min(64 << 20), &mut pieces);
    println!(
        "    resolve: {:.0} ns a piece of {}",
        start.elapsed().as_nanos() as f64 / pieces.len() as f64,
        pieces.len()
    );
}
