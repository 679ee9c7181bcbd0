//! How fast bytes in memory are cut, fingerprinted and looked up by one thread. It prints; a busy machine decides nothing.
use forebay_data::chunk::{AnchorTable, Chunk, ChunkSize, Cutter};
use forebay_data::cit::{ChunkLocation, Cit, CitOptions, FingerprintLists};
use forebay_data::fingerprint::{Fingerprint, FingerprintKind};
use forebay_data::span::checksums;
use forebay_proto::Result;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::seeds::count;
use std::sync::Arc;
use std::time::Instant;

const PIECE: usize = 1 << 20;

struct Containers(Vec<Vec<Option<Fingerprint>>>);

impl FingerprintLists for Containers {
    fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>> {
        Ok(self.0.get(container as usize).cloned())
    }
}

/// Calls `work` with the chunks of all pieces, cut, and prints how fast that was.
fn measure(name: &str, cutter: impl Fn() -> Cutter, bytes: &[u8], mut work: impl FnMut(Chunk<'_>)) {
    let mut speeds: Vec<f64> = (0..5)
        .map(|_| {
            let (mut cutter, start) = (cutter(), Instant::now());
            for (i, piece) in bytes.chunks(PIECE).enumerate() {
                cutter.push((i * PIECE) as u64, piece, &mut work);
            }
            cutter.finish(&mut work);
            bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    println!(
        "{name:60} {:6.2} GB/s ({:.2} to {:.2})",
        speeds[2], speeds[0], speeds[4]
    );
}

#[test]
fn cutting_and_what_follows() {
    let random = seeded_bytes(1, count(4 << 20, 256 << 20));
    let zeros = vec![0; random.len()];
    let size = |bytes| ChunkSize::new(bytes).unwrap();
    for chunk in [4 << 10, 16 << 10, 64 << 10] {
        let table = Arc::new(AnchorTable::new(size(chunk), 4 << 20));
        let anchored = || Cutter::anchored(table.clone());
        let kib = chunk >> 10;
        let mut sum = 0;
        measure(
            &format!("fixed, {kib} KiB"),
            || Cutter::fixed(size(chunk)),
            &random,
            |c| sum += c.bytes.len(),
        );
        measure(&format!("anchored, {kib} KiB"), anchored, &random, |c| {
            sum += c.bytes.len()
        });
        measure(
            &format!("anchored, {kib} KiB, zeros"),
            anchored,
            &zeros,
            |c| sum += c.bytes.len(),
        );
        for (name, kind) in [
            ("BLAKE3", FingerprintKind::Blake3),
            ("SHA-1", FingerprintKind::Sha1),
        ] {
            let mut any = 0;
            measure(
                &format!("anchored, {kib} KiB, {name}"),
                anchored,
                &random,
                |c| any ^= kind.of(c.bytes).0[0],
            );
        }
        let cit = Cit::new(CitOptions { budget: 1 << 20 });
        let mut containers = Containers(vec![Vec::new()]);
        let mut batch = Vec::new();
        let (mut crcs, mut duplicates) = (0, 0u64);
        measure(
            &format!("anchored, {kib} KiB, BLAKE3, CRC32C, CIT"),
            anchored,
            &random,
            |chunk| {
                // The bytes are verified when they are read, and have checksums where they are stored.
                crcs ^= checksums(0, chunk.bytes)[0];
                batch.push(FingerprintKind::Blake3.of(chunk.bytes));
                if batch.len() < 256 {
                    return;
                }
                let found = cit
                    .find_batch(&batch, &containers, |_, _| Ok(true))
                    .unwrap();
                for (fingerprint, found) in batch.drain(..).zip(found) {
                    if found.is_some() {
                        duplicates += 1;
                        continue;
                    }
                    if containers.0.last().unwrap().len() == 256 {
                        containers.0.push(Vec::new());
                    }
                    let container = containers.0.len() as u64 - 1;
                    let list = &mut containers.0[container as usize];
                    let index = list.len() as u32;
                    list.push(Some(fingerprint));
                    cit.insert(ChunkLocation { container, index }, &fingerprint);
                }
            },
        );
        // The first of the runs stores, the others find, but for what is looked up together.
        println!("  {duplicates} duplicates were found");
        assert!(sum > 0);
    }
}
