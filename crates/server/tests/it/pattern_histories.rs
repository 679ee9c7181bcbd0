//! Random histories aimed at patterns: rows of writes of any stride, nested, over each other, with holes, truncates, removals,
//! lamination and restarts between, by one to four nodes, with patterns on and off. Every read is right to the byte, no byte is kept
//! that no file shows, and the store is sound at the end.
//!
//! Short form: 25 seeds. `SOAK=1`: 4,000, going on with the seed in `$SOAK_DIR/pattern_histories.next`.
//! `FOREBAY_SEED=n` replays one seed and prints its operations.

use crate::common::*;
use crate::model::rows::row;
use crate::model::{Change, File};
use forebay_server::delegate::{Fallocate, Handle, SeekTarget};
use forebay_server::{Config, Fid, Lamination, Service, SetAttr, fsck};
use forebay_storage::OsIo;
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const OPS: usize = 80;
const FILES: usize = 2;
/// Where writes go, and how far from there.
const PLACES: [u64; 4] = [0, 0, 20_000, SLICE - 2000];
const FAR: u64 = 9000;

struct History {
    random: Random,
    say: bool,
    nodes: u16,
    dir: TempDir,
    service: Option<Service>,
    fids: [Fid; FILES],
    /// By file and node.
    handles: [Vec<Option<Handle>>; FILES],
    files: Vec<File>,
    /// Extents that became patterns, up to the last restart.
    folded: u64,
}

#[test]
fn random_rows_of_writes_agree_with_the_model() {
    let asked = seeds::asked_seed().is_some();
    let folded = AtomicU64::new(0);
    seeds::for_each_seed("pattern_histories", (25, 4_000), |seed| {
        folded.fetch_add(run(seed, asked), Ordering::Relaxed);
    });
    let folded = folded.into_inner();
    println!("{folded} extents became patterns");
    assert!(asked || folded > 4_000, "{folded} extents became patterns");
}

/// Extents that became patterns.
fn run(seed: u64, say: bool) -> u64 {
    let mut random = Random::new(seed ^ 0x0BAD_5EED);
    let nodes = 1 + random.below(4) as u16;
    let mut history = History {
        random,
        say,
        nodes,
        dir: scratch(),
        service: None,
        fids: [Fid::ROOT; FILES],
        handles: Default::default(),
        files: Vec::new(),
        folded: 0,
    };
    history.start();
    for file in 0..FILES {
        history.files.push(File::new(nodes.into()));
        history.make(file);
    }
    for _ in 0..OPS {
        history.step();
    }
    history.finish()
}

impl History {
    fn start(&mut self) {
        let (patterns, settles) = (self.random.chance(80), self.random.chance(50));
        let config = Config {
            patterns,
            settle: settling(settles),
            codec: any_encoding(&mut self.random, settles),
            ..config(self.nodes)
        };
        self.note(|| format!("starts with patterns: {}", config.patterns));
        self.service = Some(start(&self.dir, config));
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if self.say {
            println!("{}", text());
        }
    }

    fn make(&mut self, file: usize) {
        let delegate = self.service().delegate(0);
        let (fid, handle) = create(&delegate, &format!("f{file}"));
        delegate.release(handle).unwrap();
        self.fids[file] = fid;
        self.files[file] = File::new(self.nodes.into());
        self.handles[file] = vec![None; self.nodes.into()];
    }

    /// A node and one of its handles.
    fn handle(&mut self, file: usize) -> (usize, Handle) {
        let node = self.random.below(self.nodes.into()) as usize;
        let delegate = self.service().delegate(node as u16);
        let open = || delegate.open(self.fids[file], BOTH).unwrap().handle;
        let handle = self.handles[file][node].unwrap_or_else(open);
        if self.handles[file][node].is_none() {
            self.files[file].look(node);
        }
        self.handles[file][node] = Some(handle);
        (node, handle)
    }

    fn place(&mut self) -> u64 {
        *self.random.pick(&PLACES) + self.random.below(FAR)
    }

