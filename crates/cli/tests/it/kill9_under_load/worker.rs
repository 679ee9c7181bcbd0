//! One worker: random operations on its own files through one mount, noted as they are acknowledged.
use super::history::{Files, PendingMount};
use forebay_testkit::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Its two directories: they may lie with different members, so that renames cross them.
const DIRS: [&str; 2] = ["a", "b"];
/// Names in each.
const NAMES: u64 = 6;
/// The file that all workers share, and one worker's slots in it.
const SHARED: &str = "shared";
const SLOT: usize = 3000;
const SLOTS: u64 = 16;

/// Closes a file, and says whether that went well.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is the file's own, which does not close it any more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// See the head of this file.
pub struct Worker {
    id: usize,
    random: Random,
    /// Writes the same bytes again and again.
    repeats: bool,
    files: Files,
    pending: PendingMount,
    /// What it has acknowledged in the shared file, by slot.
    slots: BTreeMap<u64, Vec<u8>>,
    pending_slot: Option<(u64, Vec<u8>)>,
}

impl Worker {
    pub fn new(id: usize, seed: u64, repeats: bool) -> Worker {
        let random = Random::new(seed * 1000 + id as u64 + 1);
        let (files, pending) = (Files::default(), PendingMount::None);
        Worker {
            id,
            random,
            repeats,
            files,
            pending,
            slots: BTreeMap::new(),
            pending_slot: None,
        }
    }

    fn dir(&self) -> String {
        format!("w{}", self.id)
    }

    /// Works until a call fails, which it must not do before the service is `killed`.
    pub fn work(&mut self, root: &Path, done: &AtomicU64, killed: &AtomicBool) {
        let mut works = || -> io::Result<()> {
            for dir in DIRS {
                fs::create_dir_all(root.join(self.dir()).join(dir))?;
            }
            loop {
                self.step(root)?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        if let Err(e) = works() {
            assert!(
                killed.load(Ordering::SeqCst),
                "worker {}: {:?}: {e} while the service lived",
                self.id,
                self.pending
            );
        }
    }

    fn step(&mut self, root: &Path) -> io::Result<()> {
        if self.random.below(4) == 0 {
            return self.write_slot(root);
        }
        let base = root.join(self.dir());
        self.pending = self.choose();
        let pending = self.pending.clone();
        match &pending {
            PendingMount::None => {}
            PendingMount::Write {
                name,
                offset,
                bytes,
            } => {
                let file = File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(base.join(name))?;
                // In pieces, so that one commit holds several writes.
                let piece = 1 + self.random.below(9000) as usize;
                for (i, part) in bytes.chunks(piece).enumerate() {
                    file.write_all_at(part, (offset + i * piece) as u64)?;
                }
                // Half of them are published by close alone.
                if self.random.below(2) == 0 {
                    file.sync_all()?;
                } else {
                    close(file)?;
                }
            }
            PendingMount::Rename { from, to } => fs::rename(base.join(from), base.join(to))?,
            PendingMount::Unlink { name } => fs::remove_file(base.join(name))?,
        }
        self.files = self.files.after(&pending);
        self.pending = PendingMount::None;
        Ok(())
    }

    fn choose(&mut self) -> PendingMount {
        let name = |random: &mut Random| {
            format!("{}/{}", DIRS[random.below(2) as usize], random.below(NAMES))
        };
        let existing: Vec<String> = self.files.0.keys().cloned().collect();
        match self.random.below(10) {
            0..2 if !existing.is_empty() => {
                let from = existing[self.random.below(existing.len() as u64) as usize].clone();
                match name(&mut self.random) {
                    to if to != from => PendingMount::Rename { from, to },
                    _ => PendingMount::Unlink { name: from },
                }
            }
            2 if !existing.is_empty() => PendingMount::Unlink {
                name: existing[self.random.below(existing.len() as u64) as usize].clone(),
            },
            _ => {
                let most = [100, 5000, 70_000][self.random.below(3) as usize];
                let bytes = self.bytes(most);
                PendingMount::Write {
                    name: name(&mut self.random),
                    offset: self.random.below(50_000) as usize,
                    bytes,
                }
            }
        }
    }

    /// Bytes that no other write has, none of them zero; of one that repeats itself, every other write begins as many others do.
    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let mut bytes = vec![0; 1 + self.random.below(most) as usize];
        let content = match self.repeats && self.random.below(2) == 0 {
            true => self.random.below(8),
            false => self.random.below(u64::MAX),
        };
        forebay_trace::content::Content::new(0, content).fill(0, &mut bytes);
        bytes.iter_mut().for_each(|b| *b |= 1);
        bytes
    }

    fn offset(&self, slot: u64) -> u64 {
        (slot * 8 + self.id as u64) * SLOT as u64
    }

    fn write_slot(&mut self, root: &Path) -> io::Result<()> {
        let slot = self.random.below(SLOTS);
        let mut bytes = self.bytes(1);
        bytes.resize(SLOT, bytes[0]);
        self.pending_slot = Some((slot, bytes.clone()));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(SHARED))?;
        file.write_all_at(&bytes, self.offset(slot))?;
        file.sync_all()?;
        self.slots.insert(slot, bytes);
        self.pending_slot = None;
        Ok(())
    }

