//! `forebay fsck --repair`: new records in place of damaged ones.
//!
//! ```text
//! NODE/kv.repair        the new key-value store, made first ([`rebuild`](crate::rebuild)); nothing else is changed until it is whole
//! NODE/repair-under-way from before the first member's new store takes its place until the last one's has ([`repair_marker`](crate::repair_marker))
//! NODE/damaged-T/kv     the old one, once the new one is in its place
//! NODE/damaged-T/data   log bytes that no record names any more, if records that may have named them are lost
//! FIRST/damaged-T.txt   what was damaged and lost, with paths
//! ```
//! NODE: a member's directory. FIRST: the directory of the service, or the first store given. T: the time of the repair.
//!
//! Invariants:
//! - Until [`Repair::put_in_place`] the stores are as they were; if it is interrupted before it marks them, the next repair
//!   starts from the beginning.
//! - From the first mark on the repair is finished by the next one, whatever happens, and no service starts before that.
//! - Everything of the old stores stays in `damaged-T` until the user removes it.
//! - No log byte that may belong to a file is freed: a start frees what no record names, so that is set aside first.

use crate::offline_stores::{self, LostSuperblock};
use crate::rebuild::{ByteCheck, LossReport, MemberPaths, rebuild};
use crate::repair_marker::{self, NEW_RECORDS};
use crate::superblock::StoreRole;
use crate::{Error, Result};
use forebay_data::pieces::ChecksummedPieces;
use forebay_data::ranges::{merge, subtract};
use forebay_data::segment_header::{self, HEADER_BYTES};
use forebay_data::{SegmentRange, container, span};
use forebay_storage::{Io, OsIo, Store};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes copied at a time; zeros are not.
const COPY_CHUNK: u64 = 64 << 10;

/// A repair whose result is made and waits to be put in place.
pub struct Repair {
    io: Arc<dyn Io>,
    nodes: Vec<PathBuf>,
    losses: LossReport,
    /// Superblocks to be made anew.
    lost: Vec<LostSuperblock>,
    /// Names the repair: seconds since 1970.
    time: u64,
    /// The name of what is set aside, in each node's directory.
    aside: String,
    report: PathBuf,
    _locks: Vec<File>,
}

/// What went wrong at a path before anything was changed.
fn failed<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Error + '_ {
    move |error| {
        Error::Refused(format!(
            "{}: {error}; the stores are as they were; check the disk, its room and who may write there",
            path.display()
        ))
    }
}

