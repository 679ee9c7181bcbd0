//! A log store in a directory of its own, and bytes that say where they are.
use forebay_data::chunk::ChunkSize;
use forebay_data::fingerprint::FingerprintKind;
use forebay_data::transfer_form;
use forebay_data::{CodecWhen, LogId, LogPart, LogStore, LogStoreOptions, SettleOptions};
use forebay_proto::data::{DataService, LogPiece, ReadPieces};
use forebay_proto::{Error, Result};
use forebay_storage::{Options, OsIo, Store};
use forebay_testkit::random::Random;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A log store without the cleaning thread.
pub struct Fixture {
    dir: TempDir,
    pub store: Arc<Store>,
    options: LogStoreOptions,
    pub logs: LogStore,
}

pub fn options() -> LogStoreOptions {
    LogStoreOptions {
        member: 3,
        quota: None,
        buffer_bytes: 4 << 20,
        sync_each_flush: false,
        reserve: Arc::default(),
        settle: None,
        codec_when: CodecWhen::Off,
        background: false,
    }
}

/// Of chunks of 4 KiB.
pub fn settle_options() -> SettleOptions {
    SettleOptions {
        chunk: ChunkSize::MIN,
        fingerprint: FingerprintKind::Blake3,
        index_bytes: 1 << 20,
        anchor_bytes: 1 << 20,
        backlog_bytes: 1 << 30,
    }
}

impl Fixture {
    pub fn new(options: LogStoreOptions) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(
            Store::open(
                Arc::new(OsIo),
                &dir.path().join("store"),
                Options::default(),
            )
            .unwrap(),
        );
        let logs = open(&dir.path().join("data"), &store, &options);
        Fixture {
            dir,
            store,
            options,
            logs,
        }
    }
    /// As after a kill: what was only in memory is gone.
    pub fn crash(&mut self) {
        self.logs = open(&self.dir.path().join("data"), &self.store, &self.options);
    }
    /// As after a kill, with other settings.
    pub fn reopen(&mut self, options: LogStoreOptions) {
        self.options = options;
        self.crash();
    }
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    pub fn segments(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(self.data_dir())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        found.sort();
        found
    }
    /// As this member reads, and as another one does: both get the same.
    pub fn read(&self, log: LogId, addr: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0xee; len];
        let here = self.logs.read(log, addr, &mut buf).map(|()| buf);
        let elsewhere = read_from_elsewhere(&self.logs, log, addr, len);
        match (&here, elsewhere) {
            (Ok(here), Ok((elsewhere, _))) => assert!(*here == elsewhere, "{log} {addr}+{len}"),
            (Err(here), Err(elsewhere)) => assert_eq!(here.errno(), elsewhere.errno()),
            (Ok(_), Err(e)) => panic!("{log} {addr}+{len}: only elsewhere: {e}"),
            (Err(e), Ok(_)) => panic!("{log} {addr}+{len}: only here: {e}"),
        }
        here
    }
}

/// Reads these ranges of logs by one call, sorted, and compares each with its `pattern`.
///
/// # Errors
/// As the read.
pub fn read_parts(logs: &LogStore, wanted: &[(LogId, Range<u64>)]) -> Result<()> {
    let len = |range: &Range<u64>| (range.end - range.start) as usize;
    let mut bytes: Vec<Vec<u8>> = wanted.iter().map(|(_, r)| vec![0xee; len(r)]).collect();
    let mut parts: Vec<LogPart<'_>> = (wanted.iter().zip(&mut bytes))
        .map(|((log, range), into)| LogPart {
            log: *log,
            addr: range.start,
            into,
        })
        .collect();
    parts.sort_unstable_by_key(|part| (part.log, part.addr));
    logs.read_parts(&mut parts)?;
    for ((log, range), bytes) in wanted.iter().zip(bytes) {
        let is_right = bytes == pattern(*log, range.start, len(range));
        assert!(is_right, "wrong bytes of log {log} at {range:?}");
    }
    Ok(())
}

/// As another member reads; and how many bytes were sent to it.
pub fn read_from_elsewhere(
    logs: &LogStore,
    log: LogId,
    addr: u64,
    len: usize,
) -> Result<(Vec<u8>, usize)> {
    let piece = LogPiece {
        log,
        addr,
        len: len as u32,
    };
    let pieces = vec![piece];
    let read = logs.read_pieces(0, ReadPieces { pieces })?;
    let [sent] = &read.buffers[..] else {
        panic!("{} buffers for a piece", read.buffers.len());
    };
    if read.encoded.is_empty() {
        return Ok((sent.to_vec(), sent.len()));
    }
    assert_eq!(read.encoded, [0]);
    let mut buf = vec![0xee; len];
    transfer_form::decode(sent, &mut buf).unwrap();
    Ok((buf, sent.len()))
}

fn open(dir: &Path, store: &Arc<Store>, options: &LogStoreOptions) -> LogStore {
    let io = Arc::new(OsIo);
    LogStore::open(io, dir, store.clone(), options.clone()).unwrap()
}

/// Numbers that a codec makes short: a sine wave of this many values with noise in the lowest bits.
pub fn wave(seed: u64, values: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let start = random.below(1 << 20) as f32;
    let value = |i: usize| 280.0 + 9.0 * ((start + i as f32) * 1e-3).sin();
    let noisy = |i: usize| f32::from_bits(value(i).to_bits() ^ (random.next() & 15) as u32);
    (0..values).map(noisy).flat_map(f32::to_le_bytes).collect()
}

/// Bytes that say where they are.
pub fn pattern(log: LogId, addr: u64, len: usize) -> Vec<u8> {
    (addr..addr + len as u64)
        .map(|a| (a.wrapping_mul(0x9E37_79B9).wrapping_add(log * 77) >> 11) as u8)
        .collect()
}

pub fn is_gone<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Gone { member: 3, .. }))
}
