//! A service's memory stays inside its budget while several times as much is written and read through its mounts.
//!
//! The budget is `--memory` times the nodes, and it holds for all anonymous memory of the process (see
//! `common::server_memory`). Nothing is taken off for the fixed overhead (stacks, buffers of the mounts' threads, what the
//! process holds before anything is asked of it): it counts inside the budget.
use crate::common::server_memory::{Mib, ServerMemory};
use crate::common::{Place, has_fuse};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::seeds;
use std::fs::File;
use std::os::unix::fs::FileExt;

const NODES: u64 = 4;
const WRITERS: u64 = 4;

/// One file written in turns by all writers, record by record.
struct Shared {
    name: &'static str,
    record: usize,
    records: u64,
}

impl Shared {
    fn bytes(&self) -> u64 {
        self.record as u64 * self.records
    }

    fn content(&self, record: u64) -> Vec<u8> {
        seeded_bytes(record ^ (self.record as u64) << 40, self.record)
    }

    fn write(&self, place: &Place, writer: u64) {
        let path = place.path(&format!("m/{writer}/{}", self.name));
        let file = File::options().write(true).open(path).unwrap();
        for record in (writer..self.records).step_by(WRITERS as usize) {
            let at = record * self.record as u64;
            file.write_all_at(&self.content(record), at).unwrap();
        }
        file.sync_all().unwrap();
    }

    /// Reads what `writer` wrote through the mount of another node.
    fn read(&self, place: &Place, writer: u64) {
        let node = (writer + 1) % NODES;
        let file = File::open(place.path(&format!("m/{node}/{}", self.name))).unwrap();
        let mut found = vec![0; self.record];
        for record in (writer..self.records).step_by(WRITERS as usize) {
            file.read_exact_at(&mut found, record * self.record as u64)
                .unwrap();
            assert!(
                found == self.content(record),
                "{} record {record}: wrong bytes",
                self.name
            );
        }
    }
}

#[test]
fn memory_stays_inside_the_budget_while_much_more_is_written_and_read() {
    if !has_fuse() {
        return;
    }
    let (memory, total) = match seeds::is_soak() {
        true => (64u64 << 20, 4u64 << 30),
        false => (16 << 20, 192 << 20),
    };
    // Nine parts in ten in records of an odd size; the rest small, for many extents.
    let files = [("odd", 47_008, total / 10 * 9), ("small", 4096, total / 10)];
    let files = files.map(|(name, record, bytes)| Shared {
        name,
        record,
        records: bytes / record as u64,
    });
    let place = Place::new();
    place.mount_well(&["--nodes", "4", "--memory", &memory.to_string()]);
    let pid = place.pid();
    let ready = ServerMemory::of(pid);
    for file in &files {
        File::create(place.path(&format!("m/0/{}", file.name))).unwrap();
    }
    for work in [Shared::write, Shared::read] {
        for file in &files {
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let place = &place;
                    scope.spawn(move || work(file, place, writer));
                }
            });
            let now = ServerMemory::of(pid);
            println!(
                "{:>5}: now {}, peak {}",
                file.name,
                Mib(now.anonymous),
                Mib(now.peak_since(&ready))
            );
        }
    }
    let peak = ServerMemory::of(pid).peak_since(&ready);
    let budget = NODES * memory;
    println!(
        "{} written and read: peak {} of anonymous memory ({} when ready); budget {} ({NODES} nodes of {})",
        Mib(files.iter().map(Shared::bytes).sum()),
        Mib(peak),
        Mib(ready.anonymous),
        Mib(budget),
        Mib(memory)
    );
    place.umount_well();
    assert!(peak <= budget, "over the budget: {peak} bytes of {budget}");
}