impl Repair {
    /// Makes new records for the service in `dirs`: the directory of a whole one, or the stores of all its members, in any order. They are
    /// not used before [`Repair::put_in_place`]. A repair that was cut off is finished first, see [`Repair::finish`]. `progress` hears
    /// what is done.
    ///
    /// # Errors
    /// `Refused` for stores in use, missing ones, and when there is no room for the new records.
    pub fn prepare(dirs: &[PathBuf], progress: &mut dyn FnMut(&'static str)) -> Result<Repair> {
        Repair::prepare_over(Arc::new(OsIo), dirs, progress)
    }

    /// As [`prepare`](Repair::prepare), with the disk of a test between. It must be the operating system's underneath.
    ///
    /// # Errors
    /// See `prepare`.
    #[doc(hidden)]
    pub fn prepare_over(
        io: Arc<dyn Io>,
        dirs: &[PathBuf],
        progress: &mut dyn FnMut(&'static str),
    ) -> Result<Repair> {
        let mut stores = AllStores::open(&io, dirs)?;
        repair_marker::finish(&*io, &stores.nodes, stores.time)?;
        // The one that was finished may have taken the time's name.
        stores.time = unused_time(&stores.nodes, stores.time);
        let aside = repair_marker::damaged_dir_name(stores.time);
        let mut repair = Repair {
            io: io.clone(),
            report: dirs[0].join(format!("{aside}.txt")),
            nodes: stores.nodes,
            losses: LossReport::default(),
            lost: stores.lost,
            time: stores.time,
            aside,
            _locks: stores.locks,
        };
        repair.discard()?;
        let kv = |node: &PathBuf| Some(node.join("kv")).filter(|kv| kv.is_dir());
        let sources: Vec<MemberPaths> = repair
            .nodes
            .iter()
            .map(|node| MemberPaths {
                kv: kv(node),
                data: Some(node.join("data")),
            })
            .collect();
        let targets: Vec<PathBuf> = repair
            .nodes
            .iter()
            .map(|node| node.join(NEW_RECORDS))
            .collect();
        repair.losses = rebuild(&io, &sources, &targets, ByteCheck::Bytes, progress)?;
        repair.losses.damage.splice(0..0, stores.damage);
        for (node, source) in repair.nodes.iter().zip(&sources) {
            if source.kv.is_none() {
                let text = format!("{}: there is no key-value store", node.display());
                repair.losses.damage.push(text);
            }
        }
        Ok(repair)
    }

    /// Finishes a repair that was cut off while it put new records in place, if there is one: all its new records were whole by then. Says
    /// what was done.
    ///
    /// # Errors
    /// `Refused` for stores in use, missing ones, and when something cannot be moved; then it can be called again.
    pub fn finish(dirs: &[PathBuf]) -> Result<Option<String>> {
        let io: Arc<dyn Io> = Arc::new(OsIo);
        let stores = AllStores::open(&io, dirs)?;
        let finished = repair_marker::finish(&*io, &stores.nodes, stores.time)?;
        Ok(finished.map(|time| {
            let aside = repair_marker::damaged_dir_name(time);
            format!(
                "a repair was cut off while it put new records in place, and is finished now: the old records of each member are in \
                 {aside} in its store, and the report is {}",
                dirs[0].join(format!("{aside}.txt")).display()
            )
        }))
    }

    /// What is lost.
    pub fn losses(&self) -> &LossReport {
        &self.losses
    }

    /// Whether records are damaged, or names and files did not fit each other. Damaged file data alone needs no new records.
    pub fn is_needed(&self) -> bool {
        let losses = &self.losses;
        let others = losses.lost.len() as u64 > losses.damaged_files;
        !losses.damage.is_empty() || !losses.found.is_empty() || others
    }

    /// What [`Repair::put_in_place`] will do, a line each.
    pub fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        for lost in &self.lost {
            let of = match lost.block.role {
                StoreRole::Service => "the service".to_string(),
                StoreRole::Member(member) => format!("member {member}"),
            };
            steps.push(format!(
                "{}: its superblock is made anew, as that of {of}, with {} member{} in all",
                lost.dir.display(),
                lost.block.members,
                if lost.block.members == 1 { "" } else { "s" }
            ));
        }
        for (member, node) in self.nodes.iter().enumerate() {
            let aside = node.join(&self.aside);
            steps.push(format!(
                "member {member}: {} goes to {}, and new records made of what is whole take its place",
                node.join("kv").display(),
                aside.join("kv").display()
            ));
            if self.losses.spans_lost.contains(&(member as u16)) {
                steps.push(format!(
                    "member {member}: file data that no record names any more is kept in {}",
                    aside.join("data").display()
                ));
            }
        }
        steps.push(format!(
            "the report is written to {}",
            self.report.display()
        ));
        steps
    }

    /// Does it; answers where the report is.
    ///
    /// # Errors
    /// When something cannot be set aside or moved. The error says whether the stores are as they were, or the repair is under way: then no
    /// service starts, and the next repair finishes this one.
    pub fn put_in_place(&self) -> Result<PathBuf> {
        for (member, node) in self.nodes.iter().enumerate() {
            let aside = node.join(&self.aside);
            self.io.create_dir_all(&aside).map_err(failed(&aside))?;
            if self.losses.spans_lost.contains(&(member as u16)) {
                set_aside(
                    &node.join(NEW_RECORDS),
                    &node.join("data"),
                    &aside.join("data"),
                )?;
            }
            self.io.sync_dir(node).map_err(failed(node))?;
        }
        let text = format!(
            "{}\nset aside: {} in each member's store; remove it once nothing is missed\n",
            self.losses.text(),
            self.aside
        );
        std::fs::write(&self.report, text).map_err(failed(&self.report))?;
        File::open(&self.report)
            .and_then(|f| f.sync_all())
            .map_err(failed(&self.report))?;
        // They say what all members know, so each alone is right.
        for lost in &self.lost {
            lost.block.write(&*self.io, &lost.dir)?;
        }
        repair_marker::begin(&*self.io, &self.nodes, self.time)?;
        repair_marker::finish(&*self.io, &self.nodes, self.time)?;
        Ok(self.report.clone())
    }

    /// Gives up what was made; the stores stay as they are.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(&self) -> Result<()> {
        // Of a repair under way it is all that there is of the new records, also at members without a mark: so all are asked first.
        for node in &self.nodes {
            repair_marker::refuse_if_repairing(&*self.io, node)?;
        }
        for node in &self.nodes {
            let new = node.join(NEW_RECORDS);
            if new.is_dir() {
                std::fs::remove_dir_all(&new).map_err(failed(&new))?;
            }
        }
        Ok(())
    }
}

