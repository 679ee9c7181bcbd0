//! Crashes at random points: power failures at durability `disk` (unsynced bytes lost, writes torn), kills at durability
//! `process`. After each, what was acknowledged is there, what was under way happened whole or not at all, and nothing
//! else is read. At the end no byte is stored that no file has.
//!
//! Short form: 25 seeds. `SOAK=1`: 2,000, going on with the seed in `$SOAK_DIR/crashes.next`.
//! `FOREBAY_SEED=n` replays one seed.

use crate::common::*;
use crate::model::content::Content;
use crate::model::rows::row;
use forebay_server::delegate::{Delegate, Handle};
use forebay_server::{CodecWhen, Config, Fid, OpenFlags, RenameFlags, Result, Service, SetAttr};
use forebay_storage::Durability;
use forebay_storage::fault::{FaultIo, Image};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const NODES: u16 = 2;
const CRASHES: usize = 4;
const NAMES: u64 = 5;

/// What is acknowledged: names and contents. One thread works, so one operation at most is under way at a crash.
#[derive(Clone, Default, PartialEq)]
struct Truth {
    names: BTreeMap<String, usize>,
    files: Vec<Content>,
}

struct Open {
    handle: Handle,
    node: u16,
    file: usize,
    /// What a commit would make of the file.
    pending: Option<Content>,
}

struct Run {
    random: Random,
    durability: Durability,
    patterns: bool,
    settles: bool,
    truth: Truth,
    opens: Vec<Open>,
    say: bool,
}

#[test]
fn acknowledged_work_survives_and_nothing_else_is_read() {
    let say = seeds::asked_seed().is_some();
    seeds::for_each_seed("crashes", (25, 2_000), |seed| run(seed, say));
}

fn run(seed: u64, say: bool) {
    let mut random = Random::new(seed ^ 0x00C0_FFEE);
    let durability = if random.chance(60) {
        Durability::Disk
    } else {
        Durability::Process
    };
    let (patterns, settles) = (random.chance(60), random.chance(60));
    let mut run = Run {
        random,
        durability,
        patterns,
        settles,
        truth: Truth::default(),
        opens: Vec::new(),
        say,
    };
    let mut image = Image::default();
    for crash in 0..CRASHES {
        image = run.until_crash(&image, seed * 100 + crash as u64);
    }
    run.end(&image, seed);
}

fn start(disk: &FaultIo, durability: Durability, patterns: bool, settles: bool) -> Result<Service> {
    let config = Config {
        durability,
        patterns,
        settle: settling(settles),
        codec: encoding(match (settles, patterns) {
            (true, true) => CodecWhen::Settle,
            (false, true) => CodecWhen::Off,
            (_, false) => CodecWhen::Inline,
        }),
        ..config(NODES)
    };
    Service::start(Arc::new(disk.clone()), Path::new("/nowhere/store"), config)
}

impl Run {
    fn note(&self, text: impl FnOnce() -> String) {
        if self.say {
            println!("{}", text());
        }
    }

    /// Starts on what the last crash left, checks it, works until the disk fails; answers what is left then.
    fn until_crash(&mut self, image: &Image, seed: u64) -> Image {
        let disk = FaultIo::with_image(image, seed);
        // Now and then the start itself is cut off.
        if self.random.chance(25) {
            disk.stop_after(1 + self.random.below(200));
            if let Err(e) = start(&disk, self.durability, self.patterns, self.settles) {
                self.note(|| format!("the start is cut off: {e}"));
                return self.crash(&disk);
            }
            return self.crash(&disk);
        }
        let service = start(&disk, self.durability, self.patterns, self.settles).unwrap();
        self.check(&service, std::slice::from_ref(&self.truth));
        let how = self.random.below(3);
        match how {
            0 => disk.stop_after(1 + self.random.below(250)),
            1 => disk.fail_after(1 + self.random.below(250), std::io::ErrorKind::Other),
            _ => {}
        }
        for _ in 0..10 + self.random.below(60) {
            let mut after = self.truth.clone();
            let result = self.step(&service, &mut after);
            if let Err(e) = result {
                self.note(|| format!("... fails: {e}"));
                assert!(
                    disk.failed_call().is_some(),
                    "an operation failed without a fault: {e}"
                );
                let left = self.crash(&disk);
                drop(service);
                self.opens.clear();
                // Either: let a start on a copy say which.
                let again = FaultIo::with_image(&left, seed + 7);
                let service = start(&again, self.durability, self.patterns, self.settles).unwrap();
                let before = self.truth.clone();
                self.truth = self.check(&service, &[before, after]);
                return self.crash(&again);
            }
            self.truth = after;
        }
        self.opens.clear();
        self.crash(&disk)
    }