    fn step(&mut self) {
        let file = self.random.below(FILES as u64) as usize;
        match self.random.below(100) {
            0..34 => self.row(file),
            34..40 => self.write(file),
            40..60 => self.read(file),
            60..76 => self.commit(file),
            76..80 => self.close(file),
            80..86 => self.hole(file),
            86..89 => self.seek(file),
            89..94 => self.truncate(file),
            94..96 => self.remove(file),
            _ => self.restart(),
        }
    }

    fn row(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        let (place, len) = (self.place(), 1 + self.random.below(60));
        let offsets = row(&mut self.random, place, len);
        self.note(|| format!("node {node} file {file} writes {len} at each of {offsets:?}"));
        let delegate = self.service().delegate(node as u16);
        for offset in offsets {
            let data = self.random.nonzero_bytes(len as usize);
            delegate.write(handle, offset, &data, ROOT).unwrap();
            self.files[file].pending[node].push(Change::Put(offset, data));
        }
        if self.random.chance(50) {
            self.commit_of(file, node, handle);
        }
    }

    fn write(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        let (offset, len) = (self.place(), 1 + self.random.below(3000));
        self.note(|| format!("node {node} file {file} writes {len} at {offset}"));
        let data = self.random.nonzero_bytes(len as usize);
        let delegate = self.service().delegate(node as u16);
        delegate.write(handle, offset, &data, ROOT).unwrap();
        self.files[file].pending[node].push(Change::Put(offset, data));
    }

    fn read(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        let (offset, most) = (self.place(), *self.random.pick(&[50, 5000, 40_000]));
        let len = 1 + self.random.below(most);
        self.note(|| format!("node {node} file {file} reads {len} at {offset}"));
        let delegate = self.service().delegate(node as u16);
        let bytes = delegate.read(handle, offset, len as u32).unwrap();
        let state = &mut self.files[file];
        state.check_read(node, (offset, len), &bytes);
    }

    fn commit(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        self.commit_of(file, node, handle);
    }

    fn commit_of(&mut self, file: usize, node: usize, handle: Handle) {
        let delegate = self.service().delegate(node as u16);
        self.note(|| format!("node {node} file {file} commits"));
        match self.random.chance(50) {
            true => drop(delegate.fsync(handle).unwrap()),
            false => delegate.flush(handle).unwrap(),
        }
        self.files[file].commit(node);
    }

    fn close(&mut self, file: usize) {
        let node = self.random.below(self.nodes.into()) as usize;
        let Some(handle) = self.handles[file][node].take() else {
            return;
        };
        self.note(|| format!("node {node} file {file} closes"));
        let delegate = self.service().delegate(node as u16);
        delegate.release(handle).unwrap();
        self.files[file].commit(node);
    }

    fn hole(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        let (offset, most) = (self.place(), *self.random.pick(&[50, 3000, 2 * SLICE]));
        let len = 1 + self.random.below(most);
        let what = Fallocate {
            punch: true,
            zero: false,
            keep_size: true,
        };
        self.note(|| format!("node {node} file {file} punches {len} at {offset}"));
        let delegate = self.service().delegate(node as u16);
        delegate.fallocate(handle, what, offset, len).unwrap();
        self.files[file].pending[node].push(Change::Hole(offset, offset + len));
    }

    fn seek(&mut self, file: usize) {
        let (node, handle) = self.handle(file);
        let (offset, data) = (self.place(), self.random.chance(50));
        let whence = if data {
            SeekTarget::Data
        } else {
            SeekTarget::Hole
        };
        self.note(|| format!("node {node} file {file} seeks {whence:?} from {offset}"));
        let delegate = self.service().delegate(node as u16);
        let found = delegate.seek(handle, offset, whence).ok();
        let state = &mut self.files[file];
        assert!(
            state.shows(node, |content| content.seek(offset, data) == found),
            "found {found:?}, newest says {:?}",
            state.newest_content(node).seek(offset, data)
        );
    }

