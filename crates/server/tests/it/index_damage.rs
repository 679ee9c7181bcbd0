//! Damaged table files of the index, seen from a service: it starts, reads that need the table fail with `EIO`, all others are right;
//! `fsck` names the file and what to do; put back, everything is there. Settings that cannot be stop a start and change nothing.
use crate::common::*;
use forebay_server::delegate::Delegate;
use forebay_server::{Config, Error, Fid, IndexConfig, Service, fsck, index_files};
use forebay_storage::{EngineEdit, Options, OsIo, Store};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const FILES: u8 = 6;

fn config() -> Config {
    let index = IndexConfig {
        block: 512,
        table_blocks: 1,
        ..IndexConfig::default()
    };
    Config {
        index,
        patterns: false,
        ..crate::common::config(1)
    }
}

fn store(dir: &TempDir) -> PathBuf {
    dir.path().join("store")
}

/// Ten pieces, apart from each other.
fn expected(file: u8) -> Vec<u8> {
    let mut bytes = vec![0; 9 * 1000 + 100];
    for piece in bytes.chunks_mut(1000) {
        piece[..100].fill(file + 1);
    }
    bytes
}

/// A stopped service of some files, with its index in table files of about one file each; and these tables.
fn service() -> (TempDir, Vec<Fid>, Vec<PathBuf>) {
    let dir = scratch();
    let service = start(&dir, config());
    let delegate = &*service.delegate(0);
    let mut fids = Vec::new();
    for file in 0..FILES {
        let (fid, handle) = create(delegate, &format!("f{file}"));
        for piece in 0..10 {
            let bytes = [file + 1; 100];
            delegate.write(handle, piece * 1000, &bytes, ROOT).unwrap();
        }
        delegate.flush(handle).unwrap();
        delegate.release(handle).unwrap();
        fids.push(fid);
    }
    service.stop().unwrap();
    let stats = index_files::write(Arc::new(OsIo), &[store(&dir)], &config()).unwrap();
    assert_eq!(stats.table_records, u64::from(FILES) * 10);
    let kv = std::fs::read_dir(store(&dir).join("node-0/kv")).unwrap();
    let side = |p: &PathBuf| {
        p.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("side-")
    };
    let mut tables: Vec<PathBuf> = kv.map(|e| e.unwrap().path()).filter(side).collect();
    tables.sort();
    assert_eq!(tables.len() as u64, stats.tables);
    assert!(tables.len() > 3, "{tables:?}");
    (dir, fids, tables)
}

fn read(delegate: &Delegate, fid: Fid) -> Result<Vec<u8>, Error> {
    let opened = delegate.open(fid, READ)?;
    let bytes = delegate.read(opened.handle, 0, 1 << 20);
    delegate.release(opened.handle)?;
    bytes.map(|b| b.to_vec())
}

fn problems(dir: &TempDir) -> fsck::FsckReport {
    fsck::check(
        Arc::new(OsIo),
        &[store(dir)],
        fsck::ByteCheck::Bytes,
        &mut |_| {},
    )
    .unwrap()
}

