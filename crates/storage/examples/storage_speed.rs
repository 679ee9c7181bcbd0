//! How fast a store is here: puts, gets and scans of small records on a real directory, printed as a table.
//!
//! `cargo run --release -p forebay-storage --example storage_speed [DIR] [RECORDS]`
//!
//! Keys of 16 bytes, values of 32. Durability `process` unless said otherwise; one thread unless said otherwise.
use forebay_storage::{Batch, Durability, Keyspace, Options, OsIo, Store};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const KS: Keyspace = Keyspace(0);

/// The key of record `i`, spread over the key space.
fn key(i: u64) -> Vec<u8> {
    let spread = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [spread.to_be_bytes(), i.to_be_bytes()].concat()
}

fn batch(range: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::new();
    for i in range {
        batch.put(KS, key(i), vec![i as u8; 32]);
    }
    batch
}

/// CPU time of this thread: on a shared machine it says more than the clock on the wall.
fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let (start, start_cpu) = (Instant::now(), cpu());
    let result = work()?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu() - start_cpu);
    let each = 1e6 / count as f64;
    println!(
        "{what:<44} {:>10.0} /s {:>9.3} us each {:>9.3} us CPU",
        count as f64 / wall,
        wall * each,
        cpu * each
    );
    Ok(result)
}

fn open(dir: &Path, options: &Options) -> Outcome<Store> {
    Ok(Store::open(Arc::new(OsIo), dir, options.clone())?)
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let base = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let records: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let dir = tempfile::tempdir_in(base)?;
    let options = Options::default();

    let store = open(&dir.path().join("single"), &options)?;
    let some = records / 4;
    timed("put, one a batch", some, || {
        Ok((0..some).try_for_each(|i| store.apply(batch(i..i + 1)))?)
    })?;
    let few = 40_000.min(records);
    let large = Options {
        memtable_bytes: 1 << 30,
        ..options.clone()
    };
    let memory = open(&dir.path().join("memory"), &large)?;
    memory.apply(batch(0..few))?;
    timed("get from the MemTable", few, || {
        Ok((0..few).try_for_each(|i| memory.get(KS, &key(i)).map(drop))?)
    })?;
    memory.close()?;

    let store = open(&dir.path().join("batches"), &options)?;
    timed("put, 100 a batch", records, || {
        Ok((0..records / 100).try_for_each(|i| store.apply(batch(i * 100..i * 100 + 100)))?)
    })?;
    let stall = store.stats().stall_nanos as f64 / 1e9;
    println!("  of this, puts waited {stall:.3} s for flushes and compactions");
    timed("flush and compact all", records, || Ok(store.compact()?))?;
    timed("get from tables, each from another block", some, || {
        Ok((0..some).try_for_each(|i| store.get(KS, &key(i)).map(drop))?)
    })?;
    timed("get from tables, cached blocks", some, || {
        Ok((0..some).try_for_each(|i| store.get(KS, &key(i % 1000)).map(drop))?)
    })?;
    timed("get of absent keys", some, || {
        Ok((records..records + some).try_for_each(|i| store.get(KS, &key(i)).map(drop))?)
    })?;
    let scanned = timed("scan", records, || {
        Ok(store
            .scan(KS, Bound::Unbounded, Bound::Unbounded)
            .filter(Result::is_ok)
            .count())
    })?;
    if scanned as u64 != records / 100 * 100 {
        return Err(format!("scan found {scanned} of {records} records").into());
    }
    println!("  {:#?}", store.stats());
    store.close()?;

    let disk = Options {
        durability: Durability::Disk,
        ..options
    };
    let store = open(&dir.path().join("disk"), &disk)?;
    let synced = 2_000;
    timed(
        "put, one a batch, durability disk, 8 threads",
        synced,
        || {
            std::thread::scope(|scope| {
                let part = synced / 8;
                let threads: Vec<_> = (0..8)
                    .map(|t| {
                        let store = &store;
                        scope.spawn(move || {
                            (t * part..(t + 1) * part)
                                .try_for_each(|i| store.apply(batch(i..i + 1)))
                        })
                    })
                    .collect();
                for thread in threads {
                    thread.join().map_err(|_| "a thread panicked")??;
                }
                Ok(())
            })
        },
    )?;
    store.close()?;
    Ok(())
}
