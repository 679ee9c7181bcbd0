//! How fast a store settles: `SOAK=1 cargo test --release -p forebay-data --test it settle_speed -- --nocapture`. Without `SOAK` it only
//! looks whether it does.
use crate::common::{options, settle_options};
use forebay_data::{LogId, LogStore, LogStoreOptions, SettleOptions};
use forebay_proto::Fid;
use forebay_storage::{Options, OsIo, PooledIo, Store};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::count;
use std::sync::Arc;
use std::time::Instant;

const MIB: usize = 1 << 20;

fn write(logs: &LogStore, bytes: &[u8]) -> LogId {
    let log = logs.create_log(Fid(1), Default::default()).unwrap();
    for part in bytes.chunks(MIB) {
        logs.append(log, part).unwrap();
    }
    logs.flush(log, false).unwrap();
    log
}

fn read(logs: &LogStore, log: LogId, len: usize) -> f64 {
    let mut buf = vec![0; MIB];
    let begun = Instant::now();
    for at in (0..len).step_by(MIB) {
        logs.read(log, at as u64, &mut buf).unwrap();
    }
    len as f64 / MIB as f64 / begun.elapsed().as_secs_f64()
}

#[test]
fn a_chain_of_checkpoints_is_settled_and_read_back() {
    let (mib, checkpoints) = count((8, 3), (256, 20));
    let dir = tempfile::tempdir().unwrap();
    // As a server does: files stay open.
    let io = Arc::new(PooledIo::new(OsIo, 256));
    let records = dir.path().join("store");
    let store = Arc::new(Store::open(io.clone(), &records, Options::default()).unwrap());
    let options = LogStoreOptions {
        buffer_bytes: 32 << 20,
        settle: Some(SettleOptions {
            index_bytes: 64 << 20,
            anchor_bytes: 8 << 20,
            ..settle_options()
        }),
        ..options()
    };
    let logs = LogStore::open(io, &dir.path().join("data"), store, options).unwrap();
    let mut bytes = seeded_bytes(1, mib * MIB);
    let mut random = Random::new(3);
    let mut raw = 0.0;
    for n in 0..checkpoints {
        if n > 0 {
            // A fifth changes, by pages.
            for _ in 0..mib * 256 / 5 {
                let page = random.index(mib * 256) * 4096;
                let new = random.next();
                bytes[page..page + 4096]
                    .chunks_exact_mut(8)
                    .zip(0..)
                    .for_each(|(w, i)| w.copy_from_slice(&(new ^ (i * 0x9E37_79B9)).to_le_bytes()));
            }
        }
        let log = write(&logs, &bytes);
        let raw_now = read(&logs, log, bytes.len());
        if n == 0 {
            raw = raw_now;
        }
        let begun = Instant::now();
        logs.settle().unwrap();
        let settled = mib as f64 / begun.elapsed().as_secs_f64();
        let mapped = read(&logs, log, bytes.len());
        let stats = logs.stats();
        assert_eq!(stats.settled, stats.live);
        println!(
            "checkpoint {n}: settled at {settled:.0} MiB/s; read raw {raw_now:.0}, settled {mapped:.0} MiB/s ({:.2} of raw); stored {:.3}",
            mapped / raw,
            stats.stored as f64 / stats.live as f64
        );
        let mut buf = vec![0; bytes.len()];
        logs.read(log, 0, &mut buf).unwrap();
        assert!(buf == bytes);
        logs.clean(false).unwrap();
    }
}