/// With the table changed: some file cannot be read, the others can; and with it put back, all can.
fn needs(
    table: &Path,
    damage: impl FnOnce(&mut Vec<u8>),
    words: &[&str],
    dir: &TempDir,
    fids: &[Fid],
) {
    let whole = std::fs::read(table).unwrap();
    let mut bytes = whole.clone();
    damage(&mut bytes);
    std::fs::write(table, bytes).unwrap();
    let report = problems(dir);
    let named = report.problems.iter().any(|p| {
        let path = p.text.contains(table.to_str().unwrap());
        path && words.iter().all(|word| p.text.contains(word))
    });
    assert!(named, "{words:?} in {:#?}", report.problems);
    let service = start(dir, config());
    let delegate = &*service.delegate(0);
    let (mut failed, mut right) = (0, 0);
    for (file, fid) in (0..).zip(fids) {
        match read(delegate, *fid) {
            Ok(bytes) => {
                assert!(bytes == expected(file), "file {file}");
                right += 1;
            }
            Err(e) => {
                assert_eq!(e.errno(), Errno::IO, "{e}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && right > 0, "{failed} failed, {right} right");
    // Writing goes on.
    let (fid, handle) = create(delegate, "new");
    delegate.write(handle, 0, b"new", ROOT).unwrap();
    delegate.flush(handle).unwrap();
    delegate.release(handle).unwrap();
    assert_eq!(read(delegate, fid).unwrap(), b"new");
    delegate.names.unlink(Fid::ROOT, b"new", ROOT).unwrap();
    wait_until_idle(&service);
    service.stop().unwrap();
    std::fs::write(table, whole).unwrap();
    assert_eq!(problems(dir).problems, []);
    all_is_there(dir, fids);
}

fn all_is_there(dir: &TempDir, fids: &[Fid]) {
    let service = start(dir, config());
    for (file, fid) in (0..).zip(fids) {
        assert!(
            read(&service.delegate(0), *fid).unwrap() == expected(file),
            "file {file}"
        );
    }
    service.stop().unwrap();
}

#[test]
fn a_damaged_cut_or_newer_table_fails_what_needs_it_and_nothing_else() {
    let (dir, fids, tables) = service();
    let table = &tables[1];
    // Behind the first footer and the first metadata region.
    let bytes = std::fs::read(table).unwrap();
    let block = 64 + u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
    needs(
        table,
        |b| b[block + 5] ^= 0x5a,
        &[&format!("block at byte {block} is damaged")],
        &dir,
        &fids,
    );
    needs(
        table,
        |b| b.truncate(block + 9),
        &["is damaged"],
        &dir,
        &fids,
    );
    needs(table, Vec::clear, &["footer at byte 0"], &dir, &fids);
    let newer = |bytes: &mut Vec<u8>| {
        let footer = bytes.len() - 64;
        bytes[footer + 8] = 4;
        let sum = forebay_checksum::crc32c(&bytes[footer..footer + 60]);
        bytes[footer + 60..].copy_from_slice(&sum.to_le_bytes());
    };
    needs(
        table,
        newer,
        &["version 4", "use a newer Forebay"],
        &dir,
        &fids,
    );
}

#[test]
fn a_manifest_of_a_newer_index_is_refused_and_left_as_it_is() {
    let (dir, _, _) = service();
    let kv = store(&dir).join("node-0/kv");
    let number = {
        let opened = Store::open(Arc::new(OsIo), &kv, Options::default()).unwrap();
        let host = opened.engine_host();
        let number = host.new_number();
        let edit = EngineEdit {
            add: vec![(number, vec![9, 9].into())],
            ..EngineEdit::default()
        };
        host.edit(edit).unwrap();
        std::fs::write(host.path(number), b"of a newer version").unwrap();
        opened.close().unwrap();
        number
    };
    let Err(error) = Service::start(Arc::new(OsIo), &store(&dir), config()) else {
        panic!("it started");
    };
    let text = error.to_string();
    assert!(
        text.contains(&number.to_string()) && text.contains("newer Forebay"),
        "{text}"
    );
    let report = problems(&dir);
    assert_eq!(report.unopened, 1);
    assert!(
        report.problems[0].text.contains("newer Forebay"),
        "{:?}",
        report.problems
    );
}

#[test]
fn settings_that_cannot_be_stop_a_start_and_change_nothing() {
    let (dir, fids, _) = service();
    let usual = IndexConfig::default();
    let wrong = [
        ("index_block", IndexConfig { block: 0, ..usual }),
        (
            "index_buffer",
            IndexConfig {
                buffer: Some(0),
                ..usual
            },
        ),
        (
            "index_cache",
            IndexConfig {
                cache: Some(1 << 40),
                ..usual
            },
        ),
    ];
    for (name, index) in wrong {
        let config = Config { index, ..config() };
        let Err(error) = Service::start(Arc::new(OsIo), &store(&dir), config) else {
            panic!("{name}: it started");
        };
        assert!(error.to_string().contains(name), "{error}");
    }
    all_is_there(&dir, &fids);
    // Others than the tables were written with are fine.
    let service = start(&dir, crate::common::config(1));
    assert!(read(&service.delegate(0), fids[2]).unwrap() == expected(2));
    service.stop().unwrap();
}
