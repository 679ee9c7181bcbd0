//! Random histories of operations over three nodes agree with a plain model of the stated semantics.
//!
//! Short form: 40 seeds. `SOAK=1`: 10,000, going on with the seed in `$SOAK_DIR/histories.next`.
//! `FOREBAY_SEED=n` replays one seed and prints its operations.

use crate::common::{any_encoding, settling};
use crate::model::rows::row;
use crate::model::{Change, File, FileId, Model};
use forebay_server::delegate::{Delegate, Fallocate, Handle, SeekTarget, WriteOrigin};
use forebay_server::{
    Caller, Config, Consistency, Fid, Kind, NewInode, OpenFlags, RenameFlags, Service, SetAttr,
};
use forebay_storage::OsIo;
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

const NODES: usize = 3;
const OPS: usize = 120;
const ME: Caller = Caller { uid: 0, gid: 0 };
const SLICE: u64 = 64 << 20;

struct Open {
    handle: Handle,
    node: usize,
    file: FileId,
    flags: OpenFlags,
}

struct History {
    random: Random,
    posix: bool,
    /// How often a start is with patterns, percent.
    patterns: u64,
    say: bool,
    dir: PathBuf,
    service: Option<Service>,
    /// The three directories that names live in, on whatever members own them.
    dirs: Vec<Fid>,
    fids: HashMap<FileId, Fid>,
    opens: Vec<Open>,
    model: Model,
}

#[test]
fn random_histories_agree_with_the_model() {
    let say = seeds::asked_seed().is_some();
    seeds::for_each_seed("histories", (40, 10_000), |seed| run(seed, say));
}

fn run(seed: u64, say: bool) {
    let temp = crate::common::scratch();
    let mut random = Random::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x1234);
    let posix = random.chance(25);
    let patterns = *random.pick(&[0, 60, 100, 100]);
    let mut history = History {
        random,
        posix,
        patterns,
        say,
        dir: temp.path().join("store"),
        service: None,
        dirs: vec![Fid::ROOT],
        fids: HashMap::new(),
        opens: Vec::new(),
        model: Model::default(),
    };
    history.start();
    for name in ["a", "b"] {
        let new = NewInode::new(Kind::Dir, 0o755);
        let attr = history
            .delegate(0)
            .names
            .make(Fid::ROOT, name.as_bytes(), new, ME)
            .unwrap();
        history.dirs.push(attr.fid);
    }
    for _ in 0..OPS {
        history.step();
    }
    history.finish();
}

impl History {
    fn start(&mut self) {
        let patterns = self.random.chance(self.patterns);
        self.note(|| format!("starts with patterns: {patterns}"));
        let consistency = if self.posix {
            Consistency::Posix
        } else {
            Consistency::Commit
        };
        let settles = self.random.chance(50);
        let codec = any_encoding(&mut self.random, settles);
        self.note(|| format!("settles: {settles}, encodes {:?}", codec.when));
        let config = Config {
            nodes: NODES as u16,
            consistency,
            patterns,
            memory: 16 << 20,
            settle: settling(settles),
            codec,
            ..Config::default()
        };
        self.service = Some(Service::start(Arc::new(OsIo), &self.dir, config).unwrap());
    }

    fn delegate(&self, node: usize) -> Arc<Delegate> {
        self.service.as_ref().unwrap().delegate(node as u16)
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if self.say {
            println!("{}", text());
        }
    }

    fn node(&mut self) -> usize {
        self.random.below(NODES as u64) as usize
    }

    /// One of a few names; the letter before the slash is the directory.
    fn name(&mut self) -> String {
        format!(
            "{}/{}",
            self.random.below(self.dirs.len() as u64),
            self.random.below(3)
        )
    }

    fn place(&self, name: &str) -> (Fid, Vec<u8>) {
        let (dir, leaf) = name.split_once('/').unwrap();
        (
            self.dirs[dir.parse::<usize>().unwrap()],
            format!("f{leaf}").into_bytes(),
        )
    }

