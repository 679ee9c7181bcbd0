//! Rounds: one I/O for many, whatever happens to the reader.
use super::super::{TableContext, TableMeta, Writer};
use super::*;
use crate::cluster::Alpha;
use crate::csm::block::{BlockSplitter, records_of};
use crate::csm::record::{Key, Record};
use bytes::Bytes;
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Error, OsIo, PossibleLoss, Provenance};
use parking_lot::Condvar;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the next reads of a file meet.
#[derive(Default)]
struct Gate {
    /// Reads wait until it is 0.
    closed: Mutex<bool>,
    opened: Condvar,
    /// Reads that have come to the gate.
    reads: AtomicU32,
    /// Reads, from the next on, that fail, and that panic.
    failing: AtomicU32,
    panicking: AtomicU32,
}

impl Gate {
    fn pass(&self) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.lock();
        while *closed {
            self.opened.wait(&mut closed);
        }
        drop(closed);
        let next = |counter: &AtomicU32| {
            counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        };
        assert!(next(&self.panicking).is_err(), "a read that panics");
        match next(&self.failing) {
            Ok(_) => Err(io::Error::other("the disk is unwell")),
            Err(_) => Ok(()),
        }
    }

    fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }
}

/// A table of blocks that do not compress, several units long, with a gate before its file.
struct Fixture {
    _dir: tempfile::TempDir,
    gate: Arc<Gate>,
    table: Table,
    records: Vec<Record>,
}

const PER_BLOCK: u64 = 80;
const BLOCKS: u64 = 200;

fn fixture(budget: usize) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 7u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 8
    };
    let record = |i: u64| Record {
        key: Key {
            fid: 1,
            offset: i * 100,
        },
        len: 1 + (random() % 100) as u32,
        member: 1,
        log: random(),
        addr: random(),
        seq: random(),
    };
    let records: Vec<Record> = (0..BLOCKS * PER_BLOCK).map(record).collect();
    let path = dir.path().join("t");
    let mut writer = Writer::create(Arc::new(OsIo), path.clone(), 3).unwrap();
    let mut splitter = BlockSplitter::new(PER_BLOCK as usize * 46);
    for block in records.iter().filter_map(|r| splitter.add(*r)) {
        writer.add(&block);
    }
    assert_eq!(writer.blocks() as u64, BLOCKS);
    let provenance = |m: &TableMeta| {
        Ok(Provenance::of_engine_file(m.number, Bytes::new(), &[]).encode(m.number))
    };
    let meta = writer.finish(provenance).unwrap().0;
    let gate = Arc::new(Gate::default());
    let reads = gate.clone();
    let io = HookedIo::new(OsIo, move |_, call| match call {
        Call::Read { .. } => reads.pass(),
        _ => Ok(()),
    });
    let shared = TableContext::new(Arc::new(io), budget, Alpha::default());
    let table = Table::new(Arc::new(shared), path, meta);
    // The metadata region is read before the gate is in use.
    let places = table.places().unwrap();
    assert!(places.offset(1) * 8 < WIDE_UNIT && places.offset(BLOCKS as usize - 1) > 8 * WIDE_UNIT);
    gate.reads.store(0, Ordering::SeqCst);
    Fixture {
        _dir: dir,
        gate,
        table,
        records,
    }
}

impl Fixture {
    fn fetch(&self, blocks: &[u32]) -> Result<()> {
        let mut wants: Vec<WantedBlock> = blocks.iter().map(|b| WantedBlock::one(*b)).collect();
        self.table.fetch(&mut wants)?;
        let places = self.table.places()?;
        for want in wants {
            let place = places.at(want.block as usize);
            let mut out = Vec::new();
            let raw = want.raw.unwrap();
            records_of(
                raw.bytes(),
                (place.first, place.last),
                place.records,
                &mut out,
            )
            .unwrap();
            let start = want.block as usize * PER_BLOCK as usize;
            assert_eq!(out, self.records[start..start + PER_BLOCK as usize]);
        }
        Ok(())
    }

    fn reads(&self) -> u32 {
        self.gate.reads.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> u64 {
        self.table.cached.state.lock().demand.count
    }

    /// One reader stopped at the gate with block 0, and behind it a thread for each list of blocks; then the gate opens. Returns
    /// what all got, the first first.
    fn behind_a_reader(&self, lists: &[&[u32]]) -> Vec<std::thread::Result<Result<()>>> {
        *self.gate.closed.lock() = true;
        std::thread::scope(|scope| {
            let mut all = vec![scope.spawn(|| self.fetch(&[0]))];
            while self.reads() == 0 {
                std::thread::yield_now();
            }
            let mut expected = 0;
            for list in lists {
                expected += list.len() as u64;
                all.push(scope.spawn(|| self.fetch(list)));
                while self.waiting() < expected {
                    std::thread::yield_now();
                }
            }
            self.gate.open();
            all.into_iter().map(|thread| thread.join()).collect()
        })
    }
}

#[test]
fn what_arrives_during_a_read_joins_the_next_round() {
    let f = fixture(64 << 20);
    // Two regions, with gaps below a fifth, of requests of several threads.
    let got = f.behind_a_reader(&[&[50, 52, 53], &[51, 53, 150], &[54, 150, 151]]);
    assert!(got.iter().all(|r| matches!(r, Ok(Ok(())))));
    assert_eq!(f.reads(), 3);
    let counted = f.table.shared.counters.load();
    assert_eq!(counted.rounds, 3);
    assert_eq!(counted.blocks_asked, 10);
    assert_eq!(counted.cache_hits, 0);
    // What was read with it is in memory.
    f.fetch(&[0, 1, 50, 151]).unwrap();
    assert_eq!(f.reads(), 3);
}

#[test]
fn a_read_that_fails_fails_its_round_only() {
    let f = fixture(64 << 20);
    f.gate.failing.store(1, Ordering::SeqCst);
    let got = f.behind_a_reader(&[&[50], &[50, 150]]);
    let said = got[0].as_ref().unwrap().as_ref().unwrap_err().to_string();
    assert!(
        said.contains("read") && said.contains("unwell") && said.contains("/t"),
        "{said}"
    );
    assert!(got[1..].iter().all(|r| matches!(r, Ok(Ok(())))));
    // The densest region fails for both who wait for it, and the third is answered.
    let f = fixture(64 << 20);
    f.fetch(&[0]).unwrap();
    f.gate.reads.store(0, Ordering::SeqCst);
    *f.gate.closed.lock() = true;
    f.gate.failing.store(2, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| f.fetch(&[100]));
        while f.reads() == 0 {
            std::thread::yield_now();
        }
        let both = [
            scope.spawn(|| f.fetch(&[50])),
            scope.spawn(|| f.fetch(&[50])),
        ];
        let third = scope.spawn(|| f.fetch(&[150]));
        while f.waiting() < 3 {
            std::thread::yield_now();
        }
        f.gate.open();
        assert!(first.join().unwrap().is_err());
        assert!(both.map(|t| t.join().unwrap()).iter().all(Result::is_err));
        third.join().unwrap().unwrap();
    });
    f.fetch(&[50, 100]).unwrap();
}

