//! New records for a service whose stores are damaged, made of all that can be read of the old ones: what `forebay fsck
//! --repair` puts in place, and what `forebay mount --salvage` serves.
//!
//! | step | module | what it does |
//! |---|---|---|
//! | read | `collect` | all records of all members that are whole; what is damaged, and which records it may have held |
//! | names | `names` | entries and inodes are made to fit each other again |
//! | content | `content`, `unplaced` | extents against sizes, byte counts and spans |
//! | write | this file | one new key-value store a member, with the index |
//! | report | `losses` | the list of what was lost |
//!
//! Invariants:
//! - The old stores and segment files are only read: new records name the bytes where they lie. Damaged pieces of segment files
//!   are reported, and still named: reading them is `EIO` by their checksums.
//! - No wrong byte: what a lost record may have said of a file reads as `EIO` (an extent of [`LOST_LOG`](crate::LOST_LOG)),
//!   never as a hole, an older byte or an end of the file. An entry whose inode is lost keeps its name.
//! - An inode without a name gets one in `/lost+found`; a directory whose inode is lost is made again with what is in it.
//! - Every file that is not as it was is in the [`LossReport`] with its path.
//!
//! What a crash left unfinished is finished (decided commits, renames of which the intent is there) or taken back, as a start
//! does. What a start puts back after a power cut (`files/restore`) it puts back here too. Freed bytes on their way to another
//! member are forgotten: they take room, nothing else.

mod collect;
mod content;
mod losses;
mod names;
mod unplaced;

pub use forebay_data::check::ByteCheck;
pub use losses::{DamagedPath, LossReport};

use crate::inodes::{Inode, record};
use crate::superblock::unwritable;
use crate::{Fid, Kind, Member, Result, Time, keys, offline_stores, record_subject};
use collect::{CollectedRecords, CollectedStore};
use content::ContentRebuild;
use forebay_data::check::{self, StoredBytes};
use forebay_data::container::{self, keys::RecordKind};
use forebay_data::span;
use forebay_index::ExtentIndex;
use forebay_storage::{Batch, Durability, Io, Keyspace, Options, Store};
use names::RebuiltNames;
use std::path::PathBuf;
use std::sync::Arc;
use unplaced::UnplacedBytes;

/// Records of a batch.
const RECORDS_PER_BATCH: usize = 1000;
/// What a counter is moved on by: its newest record may be among what is lost, so it may have given out more than is known. Fids have
/// 48 bits.
const COUNTER_SAFETY_GAP: u64 = 1 << 32;
/// The same of containers, whose numbers have 36 bits and are given out one for some 1 MiB.
const CONTAINER_ID_SAFETY_GAP: u64 = 1 << 24;
/// The counters of a member's store.
const COUNTERS: [&[u8]; 7] = [
    b"fid",
    b"seq",
    b"intent",
    b"log",
    b"token",
    b"life",
    b"container",
];

/// What there is of one member.
#[derive(Debug, Clone)]
pub struct MemberPaths {
    /// Its key-value store, which may be damaged; `None`: there is none.
    pub kv: Option<PathBuf>,
    /// Its segment files.
    pub data: Option<PathBuf>,
}

/// A new store as it is filled.
struct NewStore {
    store: Store,
    index: ExtentIndex,
    batch: Batch,
}

impl NewStore {
    fn create(io: &Arc<dyn Io>, kv: &std::path::Path) -> Result<NewStore> {
        let options = Options {
            durability: Durability::Process,
            ..offline_stores::without_threads()
        };
        io.create_dir_all(kv).map_err(|e| unwritable(kv, &e))?;
        let store = Store::open(io.clone(), kv, options)?;
        let index = offline_stores::open_index(&store)?;
        Ok(NewStore {
            store,
            index,
            batch: Batch::new(),
        })
    }

    fn put(
        &mut self,
        keyspace: Keyspace,
        key: impl Into<bytes::Bytes>,
        value: impl Into<bytes::Bytes>,
    ) -> Result<()> {
        self.batch.put(keyspace, key, value);
        match self.batch.len() < RECORDS_PER_BATCH {
            true => Ok(()),
            false => self.apply(),
        }
    }

    fn apply(&mut self) -> Result<()> {
        match self.batch.is_empty() {
            true => Ok(()),
            false => Ok(self.store.apply(std::mem::take(&mut self.batch))?),
        }
    }
}