    /// Offsets gather near the start and around slice ends, so that writes meet and commits span members.
    fn offset(&mut self) -> u64 {
        let base = *self
            .random
            .pick(&[0, 0, 0, 3000, SLICE - 1500, SLICE - 200, 2 * SLICE - 300]);
        base + self.random.below(2500)
    }

    fn len(&mut self) -> u64 {
        let most = *self.random.pick(&[1, 20, 700, 3000]);
        1 + self.random.below(most)
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..14 => self.open(),
            14..37 => self.with_handle(|h, i| h.write(i)),
            37..42 => self.with_handle(|h, i| h.row(i)),
            42..62 => self.with_handle(|h, i| h.read(i)),
            62..68 => self.with_handle(|h, i| h.sync(i)),
            68..76 => self.with_handle(|h, i| h.close(i)),
            76..80 => self.with_handle(|h, i| h.hole(i)),
            80..84 => self.with_handle(|h, i| h.seek(i)),
            84..87 => self.with_handle(|h, i| h.copy(i)),
            87..90 => self.stat(),
            90..93 => self.truncate(),
            93..95 => self.unlink(),
            95..97 => self.rename(),
            97..99 => self.link(),
            _ => self.restart(),
        }
    }

    fn with_handle(&mut self, act: impl FnOnce(&mut History, usize)) {
        if self.opens.is_empty() {
            return self.open();
        }
        let i = self.random.below(self.opens.len() as u64) as usize;
        act(self, i);
    }

    fn open(&mut self) {
        if self.opens.len() > 8 {
            return;
        }
        let (node, name) = (self.node(), self.name());
        let append = self.random.chance(15);
        let flags = OpenFlags {
            read: self.random.chance(85),
            write: self.random.chance(80) || append,
            append,
            truncate: self.random.chance(10),
        };
        let flags = OpenFlags {
            read: flags.read || !flags.write,
            truncate: flags.truncate && flags.write,
            ..flags
        };
        let (parent, leaf) = self.place(&name);
        let existing = self.model.names.get(&name).copied();
        self.note(|| format!("node {node} opens {name} {flags:?} (file {existing:?})"));
        let exclusive = self.random.chance(10);
        let create = existing.is_none() || self.random.chance(30);
        let delegate = self.delegate(node);
        let opened = match create {
            true => delegate.create(parent, &leaf, 0o644, exclusive, flags, ME),
            false => delegate
                .names
                .lookup(parent, &leaf)
                .and_then(|attr| delegate.open(attr.fid, flags)),
        };
        if create && exclusive && existing.is_some() {
            assert_eq!(opened.unwrap_err().errno(), Errno::EXIST);
            return;
        }
        let opened = opened.unwrap();
        let file = existing.unwrap_or_else(|| {
            self.model.files.push(File::new(NODES));
            let file = self.model.files.len() - 1;
            self.model.names.insert(name.clone(), file);
            self.fids.insert(file, opened.attr.fid);
            file
        });
        assert_eq!(opened.attr.fid, self.fids[&file]);
        let state = &mut self.model.files[file];
        state.handles += 1;
        state.look(node);
        if flags.truncate && existing.is_some() {
            state.truncate(node, 0);
        }
        assert_eq!(opened.attr.size, state.size(node), "size at open");
        self.opens.push(Open {
            handle: opened.handle,
            node,
            file,
            flags,
        });
    }

    fn write(&mut self, i: usize) {
        let (offset, len) = (self.offset(), self.len());
        let data = self.random.nonzero_bytes(len as usize);
        let Open {
            handle,
            node,
            file,
            flags,
        } = self.opens[i];
        self.note(|| {
            format!(
                "node {node} file {file} writes {len} at {offset} (append {})",
                flags.append
            )
        });
        let result = self.delegate(node).write(handle, offset, &data, ME);
        if !flags.write {
            assert_eq!(result.unwrap_err().errno(), Errno::BADF);
            return;
        }
        result.unwrap();
        self.change(node, file, |state| match flags.append {
            true => state.append(node, data),
            false => state.pending[node].push(Change::Put(offset, data)),
        });
    }

    /// The model's file is changed on a node, in the way that the service was asked to.
    fn change(&mut self, node: usize, file: FileId, change: impl FnOnce(&mut File)) {
        let state = &mut self.model.files[file];
        change(state);
        if self.posix {
            state.commit(node);
        }
    }

    /// Many writes in a row, which may become a pattern.
    fn row(&mut self, i: usize) {
        let (start, len) = (self.offset(), 1 + self.random.below(40));
        let offsets = row(&mut self.random, start, len);
        let Open {
            handle,
            node,
            file,
            flags,
        } = self.opens[i];
        if !flags.write || flags.append {
            return;
        }
        self.note(|| format!("node {node} file {file} writes {len} at each of {offsets:?}"));
        for offset in offsets {
            let data = self.random.nonzero_bytes(len as usize);
            let delegate = self.delegate(node);
            delegate.write(handle, offset, &data, ME).unwrap();
            let put = Change::Put(offset, data);
            self.change(node, file, |state| state.pending[node].push(put));
        }
    }

    fn read(&mut self, i: usize) {
        let (offset, mut len) = (self.offset(), self.len());
        if self.random.chance(5) {
            len = 300_000;
        }
        let Open {
            handle,
            node,
            file,
            flags,
        } = self.opens[i];
        self.note(|| format!("node {node} file {file} reads {len} at {offset}"));
        let result = self.delegate(node).read(handle, offset, len as u32);
        if !flags.read {
            assert_eq!(result.unwrap_err().errno(), Errno::BADF);
            return;
        }
        let bytes = result.unwrap();
        let (posix, state) = (self.posix, &mut self.model.files[file]);
        if posix {
            state.look(node);
        }
        state.check_read(node, (offset, len), &bytes);
    }

    fn sync(&mut self, i: usize) {
        let Open {
            handle, node, file, ..
        } = self.opens[i];
        self.note(|| format!("node {node} file {file} commits"));
        match self.random.chance(50) {
            true => {
                let _ = self.delegate(node).fsync(handle).unwrap();
                self.model.files[file].commit(node);
                self.model.files[file].look(node);
            }
            false => {
                self.delegate(node).flush(handle).unwrap();
                self.model.files[file].commit(node);
            }
        }
    }

    fn close(&mut self, i: usize) {
        let Open {
            handle, node, file, ..
        } = self.opens.swap_remove(i);
        self.note(|| format!("node {node} file {file} closes"));
        self.delegate(node).release(handle).unwrap();
        self.model.files[file].commit(node);
        self.model.files[file].close();
    }

    fn hole(&mut self, i: usize) {
        let (offset, len) = (self.offset(), self.len());
        let Open {
            handle,
            node,
            file,
            flags,
        } = self.opens[i];
        let what = match self.random.below(3) {
            0 => Fallocate {
                punch: true,
                zero: false,
                keep_size: true,
            },
            1 => Fallocate {
                punch: false,
                zero: true,
                keep_size: self.random.chance(50),
            },
            _ => Fallocate {
                punch: false,
                zero: false,
                keep_size: self.random.chance(50),
            },
        };
        self.note(|| format!("node {node} file {file} {what:?} {len} at {offset}"));
        let result = self.delegate(node).fallocate(handle, what, offset, len);
        if !flags.write {
            assert_eq!(result.unwrap_err().errno(), Errno::BADF);
            return;
        }
        result.unwrap();
        self.change(node, file, |state| {
            if what.punch || what.zero {
                state.pending[node].push(Change::Hole(offset, offset + len));
            }
            if !what.keep_size {
                state.pending[node].push(Change::Reach(offset + len));
            }
        });
    }

    fn seek(&mut self, i: usize) {
        let offset = self.offset();
        let Open {
            handle, node, file, ..
        } = self.opens[i];
        let data = self.random.chance(50);
        let found = self.delegate(node).seek(
            handle,
            offset,
            if data {
                SeekTarget::Data
            } else {
                SeekTarget::Hole
            },
        );
        self.note(|| {
            format!(
                "node {node} file {file} seeks {} from {offset}: {found:?}",
                if data { "data" } else { "a hole" }
            )
        });
        let found = match found {
            Ok(at) => Some(at),
            Err(e) => {
                assert_eq!(e.errno(), Errno::NXIO);
                None
            }
        };
        let state = &mut self.model.files[file];
        assert!(
            state.shows(node, |content| content.seek(offset, data) == found),
            "newest says {:?}",
            state.newest_content(node).seek(offset, data)
        );
    }

    fn copy(&mut self, i: usize) {
        let j = self.random.below(self.opens.len() as u64) as usize;
        let (from, to, len) = (self.offset(), self.offset(), self.len());
        let (
            Open {
                handle,
                node,
                file,
                flags,
            },
            target,
        ) = (&self.opens[i], &self.opens[j]);
        let usable =
            *node == target.node && flags.read && target.flags.write && !target.flags.append;
        if !usable || *file == target.file {
            return;
        }
        let (handle, node, file, into) = (*handle, *node, *file, target.file);
        let to_handle = target.handle;
        self.note(|| {
            format!("node {node} copies {len} from {from} of file {file} to {to} of file {into}")
        });
        let copied = self
            .delegate(node)
            .copy_range(handle, from, to_handle, to, len, WriteOrigin::Program(ME))
            .unwrap();
        // What was copied is what a read shows: ask for it, and let the model judge the read.
        let delegate = self.delegate(node);
        let bytes = delegate.read(handle, from, len as u32).unwrap();
        assert_eq!(bytes.len() as u64, copied);
        let (posix, source) = (self.posix, &mut self.model.files[file]);
        assert!(source.shows(node, |content| content.read(from, len) == bytes[..]));
        if copied > 0 {
            self.model.files[into].pending[node].push(Change::Put(to, bytes.to_vec()));
            if posix {
                self.model.files[into].commit(node);
            }
        }
    }

    fn stat(&mut self) {
        let (node, name) = (self.node(), self.name());
        let (parent, leaf) = self.place(&name);
        let found = self.delegate(node).names.lookup(parent, &leaf);
        self.note(|| format!("node {node} looks at {name}"));
        match self.model.names.get(&name) {
            None => assert_eq!(found.unwrap_err().errno(), Errno::NOENT),
            Some(&file) => {
                let attr = found.unwrap();
                let state = &mut self.model.files[file];
                assert_eq!(
                    (attr.fid, attr.nlink as usize),
                    (self.fids[&file], state.names)
                );
                assert_eq!(attr.size, state.size(node), "size of {name}");
                state.look(node);
                let again = self
                    .service
                    .as_ref()
                    .unwrap()
                    .delegate(node as u16)
                    .names
                    .getattr(attr.fid)
                    .unwrap();
                assert_eq!(again.size, attr.size);
            }
        }
    }

    fn truncate(&mut self) {
        let (node, size) = (self.node(), self.offset());
        let Some((&file, &fid)) = self
            .fids
            .iter()
            .filter(|(f, _)| self.model.files[**f].names > 0)
            .min_by_key(|(f, _)| **f ^ (size as usize & 7))
        else {
            return;
        };
        self.note(|| format!("node {node} file {file} truncates to {size}"));
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let attr = self
            .delegate(node)
            .names
            .setattr(fid, &set, None, ME)
            .unwrap();
        self.model.files[file].truncate(node, size);
        assert_eq!(attr.size, size);
    }

    fn unlink(&mut self) {
        let (node, name) = (self.node(), self.name());
        let (parent, leaf) = self.place(&name);
        self.note(|| format!("node {node} unlinks {name}"));
        let result = self.delegate(node).names.unlink(parent, &leaf, ME);
        match self.model.names.contains_key(&name) {
            true => result.unwrap(),
            false => assert_eq!(result.unwrap_err().errno(), Errno::NOENT),
        }
        self.model.unlink(&name);
    }

    fn rename(&mut self) {
        let (node, from, to) = (self.node(), self.name(), self.name());
        let ((a, x), (b, y)) = (self.place(&from), self.place(&to));
        let flags = RenameFlags {
            no_replace: self.random.chance(20),
            exchange: false,
        };
        self.note(|| format!("node {node} renames {from} to {to} {flags:?}"));
        let result = self.delegate(node).names.rename(a, &x, b, &y, flags, ME);
        let Some(&file) = self.model.names.get(&from) else {
            assert_eq!(result.unwrap_err().errno(), Errno::NOENT);
            return;
        };
        if flags.no_replace && self.model.names.contains_key(&to) {
            assert_eq!(result.unwrap_err().errno(), Errno::EXIST);
            return;
        }
        result.unwrap();
        // Two names of one file: nothing happens.
        if self.model.names.get(&to) != Some(&file) {
            self.model.unlink(&to);
            self.model.names.remove(&from);
            self.model.names.insert(to, file);
        }
    }

    fn link(&mut self) {
        let (node, from, to) = (self.node(), self.name(), self.name());
        let Some(&file) = self.model.names.get(&from) else {
            return;
        };
        let (parent, leaf) = self.place(&to);
        self.note(|| format!("node {node} links {from} as {to}"));
        let result = self
            .delegate(node)
            .names
            .link(self.fids[&file], parent, &leaf);
        if self.model.names.contains_key(&to) {
            assert_eq!(result.unwrap_err().errno(), Errno::EXIST);
            return;
        }
        result.unwrap();
        self.model.names.insert(to, file);
        self.model.files[file].names += 1;
    }

    /// A graceful stop commits what is pending; handles do not survive.
    fn restart(&mut self) {
        self.note(|| "restart".into());
        self.service.take().unwrap().stop().unwrap();
        for state in &mut self.model.files {
            (0..NODES).for_each(|node| state.commit(node));
            state.handles = 0;
            state.reserved = 0;
        }
        self.opens.clear();
        self.start();
    }

    /// Everything is what the model says, on every node, also after a restart; and a service without files stores nothing.
    fn finish(mut self) {
        while !self.opens.is_empty() {
            self.close(0);
        }
        self.check_all();
        self.restart();
        self.check_all();
        for name in self.model.names.keys() {
            let (parent, leaf) = self.place(name);
            self.delegate(0).names.unlink(parent, &leaf, ME).unwrap();
        }
        let service = self.service.take().unwrap();
        crate::common::wait_until_empty(&service);
        service.stop().unwrap();
    }

    fn check_all(&mut self) {
        for node in 0..NODES {
            let delegate = self.delegate(node);
            for (i, dir) in self.dirs.clone().into_iter().enumerate() {
                let found = delegate.names.readdir(dir, None, 100).unwrap();
                let found: Vec<String> = found
                    .iter()
                    .filter(|e| e.kind == Kind::File)
                    .map(|e| format!("{i}/{}", String::from_utf8_lossy(&e.name[1..])))
                    .collect();
                let prefix = format!("{i}/");
                let expected: Vec<String> = self
                    .model
                    .names
                    .keys()
                    .filter(|n| n.starts_with(&prefix))
                    .cloned()
                    .collect();
                assert_eq!(found, expected);
            }
            for (name, file) in self.model.names.clone() {
                let opened = delegate
                    .open(
                        self.fids[&file],
                        OpenFlags {
                            read: true,
                            ..OpenFlags::default()
                        },
                    )
                    .unwrap();
                let content = self.model.files[file].newest_content(node);
                assert_eq!(opened.attr.size, content.size, "{name}");
                for base in [0, SLICE - 8192, 2 * SLICE - 8192] {
                    let bytes = delegate.read(opened.handle, base, 16_384).unwrap();
                    let expected = content.read(base, 16_384);
                    let differs = bytes
                        .iter()
                        .zip(&expected)
                        .position(|(a, b)| a != b)
                        .map(|i| (i, bytes[i], expected[i]));
                    assert!(
                        bytes[..] == expected[..],
                        "{name} (file {file}) at {base} on node {node}: {} bytes, not {}; at, is, should be: {differs:?}",
                        bytes.len(),
                        expected.len()
                    );
                }
                delegate.release(opened.handle).unwrap();
            }
        }
    }
}
