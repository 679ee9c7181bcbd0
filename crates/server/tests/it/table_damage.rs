//! Damaged tables of names, attributes and all that a start reads, seen from a service: it starts whatever block of a table is damaged and
//! however short a table is cut. Reads of what stood there fail with `EIO`, all others are right, and `status` and `fsck` tell.
use crate::common::*;
use forebay_server::repair::Repair;
use forebay_server::salvage::Salvage;
use forebay_server::{Error, Fid, Service, fsck};
use forebay_storage::OsIo;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const FILES: usize = 150;

fn bytes(file: usize) -> Vec<u8> {
    vec![file as u8 + 1; 100 + file]
}

/// A stopped service of some files in the root directory, and its tables.
fn stopped() -> (TempDir, Vec<Fid>, Vec<PathBuf>) {
    let (dir, service, fids) = filled();
    service.stop().unwrap();
    let tables = records(&dir, "table-");
    (dir, fids, tables)
}

/// The files of its records whose names begin so.
fn records(dir: &TempDir, name: &str) -> Vec<PathBuf> {
    let kv = std::fs::read_dir(dir.path().join("store/node-0/kv")).unwrap();
    let named = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().starts_with(name);
    let mut files: Vec<PathBuf> = kv.map(|e| e.unwrap().path()).filter(named).collect();
    files.sort();
    files
}

fn filled() -> (TempDir, Service, Vec<Fid>) {
    let dir = scratch();
    let service = start(&dir, config(1));
    let delegate = &*service.delegate(0);
    let mut fids = Vec::new();
    for file in 0..FILES {
        let (fid, handle) = create(delegate, &format!("file number {file}"));
        delegate.write(handle, 0, &bytes(file), ROOT).unwrap();
        delegate.flush(handle).unwrap();
        delegate.release(handle).unwrap();
        fids.push(fid);
    }
    (dir, service, fids)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// How many files cannot be read; all others are right.
fn unreadable(service: &Service, fids: &[Fid], what: &str) -> usize {
    let delegate = service.delegate(0);
    let read = |fid| {
        let opened = delegate.open(fid, READ)?;
        let read = delegate.read(opened.handle, 0, 4096);
        delegate.release(opened.handle)?;
        read
    };
    let mut unreadable = 0;
    for (file, fid) in fids.iter().enumerate() {
        match read(*fid) {
            Ok(read) => assert_eq!(read, bytes(file), "{what}: file {file}"),
            Err(e) => {
                assert_eq!(e.errno(), Errno::IO, "{what}: file {file}: {e}");
                unreadable += 1;
            }
        }
    }
    unreadable
}

/// Damages a copy of the store by `harm` and starts it: how many files it costs.
fn costs(
    whole: &TempDir,
    fids: &[Fid],
    table: &Path,
    what: &str,
    harm: impl Fn(&mut Vec<u8>),
) -> Result<usize, Error> {
    let dir = scratch();
    let (from, store) = (whole.path().join("store"), dir.path().join("store"));
    copy(&from, &store);
    let table = store.join(table.strip_prefix(&from).unwrap());
    let mut held = std::fs::read(&table).unwrap();
    harm(&mut held);
    std::fs::write(&table, &held).unwrap();
    let service = Service::start(Arc::new(OsIo), &store, config(1))?;
    let lost = unreadable(&service, fids, what);
    if lost > 0 {
        let damage = &service.status().unwrap()[0].damage;
        let name = table.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            damage.iter().any(|d| d.contains(&name)),
            "{what}: {damage:?}"
        );
    }
    // What is served meanwhile can be written, too.
    let delegate = service.delegate(0);
    if let Some(fid) = fids.iter().find(|fid| delegate.open(**fid, READ).is_ok()) {
        let handle = delegate.open(*fid, BOTH).unwrap().handle;
        delegate.write(handle, 9000, b"more", ROOT).unwrap();
        delegate.release(handle).unwrap();
    }
    service.stop().unwrap();
    if lost > 0 {
        let report = fsck::check(
            Arc::new(OsIo),
            &[store],
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        )
        .unwrap();
        assert!(!report.is_sound(), "{what}");
    }
    Ok(lost)
}

#[test]
fn a_damaged_block_or_a_cut_of_a_table_never_refuses_a_start() {
    let (whole, fids, tables) = stopped();
    let (mut tries, mut lossy) = (0, 0);
    for table in &tables {
        let len = std::fs::read(table).unwrap().len();
        for at in (0..len).step_by(len / 24 + 1) {
            let name = table.file_name().unwrap().to_string_lossy();
            let what = format!("{name} at {at} of {len}");
            // As a disk that lost a sector, not as one that flipped a bit.
            let lost = costs(&whole, &fids, table, &what, |held| {
                held[at..(at + 64).min(len)]
                    .iter_mut()
                    .for_each(|b| *b ^= 0x5a);
            });
            let lost = lost.unwrap_or_else(|e| panic!("{what}: {e}"));
            let cut = costs(&whole, &fids, table, &what, |held| held.truncate(at));
            let cut = cut.unwrap_or_else(|e| panic!("{what}, cut: {e}"));
            assert!(lost < FILES && cut <= FILES, "{what}");
            (tries, lossy) = (tries + 2, lossy + usize::from(lost > 0));
        }
    }
    assert!(tries > 50 && lossy > 0, "{lossy} of {tries}");
}

