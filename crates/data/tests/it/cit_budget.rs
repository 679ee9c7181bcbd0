//! What a chunk information table with little memory finds, of what an exact one finds: chains of checkpoints, of which there
//! are fingerprints alone. With `SOAK=1` 16 M chunks (64 GiB of 4 KiB) are stored.
use forebay_data::cit::{ChunkLocation, Cit, CitOptions, FingerprintLists};
use forebay_data::fingerprint::Fingerprint;
use forebay_proto::Result;
use forebay_testkit::random::Random;
use forebay_testkit::seeds::count;
use std::time::{Duration, Instant};

const CHECKPOINTS: u64 = 5;
/// Chunks of a container of 1 MiB.
const CONTAINER: usize = 256;
/// Chunks that are looked up together.
const BATCH: usize = 256;

/// Containers, by the numbers of the contents in them.
#[derive(Default)]
struct Containers(Vec<Vec<u32>>);

impl FingerprintLists for Containers {
    fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>> {
        let list = self.0.get(container as usize);
        let fingerprints = |list: &Vec<u32>| list.iter().map(|c| Some(of(*c))).collect();
        Ok(list.map(fingerprints))
    }
}

/// Stands for the hash of a content.
fn of(content: u32) -> Fingerprint {
    let mut random = Random::new(u64::from(content));
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&random.next().to_le_bytes());
    bytes[8..16].copy_from_slice(&random.next().to_le_bytes());
    bytes[16..].copy_from_slice(&random.next().to_le_bytes()[..4]);
    Fingerprint(bytes)
}

struct Outcome {
    /// Chunks whose content was stored before, and those of them that were found.
    duplicates: u64,
    found: u64,
    stored: u64,
    memory: u64,
    rate: u64,
    list_reads: u64,
    lookup: Duration,
}

/// `streams` logs at a time write a chain of checkpoints of `chunks` each, of which 20 % change in runs of so many chunks.
fn chain(chunks: usize, run: usize, streams: usize, budget: usize) -> Outcome {
    let cit = Cit::new(CitOptions { budget });
    let mut containers = Containers(vec![Vec::new()]);
    let mut random = Random::new(run as u64);
    let mut next = chunks as u32;
    let mut contents: Vec<u32> = (0..next).collect();
    let mut seen = vec![false; chunks * 2];
    let (mut duplicates, mut found, mut lookup) = (0, 0, Duration::ZERO);
    for checkpoint in 0..CHECKPOINTS {
        if checkpoint > 0 {
            let runs = chunks / run;
            let mut order: Vec<usize> = (0..runs).collect();
            for i in 0..runs / 5 {
                order.swap(i, i + random.index(runs - i));
                for content in &mut contents[order[i] * run..][..run] {
                    *content = next;
                    next += 1;
                }
            }
        }
        // Each stream has a part of the checkpoint; they take turns.
        let part = chunks / streams;
        for batch in (0..part).step_by(BATCH) {
            for stream in 0..streams {
                let from = stream * part + batch;
                let batch = &contents[from..(from + BATCH).min((stream + 1) * part)];
                let sought: Vec<Fingerprint> = batch.iter().map(|c| of(*c)).collect();
                let start = Instant::now();
                let places = cit
                    .find_batch(&sought, &containers, |_, _| Ok(true))
                    .unwrap();
                lookup += start.elapsed();
                for ((content, fingerprint), place) in batch.iter().zip(&sought).zip(places) {
                    duplicates += u64::from(std::mem::replace(&mut seen[*content as usize], true));
                    if let Some(place) = place {
                        found += 1;
                        assert_eq!(
                            containers.0[place.container as usize][place.index as usize],
                            *content
                        );
                        continue;
                    }
                    if containers.0.last().unwrap().len() == CONTAINER {
                        containers.0.push(Vec::new());
                    }
                    let container = containers.0.len() as u64 - 1;
                    let list = &mut containers.0[container as usize];
                    let index = list.len() as u32;
                    list.push(*content);
                    let start = Instant::now();
                    cit.insert(ChunkLocation { container, index }, fingerprint);
                    lookup += start.elapsed();
                }
            }
        }
    }
    let stats = cit.stats();
    Outcome {
        duplicates,
        found,
        stored: containers.0.iter().map(|c| c.len() as u64).sum(),
        memory: stats.memory,
        rate: stats.rate,
        list_reads: stats.list_reads,
        lookup,
    }
}

#[test]
fn index_64g() {
    let stored = count(1 << 20, 16 << 20);
    let chunks = (stored as f64 / 1.8) as usize;
    // 64 MiB for each TiB of chunks of 4 KiB.
    let budget = stored * 4096 / (1 << 14);
    // Runs of so many chunks change, and so many logs are written at a time.
    let cases = [(64, 1), (1, 8), (64, 8), (1, 1)];
    for (run, streams) in cases.into_iter().take(count(2, 4)) {
        let o = chain(chunks, run, streams, budget);
        let tib = (o.stored * 4096) as f64 / (1u64 << 40) as f64;
        let ratio = o.found as f64 / o.duplicates as f64;
        println!(
            "runs of {run:2} chunks, {streams} streams: {} M chunks stored, cit {:.1} MiB a TiB, rate 1/{}, \
             found_ratio {ratio:.4}, {} list reads, {:.0} ns a chunk",
            o.stored >> 20,
            o.memory as f64 / tib / f64::from(1 << 20),
            o.rate,
            o.list_reads,
            o.lookup.as_nanos() as f64 / (chunks as f64 * CHECKPOINTS as f64),
        );
        let most = budget as u64 + budget as u64 / 50;
        assert!(o.memory <= most, "{}", o.memory);
        assert!(ratio >= 0.98, "{ratio}");
    }
}