    fn crash(&self, disk: &FaultIo) -> Image {
        self.note(|| "crash".into());
        if self.durability == Durability::Disk {
            disk.crash()
        } else {
            disk.kill()
        }
    }

    fn step(&mut self, service: &Service, after: &mut Truth) -> Result<()> {
        let node = self.random.below(NODES.into()) as u16;
        let delegate = service.delegate(node);
        let name = format!("f{}", self.random.below(NAMES));
        match self.random.below(100) {
            0..20 => self.open(&delegate, node, name, after),
            20..45 => self.write(service),
            45..55 => self.row(service),
            55..75 => self.commit(service, after),
            75..85 => self.close(service, after),
            85..90 => {
                let Some(file) = after.names.remove(&name) else {
                    return Ok(());
                };
                self.note(|| format!("unlink {name} (file {file})"));
                delegate.names.unlink(Fid::ROOT, name.as_bytes(), ROOT)
            }
            90..95 => {
                let to = format!("f{}", self.random.below(NAMES));
                let Some(file) = after.names.get(&name).copied().filter(|_| to != name) else {
                    return Ok(());
                };
                after.names.remove(&name);
                after.names.insert(to.clone(), file);
                self.note(|| format!("rename {name} to {to}"));
                delegate.names.rename(
                    Fid::ROOT,
                    name.as_bytes(),
                    Fid::ROOT,
                    to.as_bytes(),
                    RenameFlags::default(),
                    ROOT,
                )
            }
            _ => {
                // Through a node that has nothing pending, so that the truncate publishes nothing else.
                let Some(&file) = after.names.get(&name) else {
                    return Ok(());
                };
                if self.opens.iter().any(|o| o.file == file) {
                    return Ok(());
                }
                let size = self.random.below(30_000);
                after.files[file].resize(size);
                self.note(|| format!("truncate {name} (file {file}) to {size}"));
                let fid = delegate.names.lookup(Fid::ROOT, name.as_bytes())?.fid;
                delegate
                    .names
                    .setattr(
                        fid,
                        &SetAttr {
                            size: Some(size),
                            ..SetAttr::default()
                        },
                        None,
                        ROOT,
                    )
                    .map(|_| ())
            }
        }
    }

    /// A file is open on one node at a time here: the histories are about more.
    fn open(
        &mut self,
        delegate: &Delegate,
        node: u16,
        name: String,
        after: &mut Truth,
    ) -> Result<()> {
        let file = match after.names.get(&name) {
            Some(&file) => file,
            None => {
                after.files.push(Content::default());
                after.names.insert(name.clone(), after.files.len() - 1);
                after.files.len() - 1
            }
        };
        if self.opens.iter().any(|o| o.file == file) {
            return Ok(());
        }
        self.note(|| format!("node {node} opens {name} (file {file})"));
        let handle = delegate
            .create(Fid::ROOT, name.as_bytes(), 0o644, false, BOTH, ROOT)?
            .handle;
        self.opens.push(Open {
            handle,
            node,
            file,
            pending: None,
        });
        Ok(())
    }

    fn write(&mut self, service: &Service) -> Result<()> {
        let Some(i) = self.pick() else { return Ok(()) };
        let base = *self.random.pick(&[0, 0, 9000, SLICE - 3000]);
        let (offset, most) = (
            base + self.random.below(5000),
            *self.random.pick(&[100, 5000, 20_000]),
        );
        let len = 1 + self.random.below(most);
        let data = self.random.nonzero_bytes(len as usize);
        let truth = &self.truth;
        let open = &mut self.opens[i];
        if self.say {
            println!(
                "node {} writes {len} at {offset} of file {}",
                open.node, open.file
            );
        }
        service
            .delegate(open.node)
            .write(open.handle, offset, &data, ROOT)?;
        open.pending
            .get_or_insert_with(|| truth.files[open.file].clone())
            .put(offset, &data);
        Ok(())
    }