#[test]
fn a_missing_table_refuses_a_start_and_says_what_to_do() {
    let (whole, _, tables) = stopped();
    let is_table = |p: &&PathBuf| p.extension().is_some_and(|e| e == "tbl");
    let tables = tables.iter().filter(is_table).cloned();
    let all: Vec<PathBuf> = tables.chain(records(&whole, "side-")).collect();
    assert!(all.len() > 1, "{all:?}");
    for table in all {
        let held = std::fs::read(&table).unwrap();
        std::fs::remove_file(&table).unwrap();
        let store = whole.path().join("store");
        let refused = Service::start(Arc::new(OsIo), &store, config(1)).err();
        let text = refused.unwrap().to_string();
        assert!(text.contains(table.to_str().unwrap()), "{text}");
        assert!(
            text.contains("fsck --repair") && text.contains("mount --salvage"),
            "{text}"
        );
        std::fs::write(&table, held).unwrap();
    }
    start(&whole, config(1)).stop().unwrap();
}

/// One bit of a file is flipped, in a copy of the store: nothing is lost in whatever way it is read, and it is told.
fn costs_nothing(whole: &TempDir, fids: &[Fid], file: &Path, bit: u64) -> bool {
    let dir = scratch();
    let (from, store) = (whole.path().join("store"), dir.path().join("store"));
    copy(&from, &store);
    let file = store.join(file.strip_prefix(&from).unwrap());
    let what = format!("{} bit {bit}", file.display());
    let mut held = std::fs::read(&file).unwrap();
    held[bit as usize / 8] ^= 1 << (bit % 8);
    std::fs::write(&file, &held).unwrap();
    let io = Arc::new(OsIo);
    let salvage = Salvage::start(
        io.clone(),
        std::slice::from_ref(&store),
        dir.path(),
        &config(1),
        &mut |_| {},
    );
    let salvage = salvage.unwrap();
    assert_eq!(
        unreadable(salvage.service().unwrap(), fids, &what),
        0,
        "{what}"
    );
    let losses = salvage.losses().clone();
    salvage.stop().unwrap();
    assert!(
        losses.lost.is_empty() && losses.found.is_empty(),
        "{what}: {losses:?}"
    );
    let told = losses.damage.iter().any(|d| d.contains("one flipped bit"));
    let report = fsck::check(
        io.clone(),
        std::slice::from_ref(&store),
        fsck::ByteCheck::Bytes,
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(report.unopened, 0, "{what}: {report:?}");
    let copied = scratch();
    copy(&store, &copied.path().join("store"));
    let service = Service::start(io, &store, config(1));
    let service = service.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(unreadable(&service, fids, &what), 0, "{what}");
    let damage = &service.status().unwrap()[0].damage;
    let met = damage.iter().any(|d| d.contains("one flipped bit"));
    assert!(told || !met, "{what}: {damage:?}");
    service.stop().unwrap();
    let repair = Repair::prepare(&[copied.path().join("store")], &mut |_| {}).unwrap();
    assert!(
        repair.losses().lost.is_empty(),
        "{what}: {:?}",
        repair.losses()
    );
    repair.put_in_place().unwrap();
    drop(repair);
    let service = start(&copied, config(1));
    assert_eq!(unreadable(&service, fids, &what), 0, "{what}");
    service.stop().unwrap();
    told
}

#[test]
fn one_flipped_bit_in_a_table_or_log_costs_nothing() {
    let (closed, fids, mut files) = stopped();
    files.extend(records(&closed, "side-"));
    let (killed, service, killed_fids) = filled();
    drop(service);
    let logs = records(&killed, "wal-");
    let (mut tries, mut told) = (0, 0);
    let closed = files.iter().map(|file| (&closed, &fids, file));
    let killed = logs.iter().map(|file| (&killed, &killed_fids, file));
    for (whole, fids, file) in closed.chain(killed) {
        let held = std::fs::read(file).unwrap();
        let end = held
            .iter()
            .rposition(|b| *b != 0)
            .map_or(0, |at| at as u64 + 1);
        // Not a multiple of any unit.
        for bit in (0..end * 8).step_by((end as usize * 8 / 17).max(1)) {
            told += u32::from(costs_nothing(whole, fids, file, bit));
            tries += 1;
        }
    }
    assert!(tries > 40 && told > tries / 4, "{told} of {tries}");
}
