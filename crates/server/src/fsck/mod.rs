//! The check of all stores of a stopped service: what `forebay fsck` shows.
//!
//! It changes nothing, with two exceptions that any start makes too: the torn end of a log is cut off, and a damaged copy of a
//! superblock is written again from the other one, and noted.
//!
//! What is checked: every block and record of the stores; namespace and attributes; extents against files; every piece of every
//! span; spans against segment files; counts of chunks against the spans that name them,
//! and their fingerprints against their bytes; extents against spans, both ways.
//!
//! A **problem** is what no crash may leave. A **note** is what a crash may leave and the next start completes or rolls
//! back, or space that is lost but harms nothing.

mod counts;
mod segments;
mod spans;
mod stored_range;
#[cfg(test)]
mod tests;

pub use crate::rebuild::ByteCheck;

use crate::finding::Finding;
use crate::inodes::removed_directories;
use crate::log_ranges::LogRanges;
use crate::paths::{self, InodeNames};
use crate::{
    Fid, LOST_LOG, Member, Result, files, keys, meta, offline_stores, outbox, record_subject,
};
use forebay_data::LogId;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_pattern::LogSource;
use forebay_storage::{Damage, Durability, Io, LogEnd, Options, PossibleLoss, Store};
use serde::{Deserialize, Serialize};
use spans::UnreadablePieces;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckProblem {
    /// Which part found it: `store`, `namespace`, `files`, `extents`, `data`, `fingerprints`, `counts`,
    /// `segments`.
    pub part: String,
    /// What and where, for a person.
    pub text: String,
}

/// What the check found; sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Damage. Empty: the store is sound.
    pub problems: Vec<FsckProblem>,
    /// What the next start completes or rolls back, and other things worth knowing.
    pub notes: Vec<String>,
    /// Members there are.
    pub members: u16,
    /// Those of them that cannot be opened; with one of these the service does not start.
    pub unopened: u16,
    /// Inodes, without those of removed directories.
    pub files: u64,
    /// Extents.
    pub extents: u64,
    /// Spans.
    pub spans: u64,
    /// Containers of chunks that spans share.
    #[serde(default)]
    pub containers: u64,
    /// Members whose segment files were compared with their spans. Those of which records are damaged are not.
    pub compared: u16,
    /// Segment files of these members.
    pub segments: u64,
    /// Log bytes read and verified.
    pub bytes: u64,
    /// Log bytes that no file names and nothing will free.
    pub leaked: u64,
    /// Bytes of files that a repair has found lost: extents of [`LOST_LOG`].
    pub lost: u64,
    /// Notes that tell of a log that ends where something written may be missing.
    pub may_be_lost: u64,
}

impl FsckReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, part: &str, text: impl ToString) {
        self.problems.push(FsckProblem {
            part: part.into(),
            text: text.to_string(),
        });
    }

    fn findings(&mut self, part: &str, findings: Vec<Finding>) {
        for Finding { is_damage, text } in findings {
            match is_damage {
                true => self.problem(part, text),
                false => self.notes.push(text),
            }
        }
    }
}

/// How far the check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsckProgress {
    /// What is being checked.
    pub stage: &'static str,
    /// Log bytes verified.
    pub done: u64,
    /// Log bytes there are; 0 while that is not known.
    pub total: u64,
}

impl FsckProgress {
    /// At the beginning of a stage.
    fn at(stage: &'static str) -> FsckProgress {
        FsckProgress {
            stage,
            done: 0,
            total: 0,
        }
    }
}

struct CheckedStore {
    member: Member,
    data: PathBuf,
    store: Arc<Store>,
    index: ExtentIndex,
}

/// Checks the service in `dirs`: the directory of a whole one, or the stores of all its members, in any order. `progress`
/// is called often. Without [`ByteCheck::Bytes`] log bytes are not read: only the records are checked, and whether segment files
/// are long enough.
///
/// # Errors
/// `Refused` if they are not all the stores of one service, or in use; what a store fails with when it cannot be read at all. Damage
/// is no error: it is in the report.
pub fn check(
    io: Arc<dyn Io>,
    dirs: &[PathBuf],
    byte_check: ByteCheck,
    progress: &mut dyn FnMut(FsckProgress),
) -> Result<FsckReport> {
    let layout = offline_stores::open(&*io, dirs)?;
    let mut report = FsckReport {
        members: layout.nodes.len() as u16,
        notes: layout.repaired.concat(),
        ..FsckReport::default()
    };
    progress(FsckProgress::at("opening"));
    let mut members = Vec::new();
    for (member, node) in (0..).zip(&layout.nodes) {
        match open(&io, &node.join("kv"), member, &mut report) {
            Ok((store, index)) => members.push(CheckedStore {
                member,
                data: node.join("data"),
                store: Arc::new(store),
                index,
            }),
            Err(e) => {
                report.unopened += 1;
                report.problem("store", format!("member {member} cannot be opened: {e}"));
            }
        }
    }
    progress(FsckProgress::at("stores"));
    let mut damaged = HashSet::new();
    let all_named = OnceCell::new();
    let named = || all_named.get_or_init(|| paths::inode_names(members.iter().map(|m| &*m.store)));
    for m in &members {
        for damage in m.store.survey() {
            if !damage.lost.is_nothing() {
                damaged.insert(m.member);
            }
            let text = record_subject::text_of(&damage, named());
            report.problem("store", format!("member {}: {text}", m.member));
        }
        report.files += count(&m.store);
    }
    // What a damaged block held is not known, and what is compared with it would seem wrong.
    if damaged.is_empty() && report.unopened == 0 {
        progress(FsckProgress::at("files"));
        structure(&members, &mut report)?;
    } else {
        report.notes.push(
            "not everything can be read, so names, files and extents are not compared with each other"
                .into(),
        );
    }
    data(
        &*io,
        &members,
        layout.nodes.len(),
        &damaged,
        byte_check,
        &named,
        &mut report,
        progress,
    )?;
    for m in &members {
        m.store.close()?;
    }
    Ok(report)
}

