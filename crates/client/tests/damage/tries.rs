//! One damaged copy after the other, and what became of each.
use crate::store::{self, Made, Seen};
use forebay_client::Client;
use forebay_server::fsck;
use forebay_server::rebuild::{Loss, Losses};
use forebay_server::repair::Repair;
use forebay_server::salvage::Salvage;
use forebay_storage::OsIo;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names that one damaged block of a table, or one record of the log, may cost.
const OF_A_BLOCK: usize = 150;

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// One bit is another.
    Flip,
    /// The end is missing.
    Cut,
}

/// One place of one file.
struct Place {
    file: PathBuf,
    at: u64,
    bit: Option<u8>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bit {
            Some(bit) => write!(f, "{} byte {} bit {bit}", self.file.display(), self.at),
            None => write!(f, "{} cut to {} bytes", self.file.display(), self.at),
        }
    }
}

impl Place {
    /// How many files the damage may cost, as the list tells of it.
    fn most(&self, losses: &Losses) -> usize {
        let name = self.file.file_name().unwrap().to_string_lossy();
        let copied = ["superblock", "MANIFEST", "control", "log"];
        if copied.iter().any(|c| name.starts_with(c)) {
            return 0;
        }
        match self.bit {
            None => usize::MAX,
            // A file of two names.
            Some(_) if name.ends_with(".seg") => 2,
            // Where the blocks of a table are.
            Some(_)
                if losses.damage.iter().any(|d| {
                    ["footer", "metadata region", "index"]
                        .iter()
                        .any(|what| d.contains(&format!(": {what} at byte")))
                }) =>
            {
                usize::MAX
            }
            Some(_) => OF_A_BLOCK,
        }
    }
}

pub struct Tries<'a> {
    made: &'a Made,
    state: u64,
    files: Vec<(PathBuf, u64)>,
    counts: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
}

impl fmt::Display for Tries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.counts)
    }
}