/// The stores of all members, locked.
struct AllStores {
    nodes: Vec<PathBuf>,
    locks: Vec<File>,
    /// What is wrong with the directories.
    damage: Vec<String>,
    lost: Vec<LostSuperblock>,
    /// Seconds since 1970 that no repair of them has.
    time: u64,
}

impl AllStores {
    fn open(io: &Arc<dyn Io>, dirs: &[PathBuf]) -> Result<AllStores> {
        let found = offline_stores::open_damaged(io, dirs)?;
        let mut nodes = Vec::new();
        for (member, node) in found.nodes.into_iter().enumerate() {
            match node {
                Some(node) => nodes.push(node),
                None => {
                    return Err(Error::Refused(format!(
                        "the store of member {member} is missing; put it back, or read what is left with `forebay mount --salvage`"
                    )));
                }
            }
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = unused_time(&nodes, now.unwrap_or_default().as_secs());
        Ok(AllStores {
            nodes,
            locks: found.locks,
            damage: found.damage,
            lost: found.lost,
            time,
        })
    }
}

/// The first time from this one on under which no member has set anything aside.
fn unused_time(nodes: &[PathBuf], mut time: u64) -> u64 {
    while nodes
        .iter()
        .any(|node| node.join(repair_marker::damaged_dir_name(time)).exists())
    {
        time += 1;
    }
    time
}

/// Keeps the bytes of segment files in `data` that no span and no container in `kv` names: a file without any by another link, else by a copy.
fn set_aside(kv: &Path, data: &Path, aside: &Path) -> Result<()> {
    let mut known: HashMap<u32, Vec<Range<u64>>> = HashMap::new();
    let store = Store::open(Arc::new(OsIo), kv, offline_stores::without_threads())?;
    let mut add = |at: SegmentRange| known.entry(at.segment).or_default().push(at.start..at.end);
    for span in span::all(&store) {
        if let Some(raw) = span?.raw() {
            add(raw.segment_range(&raw.stored));
        }
    }
    for container in container::all(&store) {
        let container = container?;
        let counts = container::load_counts(&store, &container)?;
        let named = container.places(|i| counts.0[i] > 0);
        named.into_iter().for_each(&mut add);
    }
    store.close()?;
    std::fs::create_dir(aside).map_err(failed(aside))?;
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(data)(e)),
    };
    for entry in entries {
        let name = entry.map_err(failed(data))?.file_name();
        let Some(number) = name.to_str().and_then(segment_header::number) else {
            continue;
        };
        let (from, to) = (data.join(&name), aside.join(segment_header::name(number)));
        match known.get(&number) {
            None => std::fs::hard_link(&from, &to).map_err(failed(&to))?,
            Some(places) => copy_unknown(&from, places, &to).map_err(failed(&to))?,
        }
    }
    File::open(aside)
        .and_then(|d| d.sync_all())
        .map_err(failed(aside))
}

/// Copies what lies between the places and is not zero.
fn copy_unknown(from: &Path, places: &[Range<u64>], to: &Path) -> std::io::Result<()> {
    let from = File::open(from)?;
    let len = from.metadata()?.len();
    let places = merge(places.to_vec());
    let mut copy = None;
    let mut buffer = Vec::new();
    for range in subtract(HEADER_BYTES..len.max(HEADER_BYTES), &places) {
        let mut at = range.start;
        while at < range.end {
            let n = COPY_CHUNK.min(range.end - at);
            buffer.resize(n as usize, 0);
            from.read_exact_at(&mut buffer, at)?;
            if buffer.iter().any(|b| *b != 0) {
                let file = match &copy {
                    Some(file) => file,
                    None => copy.insert(File::create_new(to)?),
                };
                file.write_all_at(&buffer, at)?;
            }
            at += n;
        }
    }
    copy.map_or(Ok(()), |file| file.sync_all())
}
