//! How fast records enter the index: sixteen writers of one file, as IOR writes it.
//!
//! `put_speed RECORDS ORDER [BLOCK_BYTES [SEQUENCES]]`, with ORDER one of `lockstep`, `drifting`, `random`. Each writer owns every sixteenth
//! piece of 1,024 bytes, and publishes batches of 1,024 records; SEQUENCES is `batch` (each batch is a commit, as in the file system) or `writer`.
#![allow(clippy::unwrap_used)]
use forebay_index::csm::engine::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::{Batch, Options, OsIo, Store};
use std::sync::Arc;
use std::time::Instant;

const WRITERS: u64 = 16;
const BATCH: u64 = 1024;
const PIECE: u64 = 1024;
/// How far the fastest writer may be ahead of the slowest, in batches.
const LEAD: u64 = 24;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Which writer's batch comes next, to the end of all.
fn schedule(batches: u64, order: &str) -> Vec<usize> {
    let each = batches / WRITERS;
    if order != "drifting" {
        return (0..batches).map(|b| (b % WRITERS) as usize).collect();
    }
    let mut dice = Dice(7);
    let mut done = [0u64; WRITERS as usize];
    let mut all = Vec::new();
    while (all.len() as u64) < batches {
        // Writers of high numbers are faster.
        let pick = dice.below(WRITERS * (WRITERS + 32));
        let mut w = 0;
        let mut at = 32 + 2 * w;
        while pick >= at && w + 1 < WRITERS {
            w += 1;
            at += 32 + 2 * w;
        }
        let slowest = *done.iter().min().unwrap();
        let w = w as usize;
        if done[w] < each && done[w] < slowest + LEAD {
            done[w] += 1;
            all.push(w);
        }
    }
    all
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let records: u64 = args[0].parse().unwrap();
    let order = args[1].as_str();
    let block_bytes = args.get(2).map_or(4096, |a| a.parse().unwrap());
    let by_writer = args.get(3).is_some_and(|a| a == "writer");
    let each = records / WRITERS / BATCH * BATCH;
    let mut dice = Dice(1);
    let turns: Vec<Vec<u32>> = (0..WRITERS)
        .map(|_| {
            let mut turns: Vec<u32> = (0..each as u32).collect();
            if order == "random" {
                for i in (1..turns.len()).rev() {
                    turns.swap(i, dice.below(i as u64 + 1) as usize);
                }
            }
            turns
        })
        .collect();
    let schedule = schedule(each / BATCH * WRITERS, order);
    let dir = tempfile::tempdir_in(std::env::var("DIR").unwrap_or(String::from("/tmp"))).unwrap();
    let options = Options::default();
    let store = Arc::new(Store::open(Arc::new(OsIo), &dir.path().join("store"), options).unwrap());
    let settings = Settings {
        block_bytes,
        ..Settings::default()
    };
    let index = ExtentIndex::open(&store, settings).unwrap();
    let mut done = [0u64; WRITERS as usize];
    let mut changes = Vec::new();
    let (mut peak, mut changing) = (0, 0);
    let start = Instant::now();
    for (seq, &w) in schedule.iter().enumerate() {
        changes.clear();
        for k in 0..BATCH {
            let i = done[w] + k;
            let turn = u64::from(turns[w][i as usize]);
            changes.push(Change::Put(Extent {
                offset: (turn * WRITERS + w as u64) * PIECE,
                len: PIECE,
                member: (w / 4) as u16,
                log: 900 + 7 * w as u64,
                addr: i * PIECE,
                seq: if by_writer {
                    1 + w as u64
                } else {
                    1 + seq as u64
                },
            }));
        }
        done[w] += BATCH;
        let mut batch = Batch::new();
        let before = Instant::now();
        let displaced = index.change(&mut batch, 1, &changes).unwrap();
        changing += before.elapsed().as_nanos() as u64;
        assert!(displaced.is_empty());
        store.apply(batch).unwrap();
        if seq % 16 == 0 {
            let s = index.engine().stats();
            peak = peak.max(s.memtable_bytes + s.buffer_bytes + s.cache_bytes + s.region_bytes);
        }
    }
    let put = start.elapsed();
    let s = index.engine().stats();
    let n = (each * WRITERS) as f64;
    println!(
        "{order} {n} records: {:.3} M/s, {:.0} ns/record, of it change {:.0}, stall {:.0}",
        n / put.as_secs_f64() / 1e6,
        put.as_nanos() as f64 / n,
        changing as f64 / n,
        s.stall_nanos as f64 / n
    );
    println!(
        "  passed {} merged {} made {} sealed {} flushes {} compactions {} peak memory {:.1} MiB",
        s.blocks_passed,
        s.blocks_merged,
        s.blocks_made,
        s.sealed,
        s.flushes,
        s.compactions,
        peak as f64 / 1048576.0
    );
    index.engine().flush().unwrap();
    let flushed = start.elapsed();
    let s = index.engine().stats();
    let w = store.stats();
    println!(
        "  flushed after {:.3} s: {} runs {} tables, {:.3} B/record on disk, tables written {:.3} B/record, log {:.3} B/record",
        flushed.as_secs_f64(),
        s.runs,
        s.tables,
        s.table_bytes as f64 / n,
        s.bytes_written as f64 / n,
        w.bytes_written as f64 / n
    );
    println!("  {s:?}");
    index.engine().compact().unwrap();
    let s = index.engine().stats();
    println!(
        "  compacted after {:.3} s: {} tables, {:.3} B/record on disk, written {:.3}; {} records",
        start.elapsed().as_secs_f64(),
        s.tables,
        s.table_bytes as f64 / n,
        s.bytes_written as f64 / n,
        s.table_records
    );
}
