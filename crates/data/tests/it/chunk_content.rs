//! What is found again of contents of several kinds, where they stand behind something of another length.
use crate::chunk_chains::Stored;
use forebay_testkit::datasets::dataset;
use forebay_testkit::random::{Random, seeded_bytes};
use std::io::Read;

const HEADERS: [usize; 4] = [137, 512, 4113, 9999];
const MIB: usize = 1 << 20;

/// How much of `content` is stored again, for each time that it comes behind a header: 0 if every chunk is found.
fn stored_again(content: &[u8]) -> f64 {
    let mut stored = Stored::new(4096, true);
    stored.add(&[content]);
    let once = stored.stored;
    for (i, header) in (0..).zip(HEADERS) {
        stored.add(&[&seeded_bytes(i, header), content]);
    }
    (stored.stored - once) as f64 / HEADERS.len() as f64 / content.len() as f64
}

/// Asserts that at most two chunks and the header, and 1 % of a content, are stored again.
fn is_found(name: &str, content: &[u8]) {
    let again = stored_again(content);
    println!(
        "{name:40} {:6} KiB, stored again: {again:.4}",
        content.len() >> 10
    );
    let most = 0.01 + 16_384.0 / content.len() as f64;
    assert!(again <= most, "{name}: {again}");
}

#[test]
fn real_fields_and_checkpoints_are_found() {
    for dir in ["data/fields", "data/checkpoints"] {
        let Some(dir) = dataset(dir) else { return };
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "zst") {
                let file = std::fs::File::open(&path).unwrap();
                let mut bytes = Vec::new();
                let decoder = ruzstd::decoding::StreamingDecoder::new(file);
                decoder.unwrap().read_to_end(&mut bytes).unwrap();
                is_found(&path.file_name().unwrap().to_string_lossy(), &bytes);
            }
        }
    }
}

#[test]
fn arrays_of_few_values_are_found() {
    let mut random = Random::new(1);
    let two = (0..MIB / 8).flat_map(|_| random.pick(&[1.0f64, 2.5]).to_le_bytes());
    is_found("two values, f64", &two.collect::<Vec<u8>>());
    let small = (0..MIB / 8).flat_map(|_| random.below(10).to_le_bytes());
    is_found("integers below 10, u64", &small.collect::<Vec<u8>>());
    let bits = (0..MIB).map(|_| random.below(4) as u8);
    is_found("integers below 4, u8", &bits.collect::<Vec<u8>>());
}

#[test]
fn arrays_that_ascend_and_text_are_found() {
    let counted = (0..MIB as u64 / 8).flat_map(u64::to_le_bytes);
    is_found("counted, u64", &counted.collect::<Vec<u8>>());
    let ramp = (0..MIB / 4).flat_map(|i| (i as f32 * 0.001).to_le_bytes());
    is_found("ramp, f32", &ramp.collect::<Vec<u8>>());
    let lines = (0..40_000).map(|i| format!("{i},{:.6},7\n", f64::from(i).sin()));
    is_found("lines of numbers", lines.collect::<String>().as_bytes());
}

#[test]
fn what_stands_between_long_constants_and_zeros_is_found() {
    let mut random = Random::new(2);
    let mut content = Vec::new();
    while content.len() < 8 * MIB {
        let len = 8192 + random.index(65_536);
        content.extend(seeded_bytes(random.next(), len));
        let value = (random.below(3) as f32).to_le_bytes();
        content.extend(value.iter().cycle().take(4 * random.index(40_000)));
    }
    is_found("random bytes between constants", &content);
}

#[test]
fn small_files_are_found_from_64_kib_on() {
    for kib in [128, 256, 1024] {
        is_found("random bytes", &seeded_bytes(3, kib << 10));
    }
    // Less may have no anchor; then it is stored again.
    assert!(stored_again(&seeded_bytes(3, 8 << 10)) <= 1.6);
}

#[test]
fn an_insertion_costs_about_the_distance_of_anchors() {
    let content = seeded_bytes(9, 32 * MIB);
    let mut stored = Stored::new(4096, true);
    stored.add(&[&content]);
    let once = stored.stored;
    let inserted = seeded_bytes(10, 100);
    let parts = content.chunks(2 * MIB).flat_map(|part| [part, &inserted]);
    stored.add(&parts.collect::<Vec<_>>());
    let each = (stored.stored - once) / 16;
    assert!(each < 100 << 10, "{each}");
}

#[test]
fn bytes_that_repeat_at_distances_unlike_the_grid_are_stored_about_once() {
    for period in [100_000, 300_001, 1_000_003] {
        let content = seeded_bytes(13, period);
        let mut stored = Stored::new(4096, true);
        stored.add(&vec![&content[..]; 12_000_000 / period]);
        let times = stored.stored as f64 / period as f64;
        println!("period {period}: {times:.2} times");
        assert!(times < 5.0, "{times}");
    }
}

#[test]
fn zeros_are_holes_and_do_not_move_the_grid() {
    let content = seeded_bytes(12, MIB);
    let mut stored = Stored::new(4096, true);
    stored.add(&[&content, &vec![0; 5 * MIB], &content]);
    assert_eq!((stored.zero, stored.stored), (5 * MIB as u64, MIB as u64));
    let holes = vec![0; 3 * MIB + 700];
    let mut stored = Stored::new(4096, true);
    stored.add(&[&content, &holes, &content]);
    assert!(stored.zero >= 3 * MIB as u64 - 8192);
    assert!(stored.stored <= MIB as u64 + 16_384, "{}", stored.stored);
}