    /// Compares everything with what was acknowledged; goes on from what is there.
    pub fn verify(&mut self, root: &Path, seed: u64) {
        let mut found = BTreeMap::new();
        for dir in DIRS {
            let path = root.join(self.dir()).join(dir);
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                // Killed before the first directory was made.
                Err(e) if e.kind() == io::ErrorKind::NotFound && self.files.0.is_empty() => {
                    continue;
                }
                Err(e) => panic!("seed {seed}: {}: {e}", path.display()),
            };
            for entry in entries {
                let entry = entry.unwrap();
                let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
                let bytes = fs::read(entry.path())
                    .unwrap_or_else(|e| panic!("seed {seed}: reading {name}: {e}"));
                assert!(
                    found.insert(name.clone(), bytes).is_none(),
                    "seed {seed}: {name} is listed twice"
                );
            }
        }
        let (id, pending) = (
            self.id,
            std::mem::replace(&mut self.pending, PendingMount::None),
        );
        if let Err(why) = self.files.accept(&pending, found) {
            panic!("seed {seed}, worker {id}: {why}");
        }
        self.verify_slots(root, seed);
    }

    fn verify_slots(&mut self, root: &Path, seed: u64) {
        let mut shared = Vec::new();
        match File::open(root.join(SHARED)).and_then(|mut f| f.read_to_end(&mut shared)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.slots.is_empty() => return,
            result => drop(result.unwrap_or_else(|e| panic!("seed {seed}: the shared file: {e}"))),
        }
        let pending = self.pending_slot.take();
        for slot in 0..SLOTS {
            let at = self.offset(slot) as usize;
            let end = (at + SLOT).min(shared.len());
            let seen = shared.get(at..end).unwrap_or_default();
            let acknowledged = self.slots.get(&slot).map_or(&[][..], |b| b);
            let new = pending
                .as_ref()
                .filter(|(s, _)| *s == slot)
                .map_or(acknowledged, |(_, b)| b);
            // A slot past the end of the file reads as nothing: so only zeros may have been acknowledged there.
            let wrong = (0..SLOT).find(|i| {
                let get = |bytes: &[u8]| bytes.get(*i).copied().unwrap_or(0);
                get(seen) != get(acknowledged) && get(seen) != get(new)
            });
            if let Some(i) = wrong {
                panic!(
                    "seed {seed}, worker {}: slot {slot} of the shared file is wrong at byte {}",
                    self.id,
                    at + i
                );
            }
            if pending.as_ref().is_some_and(|(s, _)| *s == slot) {
                let mut now = seen.to_vec();
                now.resize(SLOT, 0);
                self.slots.insert(slot, now);
            }
        }
    }
}
