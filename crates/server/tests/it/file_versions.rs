//! Files that are versions of one thing, encoded against the first of them: what a check tells of records of bases that are missing, what a repair
//! makes of it, and what a salvage shows.
use crate::common::*;
use forebay_data::container::{self, keys::RecordKind};
use forebay_data::keyspaces::CONTAINERS;
use forebay_server::repair::Repair;
use forebay_server::salvage::Salvage;
use forebay_server::{CodecConfig, CodecWhen, Config, Delegate, Fid, fsck};
use forebay_storage::{Batch, Options, OsIo, Store};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::wait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const LEN: usize = 2 << 20;

fn encoding() -> Config {
    Config {
        settle: settling(true),
        codec: CodecConfig {
            when: CodecWhen::Settle,
            ..CodecConfig::default()
        },
        ..config(1)
    }
}

/// Weights, or the same some steps later.
fn version(step: u64) -> Vec<u8> {
    let mut weights = seeded_bytes(1, LEN);
    let mut random = Random::new(step);
    for word in weights.chunks_exact_mut(4) {
        word[3] = 0x3d;
        if step > 0 {
            word[0] = random.next() as u8;
        }
    }
    weights
}

fn write(delegate: &Delegate, name: &str, bytes: &[u8]) -> Fid {
    let (fid, handle) = create(delegate, name);
    for (i, part) in bytes.chunks(1 << 20).enumerate() {
        delegate
            .write(handle, (i << 20) as u64, part, ROOT)
            .unwrap();
    }
    delegate.flush(handle).unwrap();
    delegate.release(handle).unwrap();
    fid
}

fn read(delegate: &Delegate, name: &str) -> Vec<u8> {
    let fid = delegate
        .names
        .lookup(Fid::ROOT, name.as_bytes())
        .unwrap()
        .fid;
    let handle = delegate.open(fid, READ).unwrap().handle;
    let bytes = delegate.read(handle, 0, LEN as u32).unwrap().to_vec();
    delegate.release(handle).unwrap();
    bytes
}

/// A stopped service with three versions, of which two are encoded against the first.
fn stopped() -> (TempDir, PathBuf) {
    let temp = scratch();
    let service = start(&temp, encoding());
    for step in 0..3 {
        let delegate = service.delegate(0);
        write(&delegate, &format!("step_{step}.pt"), &version(step));
        let data = service.nodes()[0].data.clone();
        let settled = (step + 1) * LEN as u64;
        wait::until("it is settled", || data.stats().settled >= settled);
    }
    service.stop().unwrap();
    let dir = temp.path().join("store");
    (temp, dir)
}

fn records(dir: &Path) -> Arc<Store> {
    let kv = dir.join("node-0/kv");
    Arc::new(Store::open(Arc::new(OsIo), &kv, Options::default()).unwrap())
}

fn check(dir: &Path) -> fsck::FsckReport {
    let dirs = [dir.to_path_buf()];
    fsck::check(Arc::new(OsIo), &dirs, fsck::ByteCheck::Bytes, &mut |_| {}).unwrap()
}

#[test]
fn a_record_of_a_base_that_is_missing_is_told_and_made_anew() {
    let (temp, dir) = stopped();
    assert_eq!(check(&dir).problems, []);
    let store = records(&dir);
    let held = container::needed_holds(&store)
        .map(|hold| hold.id)
        .max()
        .unwrap();
    let mut batch = Batch::new();
    batch.delete(CONTAINERS, RecordKind::Base.key(held).to_vec());
    store.apply(batch).unwrap();
    store.close().unwrap();
    let problems = check(&dir).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = format!("{:?}", problems[0]);
    assert!(
        told.contains(&format!("container {held} is encoded against others")),
        "{told}"
    );

    // What it shows needs no such record.
    let config = encoding();
    let dirs = [dir.clone()];
    let salvage = Salvage::start(Arc::new(OsIo), &dirs, temp.path(), &config, &mut |_| {}).unwrap();
    for step in 0..3 {
        let delegate = salvage.service().unwrap().delegate(0);
        assert!(
            read(&delegate, &format!("step_{step}.pt")) == version(step),
            "{step}"
        );
    }
    salvage.stop().unwrap();

    let repair = Repair::prepare(&dirs, &mut |_| {}).unwrap();
    assert!(repair.is_needed());
    repair.put_in_place().unwrap();
    drop(repair);
    assert_eq!(check(&dir).problems, []);
    let service = start(&temp, encoding());
    let delegate = service.delegate(0);
    delegate
        .names
        .unlink(Fid::ROOT, b"step_0.pt", ROOT)
        .unwrap();
    for step in 1..3 {
        assert!(
            read(&delegate, &format!("step_{step}.pt")) == version(step),
            "{step}"
        );
    }
    drop(delegate);
    service.stop().unwrap();
    assert_eq!(check(&dir).problems, []);
}
