//! One damaged copy after the other, and what became of each.
//!
//! What damage may cost is known before it is done: the files of which the damaged bytes hold something ([`StoredBytes`]). Every other one must read
//! whole and right under its name, and each of these that does not must be told by its name; where the name itself was in these bytes, or the only word of
//! its change, by the block or the batches that are lost.
//!
//! [`StoredBytes`]: super::stored::StoredBytes
use crate::damage::place::{DamageKind, DamagedPlace, PAGE};
use crate::damage::store::{self, MadeStore, ReadOutcome, Thing};
use crate::damage::stored::HeldRecords;
use forebay_client::Client;
use forebay_server::Fid;
use forebay_server::fsck;
use forebay_server::rebuild::{DamagedPath, LossReport};
use forebay_server::repair::Repair;
use forebay_server::salvage::Salvage;
use forebay_storage::OsIo;
use forebay_testkit::random::Random;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names with older records between the keys of a damaged block that it may cost too, though it holds nothing of them: the filter of its table takes one of a
/// hundred for one that it holds.
const MISTAKEN_BY_FILTER: usize = 6;

/// What the damaged bytes hold, by names.
struct HeldNames {
    held: HeldRecords,
    /// Something of the file itself.
    own: BTreeSet<String>,
    /// The name, or that of a directory above.
    named: BTreeSet<String>,
    /// The attributes of a directory above, which a walk along the path needs.
    below: BTreeSet<String>,
    /// Nothing, but other records of them have keys between those that are held.
    between: BTreeSet<String>,
}

impl HeldNames {
    fn of(made: &MadeStore, place: &DamagedPlace, all_behind: bool) -> HeldNames {
        let mut bytes = place.bytes.clone();
        if all_behind {
            bytes.end = u64::MAX;
        }
        // One bit of a record is put right by its checksum.
        let held = match place.is_flip() && !place.is_of_data() {
            true => HeldRecords::default(),
            false => made.stored.held(&place.file, bytes),
        };
        let [mut own, mut named, mut between, mut below] = [const { BTreeSet::new() }; 4];
        for (name, fid) in &made.fids {
            if held.inodes.contains(fid) {
                own.insert(name.clone());
            }
            let above = |names: &BTreeSet<(Fid, Vec<u8>)>| {
                let mut path = Path::new(name);
                while let (Some(dir), Some(last)) = (path.parent(), path.file_name()) {
                    let dir_fid = made.fids.get(dir.to_str().unwrap()).copied();
                    let key = (
                        dir_fid.unwrap_or(Fid::ROOT),
                        last.as_encoded_bytes().to_vec(),
                    );
                    if names.contains(&key) {
                        return true;
                    }
                    path = dir;
                }
                false
            };
            let mut dirs = Path::new(name).ancestors().skip(1);
            if dirs.any(|dir| {
                let fid = made.fids.get(dir.to_str().unwrap());
                held.inodes.contains(fid.unwrap_or(&Fid::ROOT))
            }) {
                below.insert(name.clone());
            }
            if above(&held.names) {
                named.insert(name.clone());
            }
            let by_number = held.files_between.iter().any(|fids| fids.contains(&fid.0));
            if by_number || held.between.contains(fid) || above(&held.names_between) {
                between.insert(name.clone());
            }
        }
        HeldNames {
            held,
            own,
            named,
            below,
            between,
        }
    }
}

/// What a list says.
struct ReportedDamage<'a> {
    made: &'a MadeStore,
    damage: Vec<String>,
    fids: BTreeSet<Fid>,
}

