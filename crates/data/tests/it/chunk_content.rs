//! What is found again of contents of several kinds, where it stands behind something of another length.
use crate::chunk_chains::Stored;
use forebay_testkit::datasets::dataset;
use forebay_testkit::random::{Random, seeded_bytes};
use std::io::Read;

const HEADERS: [usize; 4] = [137, 512, 4113, 9999];

/// Stored bytes of copies of `content` behind headers, by its length: 0 if each of its chunks is found.
fn lost(content: &[u8], size: u32) -> f64 {
    let mut stored = Stored::new(size, true);
    stored.add(&[content]);
    let once = stored.stored;
    for (i, header) in (0..).zip(HEADERS) {
        stored.add(&[&seeded_bytes(i, header), content]);
    }
    (stored.stored - once) as f64 / HEADERS.len() as f64 / content.len() as f64
}

#[test]
fn real_fields_and_checkpoints_are_found_behind_headers() {
    for dir in ["data/fields", "data/checkpoints"] {
        let Some(dir) = dataset(dir) else { return };
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "zst") {
                continue;
            }
            let file = std::fs::File::open(&path).unwrap();
            let mut bytes = Vec::new();
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).unwrap();
            decoder.read_to_end(&mut bytes).unwrap();
            let mut one = Stored::new(4096, true);
            one.add(&[&bytes]);
            let lost = lost(&bytes, 4096);
            println!(
                "{:50} {:8} bytes, zero {:.3} of it, unique {:.3}, {lost:.4} of it is stored again",
                path.file_name().unwrap().display(),
                bytes.len(),
                one.zero as f64 / bytes.len() as f64,
                one.stored as f64 / bytes.len() as f64
            );
        }
    }
}

#[test]
fn probe() {
    for len in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let content = seeded_bytes(3, len);
        println!("random {len} {:.4}", lost(&content, 4096));
    }
    let mut random = Random::new(1);
    // f64 of two values in random order, of two values in runs, small integers, text
    let two: Vec<u8> = (0..1 << 19)
        .flat_map(|_| [1.0f64, 2.5][random.index(2)].to_le_bytes())
        .collect();
    println!("two f64 {:.4}", lost(&two, 4096));
    let mut runs = Vec::new();
    while runs.len() < 4 << 20 {
        let v = [1.0f32, 1e20][random.index(2)].to_le_bytes();
        for _ in 0..random.below(500) {
            runs.extend_from_slice(&v);
        }
    }
    println!("runs of two f32 {:.4}", lost(&runs, 4096));
    let small: Vec<u8> = (0..1 << 19)
        .flat_map(|_| random.below(10).to_le_bytes())
        .collect();
    println!("small u64 {:.4}", lost(&small, 4096));
    let bytes: Vec<u8> = (0..1 << 22).map(|_| random.below(4) as u8).collect();
    println!("2-bit bytes {:.4}", lost(&bytes, 4096));
    let iota: Vec<u8> = (0..1u64 << 19).flat_map(|i| i.to_le_bytes()).collect();
    println!("iota u64 {:.4}", lost(&iota, 4096));
    let iota: Vec<u8> = (0..1u32 << 20)
        .flat_map(|i| (i as f32 * 0.001).to_le_bytes())
        .collect();
    println!("ramp f32 {:.4}", lost(&iota, 4096));
    let text: String = (0..300_000)
        .map(|i| format!("{i} {}\n", random.below(1000)))
        .collect();
    println!("text {:.4}", lost(text.as_bytes(), 4096));
    let mut csv = String::new();
    for i in 0..100_000 {
        csv += &format!(
            "{:.3},{:.3},{}\n",
            i as f64 * 0.1,
            (i as f64 * 0.01).sin(),
            random.below(2)
        );
    }
    println!("csv {:.4}", lost(csv.as_bytes(), 4096));
    let mut sparse = vec![0u8; 8 << 20];
    for _ in 0..200 {
        let at = random.index(sparse.len() - 8);
        sparse[at..at + 8].copy_from_slice(&random.next().to_le_bytes());
    }
    println!("sparse {:.4}", lost(&sparse, 4096));
    let mut consts = Vec::new();
    while consts.len() < 16 << 20 {
        let n = 8192 + random.index(65536);
        consts.extend(seeded_bytes(random.next(), n));
        let v = (random.below(100) as f32).to_le_bytes();
        for _ in 0..random.below(40000) {
            consts.extend_from_slice(&v);
        }
    }
    println!("constants {:.4}", lost(&consts, 4096));
    // insertions
    let base = seeded_bytes(9, 64 << 20);
    let mut st = Stored::new(4096, true);
    st.add(&[&base]);
    let once = st.stored;
    let mut other = Vec::new();
    for (i, part) in base.chunks(4 << 20).enumerate() {
        other.extend_from_slice(part);
        other.extend(seeded_bytes(i as u64, 100));
    }
    st.add(&[&other]);
    println!(
        "insertions each 4 MiB: lost KiB each {}",
        (st.stored - once) / 1024 / 16
    );
    // archive of files in other order with 512-byte headers
    let files: Vec<Vec<u8>> = (0..200)
        .map(|i| seeded_bytes(i + 77, 20_000 + (i as usize * 7919) % 300_000))
        .collect();
    let mut st = Stored::new(4096, true);
    for f in &files {
        st.add(&[f]);
    }
    let once = st.stored;
    let mut tar = Vec::new();
    for f in files.iter().rev() {
        tar.extend(seeded_bytes(f.len() as u64, 512));
        tar.extend_from_slice(f);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    st.add(&[&tar]);
    println!(
        "archive {:.4}",
        (st.stored - once) as f64 / tar.len() as f64
    );
}
