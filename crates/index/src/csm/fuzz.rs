//! Fuzzers of every decoder of the index: mutated bytes are refused, or decode to a valid value; no panic, no memory beyond the
//! limits, and no flipped bits are accepted where there is a checksum.
//!
//! Short form: some thousand mutations each; `SOAK=1`: ten minutes each (or `SOAK_SECONDS`).
use super::block::{Block, BlockSplitter, decode_columns, encode_columns};
use super::engine::files;
use super::lookup::lazy_block::LazyBlock;
use super::record::{Key, RECORD, Record};
use super::table::TableMeta;
use super::table::footer::{Footer, LENGTH};
use super::table::region;
use super::table::region::BlockLocation;
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;
use std::path::Path;

/// Records as files have them: strided, of several writers, wild; some are deletes.
fn samples() -> Vec<Vec<Record>> {
    let mut random = Random::new(7);
    let mut samples = Vec::new();
    for count in [1, 2, 89, 300u64] {
        for wild in [false, true] {
            let mut record = |i: u64| {
                let fid = if wild { 1 + i / 40 } else { 1 };
                let key = Key {
                    fid,
                    offset: i * 47008,
                };
                let random = if wild { random.below(1 << 40) } else { 0 };
                match random % 5 {
                    1 => Record::delete(key),
                    _ => Record {
                        key,
                        len: 47008 - (random % 1000) as u32,
                        member: (random % 7) as u16,
                        log: 900 + i % 16 + random % 3,
                        addr: i / 16 * 47008 + random,
                        seq: 5 + random % 9,
                    },
                }
            };
            samples.push((0..count).map(&mut record).collect());
        }
    }
    samples
}

fn blocks() -> Vec<Block> {
    let records: Vec<Record> = samples().pop().unwrap_or_default();
    let mut splitter = BlockSplitter::new(1000);
    let mut blocks: Vec<Block> = records.iter().filter_map(|r| splitter.add(*r)).collect();
    blocks.extend(splitter.cut());
    blocks
}

#[test]
fn blocks_and_log_entries() {
    let encoded = |records: &Vec<Record>| {
        let mut bytes = Vec::new();
        encode_columns(records, &mut bytes);
        bytes
    };
    let samples = samples();
    let corpus: Vec<Vec<u8>> = samples.iter().map(encoded).collect();
    let mut accepted = 0u64;
    fuzz(
        "blocks and log entries",
        20_000,
        &corpus,
        |random, first, bytes| {
            let mut records = Vec::new();
            if decode_columns(&bytes, &mut records).is_some() {
                accepted += 1;
                let mut again = Vec::new();
                assert_eq!(decode_columns(&encoded(&records), &mut again), Some(()));
                assert_eq!(again, records);
            }
            assert!(
                records.capacity() * size_of::<Record>()
                    <= (32 << 20) / RECORD * size_of::<Record>()
            );
            // As a lookup opens it, which knows the range of keys from elsewhere.
            let of = corpus.iter().position(|c| c == first).unwrap_or_default();
            let (from, to) = (samples[of][0].key, samples[of][samples[of].len() - 1].key);
            let mut opened = LazyBlock::default();
            if opened.open(&bytes, from, to, random.index(400)).is_some() {
                let mut out = Vec::new();
                let at = opened.at_or_above(samples[of][samples[of].len() / 2].key, 0);
                let _ = opened.records(at.min(opened.rows())..opened.rows(), &mut out);
                let _ = opened.records(0..1, &mut out);
            }
            let block: Block = Block {
                first: from,
                last: to,
                records: samples[of].len() as u32,
                deletes: true,
                bytes: bytes.into(),
            };
            let mut told = Vec::new();
            if block.records(&mut told).is_some() {
                assert!(told.is_sorted_by(|a, b| a.key < b.key));
                assert_eq!(told.len(), block.records as usize);
            }
        },
    );
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn regions() {
    let mut offset = 0;
    let places: Vec<BlockLocation> = blocks()
        .iter()
        .map(|block| {
            let place = BlockLocation::of(block, offset);
            offset = place.end();
            place
        })
        .collect();
    let encoded = |places: &[BlockLocation]| {
        let mut bytes = Vec::new();
        region::encode(places, &mut bytes);
        bytes
    };
    let corpus: Vec<Vec<u8>> = (1..places.len()).map(|n| encoded(&places[..n])).collect();
    fuzz(
        "metadata regions",
        20_000,
        &corpus,
        |random, first, bytes| {
            let of = corpus.iter().position(|c| c == first).unwrap_or_default();
            let places = &places[..=of];
            let start = random.index(1000) as u64;
            let counts = [places.len() as u32, u32::MAX, random.index(300) as u32];
            for blocks in counts {
                if let Some(read) = region::decode(&bytes, blocks, start) {
                    assert_eq!(read.len(), blocks as usize);
                    assert!(
                        read.windows(2)
                            .all(|p| p[0].last < p[1].first && p[0].end() == p[1].offset)
                    );
                    assert!(read.first().is_none_or(|p| p.offset == start));
                    let again = region::decode(&encoded(&read), blocks, start);
                    assert_eq!(again.as_deref(), Some(&read[..]));
                }
            }
        },
    );
}

#[test]
fn footers() {
    let footer = |n: u64| Footer {
        blocks: n as u32,
        records: n * 89,
        region_at: n * 200,
        region_len: n as u32 * 7,
        region_crc: n as u32 ^ 0x1234_5678,
    };
    let corpus: Vec<Vec<u8>> = [0, 1, 256, 1 << 20]
        .map(|n| footer(n).encode().to_vec())
        .into();
    let length = |bytes: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        u64::from(word(24)) + u64::from(word(32)) + LENGTH as u64
    };
    let path = Path::new("t");
    fuzz("footers", 50_000, &corpus, |random, first, mut bytes| {
        let length = length(first);
        assert!(Footer::decode(first, length, path).is_ok());
        let _ = Footer::decode(&bytes, length, path);
        // With the right checksum.
        if bytes.len() == LENGTH {
            let sum = forebay_checksum::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(footer) = Footer::decode(&bytes, length, path) {
                let end = footer.region_at + u64::from(footer.region_len) + LENGTH as u64;
                assert!(end <= length);
            }
        }
        // The checksum catches up to five flipped bits in so few bytes, wherever they are.
        let mut flipped = first.to_vec();
        random.flip(&mut flipped, 5);
        assert!(Footer::decode(&flipped, length, path).is_err());
    });
}

#[test]
fn what_the_manifest_tells() {
    let path = Path::new("side-3.tbl");
    let meta = |n: u64| TableMeta {
        number: 3,
        bytes: n,
        records: n / 2,
        first: Key { fid: n, offset: 1 },
        last: Key { fid: n, offset: n },
        deletes: n.is_multiple_of(2),
    };
    let corpus: Vec<Vec<u8>> = [0, 1, 300, u64::MAX]
        .map(|n| files::table_record(n, &meta(n), path).unwrap().to_vec())
        .into();
    fuzz(
        "the manifest's entries",
        50_000,
        &corpus,
        |_, first, bytes| {
            assert!(files::read(3, first).is_ok());
            if let Ok((age, meta)) = files::read(3, &bytes) {
                assert_eq!(
                    files::read(3, &files::table_record(age, &meta, path).unwrap()),
                    Ok((age, meta))
                );
            }
        },
    );
}