    fn truncate(&mut self, file: usize) {
        let node = self.random.below(self.nodes.into()) as usize;
        let size = if self.random.chance(30) {
            0
        } else {
            self.place()
        };
        self.note(|| format!("node {node} file {file} truncates to {size}"));
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let delegate = self.service().delegate(node as u16);
        delegate
            .names
            .setattr(self.fids[file], &set, None, ROOT)
            .unwrap();
        self.files[file].truncate(node, size);
    }

    fn close_all(&mut self, file: usize) {
        for node in 0..self.nodes {
            if let Some(handle) = self.handles[file][usize::from(node)].take() {
                self.service().delegate(node).release(handle).unwrap();
                self.files[file].commit(node.into());
            }
        }
    }

    fn remove(&mut self, file: usize) {
        self.note(|| format!("file {file} is removed and made again"));
        if self.random.chance(50) {
            self.close_all(file);
        }
        let name = format!("f{file}");
        let delegate = self.service().delegate(self.nodes - 1);
        delegate
            .names
            .unlink(Fid::ROOT, name.as_bytes(), ROOT)
            .unwrap();
        self.close_all(file);
        self.make(file);
    }

    fn restart(&mut self) {
        self.note(|| "restart".into());
        for node in 0..self.nodes {
            self.folded += self.service().delegate(node).counters.totals().folded;
        }
        self.service.take().unwrap().stop().unwrap();
        for (state, handles) in self.files.iter_mut().zip(&mut self.handles) {
            (0..usize::from(self.nodes)).for_each(|node| state.commit(node));
            handles.fill(None);
        }
        self.start();
    }

    /// All bytes on all nodes are right, and no others are stored.
    fn check_all(&mut self) {
        wait_until_idle(self.service());
        let mut stored = 0;
        for file in 0..FILES {
            let content = self.files[file].newest_content(0);
            stored += content.stored_bytes();
            for node in 0..self.nodes {
                let delegate = self.service().delegate(node);
                let opened = delegate.open(self.fids[file], READ).unwrap();
                assert_eq!(opened.attr.size, content.size);
                assert_eq!(
                    opened.attr.bytes,
                    content.stored_bytes(),
                    "bytes of file {file}"
                );
                for (base, len) in [(0, 60_000), (SLICE - 15_000, 40_000)] {
                    let bytes = delegate.read(opened.handle, base, len).unwrap();
                    let want = content.read(base, len.into());
                    let differs = bytes.iter().zip(&want).position(|(a, b)| a != b);
                    assert!(
                        bytes[..] == want[..],
                        "file {file} node {node}: {} bytes at {base}, not {}; differs at {differs:?}",
                        bytes.len(),
                        want.len()
                    );
                }
                delegate.release(opened.handle).unwrap();
            }
        }
        for _ in 0..1000 {
            wait_until_idle(self.service());
            let held: u64 = crate::common::stored(self.service())
                .iter()
                .map(|s| s.0)
                .sum();
            if held == stored {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!(
            "{:?} bytes are stored, {stored} are to be seen",
            crate::common::stored(self.service())
        );
    }

    fn finish(mut self) -> u64 {
        (0..FILES).for_each(|file| self.close_all(file));
        self.check_all();
        if self.random.chance(50) {
            self.note(|| "laminates file 0".into());
            let delegate = self.service().delegate(0);
            delegate.names.laminate(self.fids[0]).unwrap();
            let attr = delegate.names.getattr(self.fids[0]).unwrap();
            assert_eq!(attr.lamination, Lamination::Permanent);
            self.check_all();
        }
        self.restart();
        self.check_all();
        self.service.take().unwrap().stop().unwrap();
        let store = self.dir.path().join("store");
        let report = fsck::check(
            Arc::new(OsIo),
            &[store],
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        )
        .unwrap();
        assert!(report.is_sound(), "{report:?}");
        self.start();
        for file in 0..FILES {
            let name = format!("f{file}");
            let delegate = self.service().delegate(0);
            delegate
                .names
                .unlink(Fid::ROOT, name.as_bytes(), ROOT)
                .unwrap();
        }
        wait_until_empty(self.service());
        self.folded
    }
}