/// Reads the members' stores and writes new ones: member K's into the directory `targets[K]`, which is new or empty. `progress` hears
/// what is done.
///
/// # Errors
/// When the disk cannot be read or a new store cannot be written. Damage is no error: what it costs is in the answer.
pub fn rebuild(
    io: &Arc<dyn Io>,
    sources: &[MemberPaths],
    targets: &[PathBuf],
    byte_check: ByteCheck,
    progress: &mut dyn FnMut(&'static str),
) -> Result<LossReport> {
    let mut losses = LossReport::default();
    progress("reading what is whole");
    let mut collected = CollectedRecords::read(io, sources, byte_check, &mut losses)?;
    let mut stores = Vec::new();
    for kv in targets {
        stores.push(NewStore::create(io, kv)?);
    }
    // While the collected records have all fids that were given out.
    let counters = counters(&collected);
    progress("joining names and files");
    let mut names = RebuiltNames::of(&mut collected, &mut losses);
    losses.damage.extend(damage(&collected, &names));
    // Files of which only patterns are known; those that have extents are found with them.
    for fid in collected.pattern_files() {
        let made = is_member(fid, targets.len()) && collected.is_uncertain(fid);
        if made && !names.inodes.contains_key(&fid) {
            names.adopt(fid, &mut losses);
        }
    }
    for m in &collected.members {
        for fid in m
            .store
            .iter()
            .flat_map(|store| crate::outbox::files_with_displaced(store))
        {
            losses.notes.push(format!(
                "{}: overwritten without a sync shortly before the service ended; where the new bytes cannot be read, the older ones are shown",
                names.path(fid)
            ));
        }
    }
    progress("copying records");
    copy(&collected, &names, &mut stores)?;
    for (m, target) in collected.members.iter().zip(&mut stores) {
        copy_log_records(m, target, &mut losses)?;
    }
    progress("comparing files with their bytes");
    let unplaced = UnplacedBytes::of(&collected);
    for (fid, bytes) in &unplaced.at_end {
        losses.notes.push(format!(
            "{}: {bytes} bytes were written to it shortly before the log ends, and no record says where they go; if the log is cut, what was stored of them is lost",
            names.path(*fid)
        ));
    }
    for (fid, bytes) in &unplaced.lost {
        if !names.inodes.contains_key(fid) {
            losses.notes.push(format!(
                "{}: {bytes} bytes were written to a file of which no other record is left; they are in the segment files, and cannot be read",
                names.path(*fid)
            ));
        }
    }
    let mut content = ContentRebuild::new(&collected, unplaced.lost);
    content.write(&mut names, &mut stores, &mut losses)?;
    progress("writing names");
    write_names(&names, &mut stores)?;
    for (target, counters) in stores.iter_mut().zip(counters) {
        for (name, next) in COUNTERS.iter().zip(counters) {
            target.put(keys::COUNTERS, *name, next.to_be_bytes().to_vec())?;
        }
        target.apply()?;
        target.index.engine().compact()?;
        target.store.compact()?;
        target.store.close()?;
    }
    losses.files = names.inodes.len() as u64;
    losses.sort();
    Ok(losses)
}

/// What is damaged, a line for each place.
fn damage(collected: &CollectedRecords, names: &RebuiltNames) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for m in &collected.members {
        for damage in m.damage() {
            let text = record_subject::text_of(damage, &names.named);
            let line = format!("member {}: {text}", m.member);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// What belongs to files that there are, as it is. Damaged values of these keyspaces cost what they name when they are read.
fn copy(
    collected: &CollectedRecords,
    names: &RebuiltNames,
    targets: &mut [NewStore],
) -> Result<()> {
    for (m, target) in collected.members.iter().zip(targets) {
        let Some(store) = &m.store else { continue };
        for keyspace in [keys::XATTRS, keys::PATTERNS, keys::DISPLACED] {
            for item in keys::all(store, keyspace) {
                // Told with the damage of the store.
                let Ok((key, value)) = item else { continue };
                let fid = || keys::fid_of(&key);
                let belongs = keyspace == keys::DISPLACED
                    || fid().is_some_and(|fid| names.inodes.contains_key(&fid));
                if belongs {
                    target.put(keyspace, key, value)?;
                }
            }
        }
        target.apply()?;
    }
    Ok(())
}

/// Where log bytes are: spans, as far as there are records of what they name; containers that they name, counted anew.
fn copy_log_records(
    m: &CollectedStore,
    target: &mut NewStore,
    losses: &mut LossReport,
) -> Result<()> {
    let Some(store) = &m.store else {
        return Ok(());
    };
    let mut bytes = StoredBytes::new(store, None, ByteCheck::Lengths);
    // Told with the damage of the store.
    for span in span::all(store).filter_map(Result::ok) {
        for part in bytes.parts_with_records(&span) {
            target.put(keys::SPANS, part.key().to_vec(), part.value())?;
        }
    }
    let mut miscounted = 0u64;
    check::recount(store, |recount| {
        miscounted += u64::from(!recount.is_right());
        if recount.counted.are_zero() {
            return Ok(());
        }
        let id = recount.container.id;
        let fingerprints = RecordKind::Fingerprints.key(id);
        // Without them its chunks are only not found by what is written from now on.
        if let Ok(Some(mut known)) = container::load_fingerprints(store, id) {
            for chunk in m.wrong_fingerprints.get(&id).into_iter().flatten() {
                known.of[*chunk] = None;
            }
            target.put(keys::CONTAINERS, fingerprints.to_vec(), known.value())?;
        }
        let chunks = recount.container.value();
        target.put(
            keys::CONTAINERS,
            RecordKind::Chunks.key(id).to_vec(),
            chunks,
        )?;
        let counts = recount.counted.value();
        target.put(
            keys::CONTAINERS,
            RecordKind::Counts.key(id).to_vec(),
            counts,
        )
    })?;
    let mut wrong = 0u64;
    for hold in container::needed_holds(store) {
        wrong += u64::from(hold.is_wrong);
        // What is lost is not counted, and so could never be released.
        let base = container::with_records_only(store, &hold.base);
        let key = RecordKind::Base.key(hold.id).to_vec();
        target.put(keys::CONTAINERS, key, container::hold_value(&base))?;
    }
    if wrong > 0 {
        losses.damage.push(format!(
            "member {}: {wrong} records that keep what containers are encoded against are missing or wrong, and are made anew",
            m.member
        ));
    }
    if !m.wrong_fingerprints.is_empty() {
        let chunks: usize = m.wrong_fingerprints.values().map(Vec::len).sum();
        losses.damage.push(format!(
            "member {}: the fingerprints of {chunks} chunks are not those of their bytes, and are removed",
            m.member
        ));
    }
    if miscounted > 0 {
        losses.damage.push(format!(
            "member {}: the counts of chunks in {miscounted} containers are wrong, and are made anew",
            m.member
        ));
    }
    target.apply()
}

fn write_names(names: &RebuiltNames, targets: &mut [NewStore]) -> Result<()> {
    for (fid, inode) in &names.inodes {
        let Some(target) = targets.get_mut(usize::from(fid.owner())) else {
            continue;
        };
        let key = fid.0.to_be_bytes().to_vec();
        if names.orphans.contains(fid) {
            target.put(keys::ORPHANS, key.clone(), Vec::new())?;
        }
        target.put(keys::INODES, key, record::encode(inode))?;
    }
    for ((dir, name), entry) in &names.entries {
        if let Some(target) = targets.get_mut(usize::from(dir.owner())) {
            crate::meta::entries::set(&mut target.batch, *dir, name, Some(*entry));
            if target.batch.len() >= RECORDS_PER_BATCH {
                target.apply()?;
            }
        }
    }
    Ok(())
}

/// Of each member, what its counters go on from, in the order of [`COUNTERS`].
fn counters(collected: &CollectedRecords) -> Vec<[u64; COUNTERS.len()]> {
    let next = |member| {
        COUNTERS.map(|name| {
            let known = collected.counter(member, name);
            let leap = match name {
                b"container" => CONTAINER_ID_SAFETY_GAP,
                _ => COUNTER_SAFETY_GAP,
            };
            known.saturating_add(leap)
        })
    };
    collected.members.iter().map(|m| next(m.member)).collect()
}

/// An inode of which only the kind is known: closed to others, until its user says more.
fn inode_of_kind(kind: Kind, parent: Fid) -> Inode {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mode = if kind == Kind::Dir { 0o700 } else { 0o600 };
    Inode {
        nlink: 1,
        parent,
        ..Inode::new(kind, mode, uid.as_raw(), gid.as_raw(), Time::now())
    }
}

/// Whose store an inode belongs in, if there is such a member.
fn is_member(fid: Fid, members: usize) -> bool {
    usize::from(fid.owner() as Member) < members
}