impl<'a> ReportedDamage<'a> {
    /// By the list of a salvage or repair, and by fsck of file data.
    fn by(made: &'a MadeStore, losses: &LossReport, fsck: &[String]) -> ReportedDamage<'a> {
        let mut fids = BTreeSet::new();
        let names = made.fids.iter().flat_map(|(name, fid)| {
            let before = store::name_before(name);
            [Some(name.clone()), before]
                .into_iter()
                .flatten()
                .map(move |name| (name, fid))
        });
        for (name, fid) in names {
            let note = format!("{name}: ");
            let listed = losses.lost.iter().any(|l| l.path == name)
                || losses
                    .notes
                    .iter()
                    .any(|n| n.starts_with(&note) && n.contains("no record says"));
            // A name, and not the beginning of another.
            let checked = || {
                fsck.iter()
                    .any(|line| line.split([' ', ',', ':', ';']).any(|word| word == name))
            };
            if listed || checked() {
                fids.insert(*fid);
            }
        }
        let damage = losses.damage.iter().chain(&losses.notes).chain(fsck);
        ReportedDamage {
            made,
            damage: damage.cloned().collect(),
            fids,
        }
    }

    fn names(&self, name: &str) -> bool {
        self.fids.contains(&self.made.fids[name])
    }

    fn names_file(&self, file: &Path) -> bool {
        let file = file.to_string_lossy();
        self.damage.iter().any(|line| line.contains(&*file))
    }

    /// Whether some line says that this batch is lost.
    fn names_batch(&self, batch: u64) -> bool {
        let number = |text: &str| {
            let digits = text.split(|c: char| !c.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse::<u64>().ok())
        };
        let says = |line: &String| {
            let behind = line.split("behind batch ").nth(1).and_then(number);
            let on = line.split("batches from ").nth(1).and_then(number);
            let one = line.split("(batch ").nth(1).and_then(number);
            let range = line.split("batches ").nth(1).and_then(|text| {
                let (first, rest) = text.split_once(" to ")?;
                Some(number(first)?..=number(rest)?)
            });
            behind.is_some_and(|last| batch > last)
                || one == Some(batch)
                || on.is_some_and(|first| batch >= first)
                || range.is_some_and(|range| range.contains(&batch))
        };
        self.damage.iter().any(says)
    }
}

pub struct DamageTries<'a> {
    made: &'a MadeStore,
    random: Random,
    files: Vec<(PathBuf, u64)>,
    counts: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
}

impl fmt::Display for DamageTries<'_> {
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

pub fn copy(from: &Path, to: &Path) {
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
        let sum = forebay_checksum::crc32c(&std::fs::read(dir.join(&path)).unwrap());
        (path, sum)
    };
    found.into_iter().map(sum).collect()
}

/// What a report of fsck says.
fn said(report: &fsck::FsckReport) -> Vec<String> {
    let problems = report.problems.iter().map(|p| p.text.clone());
    problems.chain(report.notes.iter().cloned()).collect()
}