#[test]
fn a_reader_that_panics_leaves_nobody_waiting() {
    let f = fixture(64 << 20);
    f.gate.panicking.store(1, Ordering::SeqCst);
    let got = f.behind_a_reader(&[&[50], &[1, 150]]);
    assert!(got[0].is_err(), "the panic is the reader's");
    assert!(matches!(got[1], Ok(Ok(()))));
    assert!(matches!(got[2], Ok(Ok(()))));
    // Those of its own round are told.
    let f = fixture(64 << 20);
    f.gate.panicking.store(2, Ordering::SeqCst);
    let got = f.behind_a_reader(&[&[50], &[50]]);
    let told = got.iter().filter(|r| matches!(r, Ok(Err(_)))).count();
    assert_eq!((got.iter().filter(|r| r.is_err()).count(), told), (2, 1));
    f.fetch(&[0, 50]).unwrap();
}

#[test]
fn a_damaged_block_fails_those_who_asked_for_it() {
    let f = fixture(64 << 20);
    let place = f.table.places().unwrap().at(50);
    let path = f._dir.path().join("t");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[place.offset as usize + 5] ^= 0x5a;
    std::fs::write(&path, bytes).unwrap();
    let got = f.behind_a_reader(&[&[49, 51], &[50]]);
    assert!(matches!(got[1], Ok(Ok(()))));
    let error = got[2].as_ref().unwrap().as_ref().unwrap_err();
    assert!(
        matches!(error, Error::Corrupt { offset, .. } if *offset == place.offset),
        "{error}"
    );
    f.fetch(&[49, 51]).unwrap();
    assert!(f.fetch(&[48, 50]).is_err());
}

#[test]
fn one_flipped_bit_of_a_block_is_put_right_and_told() {
    let f = fixture(64 << 20);
    let place = f.table.places().unwrap().at(50);
    let written = f.table.read(50..51).unwrap();
    let path = f._dir.path().join("t");
    let whole = std::fs::read(&path).unwrap();
    for byte in 0..u64::from(place.length).min(100) {
        let mut bytes = whole.clone();
        let at = place.offset + byte;
        bytes[at as usize] ^= 1 << (byte % 8);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(f.table.read(50..51).unwrap(), written, "byte {byte}");
        let mut damage = Vec::new();
        f.table.check(&mut damage);
        let told = |lost: &PossibleLoss| *lost == PossibleLoss::Corrected { byte: at };
        assert!(damage.len() == 1 && told(&damage[0].lost), "{damage:?}");
        let met = f.table.shared.damage_notes.all();
        assert!(met.iter().any(|d| told(&d.lost)), "{met:?}");
    }
    f.fetch(&[49, 50, 51]).unwrap();
}

#[test]
fn a_sector_that_the_disk_cannot_read_fails_those_who_asked_for_its_blocks() {
    let f = fixture(64 << 20);
    let place = f.table.places().unwrap().at(50);
    let bad = place.offset..place.offset + 1;
    let io = HookedIo::new(OsIo, move |_, call| match call {
        Call::Read { offset, len } if offset < bad.end && offset + len > bad.start => {
            Err(io::Error::from_raw_os_error(5))
        }
        _ => Ok(()),
    });
    let shared = Arc::new(TableContext::new(Arc::new(io), 64 << 20, Alpha::default()));
    let table = Table::new(shared, f._dir.path().join("t"), *f.table.meta());
    let fetch = |block| table.fetch(&mut [WantedBlock::one(block)]);
    assert!(matches!(fetch(50), Err(Error::Corrupt { .. })));
    fetch(47).unwrap();
    fetch(53).unwrap();
    assert!(!table.shared.damage_notes.all().is_empty());
}

#[test]
fn a_budget_too_small_for_anything_still_answers() {
    let f = fixture(0);
    for block in [3, 100, 3] {
        f.fetch(&[block, block + 50]).unwrap();
        assert_eq!(f.table.shared.cache.bytes(), 0);
    }
    let f = fixture(100 << 10);
    for i in 0..300 {
        f.fetch(&[i * 7 % 200]).unwrap();
        assert!(f.table.shared.cache.bytes() <= 100 << 10);
    }
    let shared = f.table.shared.clone();
    drop(f);
    assert_eq!(shared.cache.bytes(), 0);
}
