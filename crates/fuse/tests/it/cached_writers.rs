//! Writes through the kernel's page cache, in services where the kernel sends them at once: whatever drops pages meanwhile, their node
//! reads them from then on.
use crate::common::{Harness, Map, Setup, create_new, open};
use forebay_testkit::turns;
use rustix::fs::SeekFrom;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One request of the kernel.
const MIB: usize = 1 << 20;

fn two() -> Option<Harness> {
    Harness::start(Setup {
        nodes: 2,
        holds: true,
        ..Setup::default()
    })
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Another node changes the file behind its first 2 MiB.
fn change(path: &Path) {
    open(path).write_all_at(b"changed", 2 * MIB as u64).unwrap();
}

#[test]
fn what_was_written_is_read_though_the_pages_were_dropped_and_read_meanwhile() {
    // Whole pages; a part of the last one; one that nobody has read.
    for (offset, len) in [(0, MIB), (0, MIB - 100), (4096, MIB - 4097)] {
        let _turn = turns::exclusive();
        let Some(h) = two() else { return };
        let (here, there) = (h.mount(0).join("f"), h.mount(1).join("f"));
        fs::write(&there, vec![1; 2 * MIB]).unwrap();
        let writer = open(&here);
        assert!(read(&writer, 0, 2 * MIB) == vec![1; 2 * MIB]);
        change(&there);
        h.hold();
        std::thread::scope(|scope| {
            let write = scope.spawn(|| writer.write_all_at(&vec![2; len], offset));
            h.wait_held();
            // Finds the change of the other node, so the pages of before are dropped.
            let reader = File::open(&here).unwrap();
            let before = read(&reader, offset, len);
            assert!(before.iter().all(|b| [1, 2].contains(b)));
            h.let_go();
            write.join().unwrap().unwrap();
            assert!(read(&reader, offset, len) == vec![2; len], "{offset} {len}");
            assert!(read(&writer, offset, len) == vec![2; len], "{offset} {len}");
        });
        drop(writer);
        assert!(read(&File::open(&there).unwrap(), offset, len) == vec![2; len]);
    }
}

#[test]
fn a_write_behind_the_end_is_answered_while_pages_are_dropped() {
    let _turn = turns::exclusive();
    let Some(h) = two() else { return };
    let (here, there) = (h.mount(0).join("f"), h.mount(1).join("f"));
    let writer = create_new(&here);
    writer.write_all_at(&vec![1; 2 * MIB], 0).unwrap();
    writer.sync_all().unwrap();
    change(&there);
    h.hold();
    std::thread::scope(|scope| {
        // The kernel keeps the last page locked: it is new, and not whole.
        let write = scope.spawn(|| writer.write_all_at(&vec![2; MIB - 1], 3 * MIB as u64));
        h.wait_held();
        let reopened = scope.spawn(|| {
            let reader = File::open(&here).unwrap();
            read(&reader, 0, MIB) == vec![1; MIB]
        });
        let reader = scope.spawn(|| read(&writer, MIB as u64, MIB) == vec![1; MIB]);
        assert!(reader.join().unwrap());
        h.let_go();
        write.join().unwrap().unwrap();
        assert!(reopened.join().unwrap());
    });
    assert!(read(&writer, 3 * MIB as u64, MIB - 1) == vec![2; MIB - 1]);
    assert!(read(&writer, 2 * MIB as u64, 7) == b"changed");
}

#[test]
fn a_seek_finds_what_a_program_has_written_into_a_mapping() {
    let Some(h) = two() else { return };
    let path = h.mount(0).join("f");
    let mapped = create_new(&path);
    mapped.set_len(4 * MIB as u64).unwrap();
    let mut map = Map::new(&mapped, 4 * MIB, libc::MAP_SHARED).unwrap();
    map.bytes()[2 * MIB] = 1;
    let other = File::open(&path).unwrap();
    for file in [&other, &mapped] {
        let data = rustix::fs::seek(file, SeekFrom::Data(0)).unwrap();
        assert_eq!(data, 2 * MIB as u64);
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap();
        assert!(hole > data && hole <= data + 4096, "{hole}");
    }
}