/// Opens a store to look at it. What a start would find, this finds; where a start would do nothing but go on, nothing is changed.
fn open(
    io: &Arc<dyn Io>,
    kv: &Path,
    member: Member,
    report: &mut FsckReport,
) -> Result<(Store, ExtentIndex)> {
    let options = Options {
        durability: Durability::Process,
        ..Options::default()
    };
    let mut store = Store::salvage(io.clone(), kv, options.clone())?;
    let corrected = |damage: &Damage| matches!(damage.lost, PossibleLoss::Corrected { .. });
    if !store.opened().damage.iter().all(corrected) {
        // What a crash has torn is cut by a start, and what is after it goes too; what is damaged is refused.
        let log = |damage: &&Damage| matches!(damage.lost, PossibleLoss::Batches { .. });
        match Store::open(io.clone(), kv, options) {
            Ok(opened) => store = opened,
            Err(e) => {
                let named = paths::inode_names(std::iter::once(&store));
                for damage in store.opened().damage.iter().filter(log) {
                    report.may_be_lost += 1;
                    let text = record_subject::text_of(damage, &named);
                    report.problem("store", format!("member {member}: {text}"));
                }
                return Err(e.into());
            }
        }
    }
    let opened = store.opened();
    // What is corrected is found again where it lies, and told as what it is: damage.
    let others = |damage: &&Damage| !corrected(damage);
    if opened.damage.iter().any(|damage| others(&damage)) {
        let named = paths::inode_names(std::iter::once(&store));
        for damage in opened.damage.iter().filter(others) {
            report.may_be_lost += u64::from(!damage.lost.is_nothing());
            let text = record_subject::text_of(damage, &named);
            report.notes.push(format!("member {member}: {text}"));
        }
    }
    if let LogEnd::Unclean { .. } = opened.end {
        report.may_be_lost += 1;
        let note = format!("member {member}: {}", opened.end);
        report.notes.push(note);
    }
    // Without a thread of its own: a check merges nothing.
    let index = offline_stores::open_index(&store)?;
    Ok((store, index))
}

/// Inodes that can be read; damage is reported with the store.
fn count(store: &Store) -> u64 {
    let inodes = keys::all(store, keys::INODES);
    let inodes = inodes.filter(|entry| entry.is_ok()).count() as u64;
    inodes.saturating_sub(removed_directories(store))
}

/// Namespace, and content against attributes.
fn structure(members: &[CheckedStore], report: &mut FsckReport) -> Result<()> {
    let plain: Vec<(Member, &Store)> = members.iter().map(|m| (m.member, &*m.store)).collect();
    report.findings("namespace", meta::check::check(&plain));
    let shared: Vec<(Member, Arc<Store>)> = members
        .iter()
        .map(|m| (m.member, m.store.clone()))
        .collect();
    report.findings("files", files::check::check(&shared)?);
    Ok(())
}

/// Whether the bytes of an extent are there.
fn stored(
    live: &[Option<LogRanges>],
    extent: &Extent,
    place: &dyn Fn() -> String,
    report: &mut FsckReport,
) {
    if extent.log == LOST_LOG {
        report.lost += extent.len;
        return;
    }
    let member = extent.member;
    let what = match live.get(usize::from(member)) {
        None => format!("names member {member}, which there is not"),
        Some(Some(live)) if !live.covers(extent) => format!(
            "member {member} does not hold log {} from {} on for all of it; reading it fails",
            extent.log, extent.addr
        ),
        Some(_) => return,
    };
    report.problem("extents", format!("{}: {what}", place()));
}

/// Logs that a crash left open; none if that cannot be read, which is told with the store.
fn unsealed(m: &CheckedStore) -> HashSet<LogId> {
    let logs = forebay_data::unsealed_logs(&m.store).unwrap_or_default();
    logs.into_iter().map(|(log, _)| log).collect()
}