    /// Many writes in a row, which may become a pattern.
    fn row(&mut self, service: &Service) -> Result<()> {
        let Some(i) = self.pick() else { return Ok(()) };
        let base = *self.random.pick(&[0, 9000, SLICE - 3000]);
        let (start, len) = (base + self.random.below(5000), 1 + self.random.below(40));
        let offsets = row(&mut self.random, start, len);
        let truth = &self.truth;
        let open = &mut self.opens[i];
        if self.say {
            println!(
                "node {} writes {len} at each of {offsets:?} of file {}",
                open.node, open.file
            );
        }
        let delegate = service.delegate(open.node);
        for offset in offsets {
            let data = self.random.nonzero_bytes(len as usize);
            delegate.write(open.handle, offset, &data, ROOT)?;
            open.pending
                .get_or_insert_with(|| truth.files[open.file].clone())
                .put(offset, &data);
        }
        Ok(())
    }

    fn commit(&mut self, service: &Service, after: &mut Truth) -> Result<()> {
        let Some(i) = self.pick() else { return Ok(()) };
        let sync = self.random.chance(50);
        let open = &mut self.opens[i];
        if self.say {
            println!(
                "node {} commits file {} (sync {sync})",
                open.node, open.file
            );
        }
        if let Some(content) = open.pending.take() {
            after.files[open.file] = content;
        }
        let delegate = service.delegate(open.node);
        if sync {
            delegate.fsync(open.handle).map(|_| ())
        } else {
            delegate.flush(open.handle)
        }
    }

    fn close(&mut self, service: &Service, after: &mut Truth) -> Result<()> {
        let Some(i) = self.pick() else { return Ok(()) };
        let open = self.opens.swap_remove(i);
        self.note(|| format!("node {} closes file {}", open.node, open.file));
        if let Some(content) = open.pending {
            after.files[open.file] = content;
        }
        service.delegate(open.node).release(open.handle)
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.opens.is_empty()).then(|| self.random.below(self.opens.len() as u64) as usize)
    }

    /// What the service shows is one of these, on every node; answers which.
    fn check(&self, service: &Service, allowed: &[Truth]) -> Truth {
        for node in service.nodes() {
            let damage = node.store.check();
            assert!(damage.is_empty(), "{damage:?}");
        }
        let views: Vec<Truth> = (0..NODES)
            .map(|node| matching(&service.delegate(node), allowed))
            .collect();
        assert!(views.windows(2).all(|w| w[0] == w[1]), "nodes disagree");
        views[0].clone()
    }

    /// All files removed, nothing is stored.
    fn end(&mut self, image: &Image, seed: u64) {
        let disk = FaultIo::with_image(image, seed);
        let service = start(&disk, self.durability, self.patterns, self.settles).unwrap();
        self.check(&service, std::slice::from_ref(&self.truth));
        for name in self.truth.names.keys() {
            service
                .delegate(0)
                .names
                .unlink(Fid::ROOT, name.as_bytes(), ROOT)
                .unwrap();
        }
        wait_until_empty(&service);
        service.stop().unwrap();
    }
}

fn matching(delegate: &Delegate, allowed: &[Truth]) -> Truth {
    let names: Vec<String> = delegate
        .names
        .readdir(Fid::ROOT, None, 100)
        .unwrap()
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap())
        .collect();
    let mut why = String::new();
    let found = allowed.iter().find(|truth| {
        if !names.iter().eq(truth.names.keys()) {
            why += &format!("names {names:?}, not {:?}; ", truth.names.keys());
            return false;
        }
        truth.names.iter().all(
            |(name, file)| match shows(delegate, name, &truth.files[*file]) {
                None => true,
                Some(difference) => {
                    why += &format!("{name} (file {file}): {difference}; ");
                    false
                }
            },
        )
    });
    found
        .unwrap_or_else(|| panic!("none of {} states: {why}", allowed.len()))
        .clone()
}

/// `None`: exactly this content.
fn shows(delegate: &Delegate, name: &str, content: &Content) -> Option<String> {
    let fid = delegate
        .names
        .lookup(Fid::ROOT, name.as_bytes())
        .unwrap()
        .fid;
    let open = delegate
        .open(
            fid,
            OpenFlags {
                read: true,
                ..OpenFlags::default()
            },
        )
        .unwrap();
    let mut difference = (open.attr.size != content.size)
        .then(|| format!("size {}, not {}", open.attr.size, content.size));
    for base in [0, SLICE - 4096] {
        let bytes = delegate.read(open.handle, base, 60_000).unwrap();
        let expected = content.read(base, 60_000);
        if difference.is_none() && bytes[..] != expected[..] {
            let at = bytes.iter().zip(&expected).position(|(a, b)| a != b);
            difference = Some(format!("other bytes from {at:?} after {base}"));
        }
    }
    delegate.release(open.handle).unwrap();
    difference
}