impl<'a> DamageTries<'a> {
    pub fn new(made: &'a MadeStore, seed: u64) -> DamageTries<'a> {
        let mut found = Vec::new();
        files(&made.store(), &made.store(), &mut found);
        found.sort();
        DamageTries {
            made,
            random: Random::new(seed),
            files: found,
            counts: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn fault(&mut self, place: &DamagedPlace, text: impl fmt::Display) {
        self.count("faults");
        self.faults.push(format!("{place}: {text}"));
    }

    /// Damages a copy at a random place and reads it in every way.
    pub fn one(&mut self, damage: DamageKind) {
        // As often of one kind as of the other.
        let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, (file, _)) in self.files.iter().enumerate() {
            let name = file.file_name().unwrap().to_string_lossy();
            let kind = name.replace(|c: char| c.is_ascii_digit(), "");
            kinds.entry(kind).or_default().push(i);
        }
        let kind = self.random.index(kinds.len());
        let of_kind = kinds.into_values().nth(kind).unwrap();
        let file = of_kind[self.random.index(of_kind.len())];
        let (file, len) = self.files[file].clone();
        if damage == DamageKind::Misplaced && len <= PAGE {
            return self.one(damage);
        }
        let place = DamagedPlace::random(file, len, damage, &mut self.random);
        if !self.at(&place) {
            // Somewhere else.
            self.one(damage);
        }
    }

    /// Damages a copy at this place and reads it in every way. False if the bytes are what they were.
    pub fn at(&mut self, place: &DamagedPlace) -> bool {
        for way in [DamageTries::started, DamageTries::salvaged_and_repaired] {
            let temp = tempfile::tempdir().unwrap();
            let dir = temp.path().join("store");
            copy(&self.made.store(), &dir);
            if !place.damage(&dir) {
                return false;
            }
            let done = catch_unwind(AssertUnwindSafe(|| way(self, &dir, place)));
            if done.is_err() {
                self.fault(place, "a panic");
            }
        }
        true
    }

    /// The store as it is: everything reads right, with nothing lost.
    pub fn whole(&mut self) {
        let place = DamagedPlace::nowhere();
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("store");
        copy(&self.made.store(), &dir);
        let losses = self.salvaged_and_repaired(&dir, &place);
        assert!(
            losses.as_ref().is_some_and(LossReport::is_empty),
            "{losses:?}"
        );
    }

    /// What a plain start and fsck say.
    fn started(&mut self, dir: &Path, place: &DamagedPlace) -> Option<LossReport> {
        let report = fsck::check(
            Arc::new(OsIo),
            &[dir.into()],
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        );
        let lines = match &report {
            Ok(report) => said(report),
            Err(e) => vec![e.to_string()],
        };
        let told = report
            .as_ref()
            .map_or(true, |r| !r.is_sound() || r.may_be_lost > 0);
        let service = match store::start(dir, self.made.nodes) {
            Ok(service) => service,
            Err(e) => {
                self.count("start: refused");
                if place.is_flip() {
                    self.fault(place, format!("the start is refused: {e}"));
                }
                if !told {
                    self.fault(
                        place,
                        format!("fsck finds nothing and the start is refused: {e}"),
                    );
                }
                return None;
            }
        };
        // A log with a hole as a power failure leaves it is cut there: what follows goes too.
        let log = place.file.to_string_lossy().contains("/wal-");
        let held = HeldNames::of(self.made, place, log);
        let told = ReportedDamage::by(self.made, &LossReport::default(), &lines);
        let not_right = self.read("start", &service, place, &held);
        service.stop().unwrap();
        for (name, seen) in &not_right {
            let loud = *seen == ReadOutcome::Failed(Errno::IO);
            let batches = || held.held.batches.iter().any(|b| told.names_batch(*b));
            if !(loud || told.names_file(&place.file) || batches()) {
                self.fault(
                    place,
                    format!("start: {name}: {seen:?}, and fsck says nothing of it: {lines:#?}"),
                );
            }
        }
        self.count(match not_right.is_empty() {
            true => "start: all right",
            false => "start: told",
        });
        None
    }

    fn salvaged_and_repaired(&mut self, dir: &Path, place: &DamagedPlace) -> Option<LossReport> {
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
        let held = HeldNames::of(self.made, place, false);
        let lost = self.read("salvage", salvage.service().unwrap(), place, &held);
        salvage.stop().unwrap();
        if sums(dir) != before {
            self.fault(place, "the salvage changed the store");
        }
        // It says that it has not read file data, and that fsck names it. A start of the copy may change it: fsck comes later.
        let data = place.is_of_data();
        if !data {
            self.told("salvage", place, &held, &lost, &losses, &[]);
        }
        self.count(match lost.is_empty() {
            true => "salvage: all right",
            false => "salvage: told",
        });
        let (sound, lines) = match data {
            true => {
                let report = fsck::check(
                    Arc::new(OsIo),
                    &[dir.into()],
                    fsck::ByteCheck::Bytes,
                    &mut |_| {},
                )
                .unwrap();
                (report.is_sound(), said(&report))
            }
            false => (false, Vec::new()),
        };
        if data && !lost.is_empty() {
            assert!(!sound);
            self.told("salvage", place, &held, &lost, &losses, &lines);
        }
        let repaired = Repair::prepare(&[dir.into()], &mut |_| {}).and_then(|repair| {
            let losses = repair.losses().clone();
            repair.put_in_place().map(|report| (report, losses))
        });
        let after = match repaired {
            Ok((report, after)) => {
                assert!(report.exists());
                // A repair reads file data too.
                let told = |l: &DamagedPath| after.lost.contains(l);
                if !losses.lost.iter().all(told) {
                    self.fault(place, "repair tells of other losses than salvage");
                }
                after
            }
            Err(e) => {
                self.fault(place, format!("cannot be repaired: {e}"));
                return None;
            }
        };
        let report = fsck::check(
            Arc::new(OsIo),
            &[dir.into()],
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        );
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
        let still = self.read("repair", &service, place, &held);
        let client = Client::new(service.delegate(0));
        client.write("/new", b"after the repair").unwrap();
        assert_eq!(client.read("/new").unwrap(), b"after the repair");
        drop(client);
        service.stop().unwrap();
        self.told("repair", place, &held, &still, &after, &[]);
        if still != lost {
            self.fault(
                place,
                format!("{lost:?} by the salvage, {still:?} by the repair"),
            );
        }
        Some(losses)
    }

    /// Whether all that is not right is told.
    fn told(
        &mut self,
        how: &str,
        place: &DamagedPlace,
        held: &HeldNames,
        not_right: &BTreeMap<String, ReadOutcome>,
        losses: &LossReport,
        fsck: &[String],
    ) {
        let told = ReportedDamage::by(self.made, losses, fsck);
        let place_of = |line: &String| {
            let (file, rest) = line.split_once(" at byte ")?;
            Some((file.to_string(), rest.split(' ').next()?.to_string()))
        };
        let mut places: Vec<_> = losses.damage.iter().filter_map(place_of).collect();
        places.sort();
        let before = places.len();
        places.dedup();
        let text = losses.text();
        if places.len() < before
            || ["--repair", "\\x", "no sense"]
                .iter()
                .any(|t| text.contains(t))
        {
            let what = "a place twice, keys as bytes, or advice in the list";
            self.fault(place, format!("{how}: {what}: {text}"));
        }
        let mut by_batch = 0;
        for (name, seen) in not_right {
            if told.names(name) {
                continue;
            }
            let batches = &held.held.batches;
            let by_place = match batches.is_empty() {
                true => {
                    let is_name = held.named.contains(name) || held.between.contains(name);
                    is_name
                        && *seen != ReadOutcome::Failed(Errno::IO)
                        && told.names_file(&place.file)
                }
                // Nothing of it is left but what was before. Of a batch that changed by one bit only nothing is lost.
                false => {
                    by_batch += 1;
                    *seen != ReadOutcome::Failed(Errno::IO)
                        && batches.iter().any(|b| told.names_batch(*b))
                }
            };
            if !by_place {
                let text = losses.text();
                self.fault(
                    place,
                    format!("{how}: {name}: {seen:?} is not told: {text}"),
                );
            }
        }
        *self.counts.entry("told as batches").or_default() += by_batch;
    }

    /// Reads everything: what is not as it was. Wrong bytes are faults, and so is each of these of which the damaged bytes hold nothing.
    fn read(
        &mut self,
        how: &str,
        service: &forebay_server::Service,
        place: &DamagedPlace,
        held: &HeldNames,
    ) -> BTreeMap<String, ReadOutcome> {
        let client = Client::new(service.delegate(0));
        let seen = store::look_at_all(&client, self.made);
        let strange = store::strange(&client, &self.made.things);
        if !strange.is_empty() {
            self.count("names of removed files");
            if held.held.batches.is_empty() {
                self.fault(place, format!("{how}: removed names are back: {strange:?}"));
            }
        }
        let found = store::found(&client);
        let mut not_right = BTreeMap::new();
        let mut beside = Vec::new();
        for (name, seen) in seen {
            match &seen {
                ReadOutcome::Right => continue,
                ReadOutcome::Wrong(text) => {
                    self.fault(place, format!("{how}: wrong bytes: {text}"));
                    continue;
                }
                // Its name is lost, or that of a directory above; its content is there.
                ReadOutcome::Failed(Errno::NOENT) if self.made.is_among(&name, &found) => {
                    self.count("found without a name");
                }
                ReadOutcome::Older => self.count("older content"),
                ReadOutcome::Failed(_) => {}
            }
            let below = how == "start" && held.below.contains(&name);
            if !(held.own.contains(&name) || held.named.contains(&name) || below) {
                if held.between.contains(&name) {
                    // Not each of those below a directory. A listing meets whatever lies between its names.
                    let in_other = |other: &String| Path::new(&name).starts_with(other);
                    let listing = how == "start" && self.made.things[&name] == Thing::Dir;
                    if !listing && !beside.iter().any(in_other) {
                        beside.push(name.clone());
                    }
                } else {
                    let text = format!("{how}: {name}: {seen:?}, and nothing of it is damaged");
                    self.fault(place, text);
                }
            }
            not_right.insert(name, seen);
        }
        *self.counts.entry("beside").or_default() += beside.len() as u64;
        // The filter is whole if all that is damaged are blocks. Reads of a started store that look for the next key (where bytes of a log are) cannot use it.
        let of_rows = place.file.to_string_lossy().contains("/table-") && !held.held.others;
        if how != "start" && of_rows && beside.len() > MISTAKEN_BY_FILTER {
            self.fault(
                place,
                format!("{how}: {beside:?} are not right, and not in the block"),
            );
        }
        not_right
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