/// Spans and segments of each member, and extents against them. `damaged`: members whose records are not all known; their
/// bytes are verified as far as they are, and nothing is compared with them.
#[expect(
    clippy::too_many_arguments,
    reason = "one call, and each is another thing"
)]
fn data<'n>(
    io: &dyn Io,
    members: &[CheckedStore],
    all: usize,
    damaged: &HashSet<Member>,
    byte_check: ByteCheck,
    paths_of: &dyn Fn() -> &'n InodeNames,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(FsckProgress),
) -> Result<()> {
    let mut total = 0;
    for m in members {
        total += spans::stored_bytes(&m.store);
    }
    let mut live: Vec<Option<LogRanges>> = vec![None; all];
    let mut unreadable = UnreadablePieces::default();
    for m in members {
        let checked = spans::check(io, m, byte_check, report, &mut |done| {
            progress(FsckProgress {
                stage: "data",
                done,
                total,
            });
        })?;
        unreadable.add(m.member, checked.unreadable);
        if !damaged.contains(&m.member) {
            report.compared += 1;
            segments::check(io, m, &checked.places, report)?;
            counts::check(m, report)?;
            live[usize::from(m.member)] = Some(checked.live);
        }
    }
    progress(FsckProgress {
        stage: "extents",
        done: total,
        total,
    });
    let mut named = LogRanges::default();
    // What a crash may leave: the next start takes back what was staged for commits that were never decided.
    let mut undecided = LogRanges::default();
    let stores: Vec<(Member, &Store)> = members.iter().map(|m| (m.member, &*m.store)).collect();
    for commit in files::check::decided_commits(&stores).0 {
        for change in &commit.changes {
            if let Change::Put(extent) = change {
                named.add_extent(extent);
            }
        }
    }
    for m in members {
        let entries = match m.index.iter() {
            Ok(entries) => entries,
            // Reported with the store.
            Err(_) if damaged.contains(&m.member) => continue,
            Err(e) => return Err(e.into()),
        };
        // What cannot be read is reported with the files.
        for (fid, extent) in entries.filter_map(Result::ok) {
            report.extents += 1;
            named.add_extent(&extent);
            unreadable.attribute_to_file(Fid(fid), &extent);
            let place = || {
                format!(
                    "file {fid:#x} offset {} of {} bytes, kept by member {}",
                    extent.offset, extent.len, m.member
                )
            };
            stored(&live, &extent, &place, report);
        }
        if damaged.contains(&m.member) {
            continue;
        }
        for (fid, extent) in files::check::pattern_extents(&m.store, &m.index)? {
            named.add_extent(&extent);
            unreadable.attribute_to_file(fid, &extent);
            let place = || {
                format!(
                    "patterns of file {:#x}, {} bytes, kept by member {}",
                    fid.0, extent.len, m.member
                )
            };
            stored(&live, &extent, &place, report);
        }
        for extent in files::check::staged_extents(&m.store)? {
            undecided.add_extent(&extent);
        }
        if let Err(e) = outbox::add_waiting(&m.store, &mut named) {
            report.problem("files", format!("member {}: {e}", m.member));
        }
    }
    let (named, undecided) = (named.sorted(), undecided.sorted());
    let all_known = members.len() == all && damaged.is_empty();
    for m in members {
        let unsealed = unsealed(m);
        let mut unacknowledged = 0u64;
        for piece in unreadable.of(m.member) {
            let source = LogSource {
                member: m.member,
                log: piece.log,
            };
            let unnamed = all_known && named.is_disjoint(source, std::slice::from_ref(&piece.live));
            match unnamed && unsealed.contains(&piece.log) {
                true => unacknowledged += 1,
                false => report.problem("data", piece.describe(paths_of())),
            }
        }
        if unacknowledged > 0 {
            let pieces = match unacknowledged {
                1 => "1 piece".to_string(),
                n => format!("{n} pieces"),
            };
            report.notes.push(format!(
                "member {}: the bytes of {pieces} of logs that were not closed are lost, as by a power cut; no file names them, and the next start gives them back",
                m.member
            ));
        }
    }
    if report.lost > 0 {
        report.notes.push(format!(
            "{} bytes of files are lost since a repair and answer EIO; its report names the files; replace or remove them",
            report.lost
        ));
    }
    if !all_known {
        return Ok(());
    }
    for m in members {
        let unsealed = unsealed(m);
        let Some(Some(live)) = live.get(usize::from(m.member)) else {
            continue;
        };
        let mut leaked = 0;
        for (source, range) in live.without(&named).without(&undecided).iter() {
            if !unsealed.contains(&source.log) {
                leaked += range.end - range.start;
            }
        }
        if leaked > 0 {
            report.notes.push(format!(
                "member {}: {leaked} bytes that no file names; they take room, nothing else",
                m.member
            ));
        }
        if !unsealed.is_empty() {
            report.notes.push(format!(
                "member {}: {} not closed; the next start sorts them",
                m.member,
                match unsealed.len() {
                    1 => "1 log was".to_string(),
                    n => format!("{n} logs were"),
                }
            ));
        }
        report.leaked += leaked;
    }
    Ok(())
}