/// Files of a store, by their path in it. Those of zeros that are kept for full disks hold nothing.
fn files(root: &Path, dir: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if meta.is_dir() {
            files(root, &path, found);
        } else if !["RESERVE", "SPARE", "lock"].contains(&&*name) && meta.len() > 0 {
            found.push((path.strip_prefix(root).unwrap().into(), meta.len()));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else if !["RESERVE", "SPARE"].contains(&&*name.to_string_lossy()) {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// All files with their checksums.
fn sums(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    files(dir, dir, &mut found);
    found.sort();
    let sum = |(path, _): (PathBuf, u64)| {
        let sum = crc32c::crc32c(&std::fs::read(dir.join(&path)).unwrap());
        (path, sum)
    };
    found.into_iter().map(sum).collect()
}

/// Whether something says that names or newer content may be missing.
fn tells(losses: &Losses) -> bool {
    let words = ["overwritten without a sync", "was not closed"];
    let tells = |note: &String| words.iter().any(|w| note.contains(w));
    !losses.is_empty() || losses.notes.iter().any(tells)
}

impl<'a> Tries<'a> {
    pub fn new(made: &'a Made, seed: u64) -> Tries<'a> {
        let mut found = Vec::new();
        files(&made.store(), &made.store(), &mut found);
        found.sort();
        Tries {
            made,
            state: seed | 1,
            files: found,
            counts: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) % below.max(1)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn fault(&mut self, place: &Place, text: impl fmt::Display) {
        self.count("faults");
        self.faults.push(format!("{place}: {text}"));
    }

    /// Damages a copy at a random place and reads it in every way.
    pub fn one(&mut self, harm: Harm) {
        let file = self.random(self.files.len() as u64) as usize;
        let (file, len) = self.files[file].clone();
        let at = self.random(len);
        let bit = (harm == Harm::Flip).then(|| self.random(8) as u8);
        let place = Place { file, at, bit };
        for way in [Tries::started, Tries::salvaged_and_repaired] {
            let temp = tempfile::tempdir().unwrap();
            let dir = temp.path().join("store");
            copy(&self.made.store(), &dir);
            store::damage(&dir.join(&place.file), place.at, place.bit);
            let done = catch_unwind(AssertUnwindSafe(|| way(self, &dir, &place)));
            if done.is_err() {
                self.fault(&place, "a panic");
            }
        }
    }

    /// The store as it is: everything reads right, with nothing lost.
    pub fn whole(&mut self) {
        let place = Place {
            file: "nothing".into(),
            at: 0,
            bit: None,
        };
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("store");
        copy(&self.made.store(), &dir);
        let losses = self.salvaged_and_repaired(&dir, &place);
        assert!(losses.as_ref().is_some_and(Losses::is_empty), "{losses:?}");
    }

    /// What a plain start and fsck say.
    fn started(&mut self, dir: &Path, place: &Place) -> Option<Losses> {
        let report = fsck::check(Arc::new(OsIo), &[dir.into()], &mut |_| {});
        let told = report
            .as_ref()
            .map_or(true, |r| !r.is_sound() || r.tells_of_loss());
        let service = match store::start(dir, self.made.nodes) {
            Ok(service) => service,
            Err(e) => {
                self.count("start: refused");
                if !told {
                    self.fault(
                        place,
                        format!("fsck finds nothing and the start is refused: {e}"),
                    );
                }
                return None;
            }
        };
        let lost = self.read("start", &service, place);
        service.stop().unwrap();
        match (lost, told) {
            ((0, _), _) => self.count("start: all right"),
            (_, true) => self.count("start: told"),
            ((n, _), false) => self.fault(place, format!("{n} names lost and fsck says sound")),
        }
        None
    }

    fn salvaged_and_repaired(&mut self, dir: &Path, place: &Place) -> Option<Losses> {
        let before = sums(dir);
        let config = store::config(self.made.nodes);
        let scratch = dir.parent().unwrap();
        let salvage = Salvage::start(Arc::new(OsIo), &[dir.into()], scratch, &config, &mut |_| {});
        let salvage = match salvage {
            Ok(salvage) => salvage,
            Err(e) => {
                self.fault(place, format!("cannot be salvaged: {e}"));
                return None;
            }
        };
        let losses = salvage.losses().clone();
        let lost = self.read("salvage", salvage.service().unwrap(), place);
        salvage.stop().unwrap();
        if sums(dir) != before {
            self.fault(place, "the salvage changed the store");
        }
        let untold = !tells(&losses);
        match (lost, untold) {
            ((0, _), _) => self.count("salvage: all right"),
            ((_, n @ 1..), true) => {
                self.fault(place, format!("salvage: {n} names lost without a word"))
            }
            ((n, _), _) if n > place.most(&losses) => {
                let text = losses.text();
                self.fault(place, format!("salvage: {n} names lost: {text}"));
            }
            _ => self.count("salvage: told"),
        }
        let repaired = Repair::prepare(&[dir.into()], &mut |_| {}).and_then(|repair| {
            // A repair reads file data too.
            let told = |l: &Loss| repair.losses().lost.contains(l);
            let same = losses.lost.iter().all(told) && (lost.0 == 0 || tells(repair.losses()));
            repair.put_in_place().map(|report| (report, same))
        });
        match repaired {
            Ok((report, same)) => {
                assert!(report.exists());
                if !same {
                    self.fault(place, "repair tells of other losses than salvage");
                }
            }
            Err(e) => {
                self.fault(place, format!("cannot be repaired: {e}"));
                return None;
            }
        }
        let report = fsck::check(Arc::new(OsIo), &[dir.into()], &mut |_| {});
        match report {
            // Damaged log bytes stay where they are.
            Ok(report) => {
                let other = report
                    .problems
                    .iter()
                    .find(|p| !["data", "segments"].contains(&&*p.part));
                if let Some(problem) = other {
                    self.fault(
                        place,
                        format!("after the repair: {}: {}", problem.part, problem.text),
                    );
                }
            }
            Err(e) => self.fault(place, format!("after the repair: {e}")),
        }
        let service = match store::start(dir, self.made.nodes) {
            Ok(service) => service,
            Err(e) => {
                self.fault(place, format!("does not start after the repair: {e}"));
                return None;
            }
        };
        let still = self.read("repair", &service, place);
        let client = Client::new(service.delegate(0));
        client.write("/new", b"after the repair").unwrap();
        assert_eq!(client.read("/new").unwrap(), b"after the repair");
        drop(client);
        service.stop().unwrap();
        if still != lost {
            self.fault(
                place,
                format!("{lost:?} names lost by the salvage, {still:?} by the repair"),
            );
        }
        Some(losses)
    }

    /// Reads everything; how many names are not as they were, and how many of these did not say so by `EIO`. Wrong bytes are faults.
    fn read(
        &mut self,
        how: &str,
        service: &forebay_server::Service,
        place: &Place,
    ) -> (usize, usize) {
        let client = Client::new(service.delegate(0));
        let seen = store::look_at_all(&client, self.made);
        let strange = store::strange(&client, &self.made.things);
        if !strange.is_empty() {
            self.count("names of removed files");
        }
        let found = store::found(&client);
        let (mut lost, mut silent) = (0, 0);
        for (name, seen) in &seen {
            match seen {
                Seen::Right => continue,
                // Its name is lost, or that of a directory above; its content is there.
                Seen::Failed(Errno::NOENT) if self.made.is_among(name, &found) => {
                    self.count("found without a name");
                    silent += 1;
                    continue;
                }
                Seen::Failed(Errno::IO) => {}
                Seen::Failed(_) => silent += 1,
                Seen::Older => {
                    self.count("older content");
                    silent += 1;
                }
                Seen::Wrong(text) => self.fault(place, format!("{how}: wrong bytes: {text}")),
            }
            lost += 1;
        }
        (lost, silent)
    }

    pub fn judge(&self) {
        assert!(
            self.faults.is_empty(),
            "{} faults: {:#?}",
            self.faults.len(),
            self.faults
        );
    }
}
