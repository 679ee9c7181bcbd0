//! The check of file content by `forebay fsck`, over the stores of all members, with the service stopped.
//!
//! Damage is what no crash may leave: extents that overlap, lie in another member's slice, beyond the file's end or in no
//! file, a file whose inode counts other bytes than its extents and patterns hold, and patterns that cannot be read or
//! belong to no file. Not damage, but *unfinished*, is what a crash may leave and the next start finishes (`forebay fsck`
//! shows it as a note): staged parts, decisions, records of files that are gone.
pub(crate) use super::patterns::check::{PatternGaps, pattern_gaps, recount_patterns};
use super::patterns::check::{PatternUsage, held};
use super::records::{self, CommitId};
use crate::finding::Finding;
use crate::inodes::{Inode, Inodes};
use crate::{ExtentLayout, Fid, Kind, Member, Result, keys};
use forebay_index::{Change, Extent, ExtentIndex, SLICE};
use forebay_proto::placement::SliceMap;
use forebay_storage::Store;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Checks the file content of all members; `stores` has every member's.
///
/// # Errors
/// When a store cannot be read at all; damage of single records is reported as a problem.
pub fn check(stores: &[(Member, Arc<Store>)]) -> Result<Vec<Finding>> {
    let mut check = ContentCheck {
        map: SliceMap {
            members: stores.len() as u16,
        },
        inodes: HashMap::new(),
        bytes: HashMap::new(),
        unfinished: HashSet::new(),
        findings: Vec::new(),
    };
    for (member, store) in stores {
        check
            .inodes
            .insert(*member, Inodes::new(store.clone(), *member)?);
    }
    for (member, store) in stores {
        check.records(*member, store)?;
    }
    for (member, store) in stores {
        check.extents(*member, store)?;
    }
    for (member, store) in stores {
        check.sums(*member, store)?;
    }
    Ok(check.findings)
}

/// The extents of commits that are staged in this store: not published, but not given up either.
///
/// # Errors
/// When the store cannot be read. A record that cannot be read is left out: `check` reports it.
pub(crate) fn staged_extents(store: &Store) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    for entry in keys::all(store, keys::STAGED) {
        let (key, value) = entry?;
        if key.first() == Some(&records::STAGED_CHANGES) {
            extents.extend(
                records::changes_of(&value)
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|c| match c {
                        Change::Put(extent) => Some(extent),
                        Change::Cut { .. } => None,
                    }),
            );
        }
    }
    Ok(extents)
}

/// One member's part of a commit that was decided and not yet published there.
pub(crate) struct DecidedCommit {
    pub(crate) fid: Fid,
    pub(crate) seq: u64,
    pub(crate) changes: Vec<Change>,
}

/// The parts that the next start would publish, in the order of their commits, and files of which a commit was decided. What cannot be
/// read is left out.
pub(crate) fn decided_commits(stores: &[(Member, &Store)]) -> (Vec<DecidedCommit>, HashSet<Fid>) {
    let mut decisions = HashMap::new();
    for (_, store) in stores {
        for (key, value) in keys::readable(store, keys::DECISIONS) {
            if key.first() == Some(&records::DECISION)
                && let (Ok(id), Ok((seq, members))) =
                    (CommitId::from_key(&key), records::decision_of(&value))
            {
                decisions.insert(id, (seq, members));
            }
        }
    }
    let mut commits = Vec::new();
    for (member, store) in stores {
        for (key, value) in keys::readable(store, keys::STAGED) {
            if key.first() == Some(&records::STAGED_CHANGES)
                && let (Ok(id), Ok(changes)) =
                    (CommitId::from_key(&key), records::changes_of(&value))
                && let Some((seq, members)) = decisions.get(&id)
                && members.contains(member)
            {
                commits.push(DecidedCommit {
                    fid: id.fid,
                    seq: *seq,
                    changes,
                });
            }
        }
    }
    commits.sort_by_key(|commit| commit.seq);
    (commits, decisions.keys().map(|id| id.fid).collect())
}

/// The record that says which members hold parts of a file: key and value for `keys::DECISIONS`.
pub(crate) fn holders_record(fid: Fid, members: &[Member]) -> (bytes::Bytes, bytes::Bytes) {
    (
        records::participants_key(fid),
        records::participants_value(members),
    )
}

/// The log ranges that patterns in this store name, by file.
///
/// # Errors
/// When the store or the index cannot be read.
pub fn pattern_extents(store: &Store, index: &ExtentIndex) -> Result<Vec<(Fid, Extent)>> {
    let all = held(store, index)?.into_iter();
    Ok(all
        .flat_map(|held| held.extents.into_iter().map(move |e| (held.fid, e)))
        .collect())
}

struct ContentCheck {
    map: SliceMap,
    inodes: HashMap<Member, Inodes>,
    /// Bytes that the extents of each file hold, over all members.
    bytes: HashMap<Fid, u64>,
    /// Files with commits or a removal that the next start goes on with: sums need not agree.
    unfinished: HashSet<Fid>,
    findings: Vec<Finding>,
}

fn range(extent: &Extent) -> String {
    format!("[{}, {})", extent.offset, extent.end())
}

impl ContentCheck {
    fn damage(&mut self, text: String) {
        self.findings.push(Finding::damage(text));
    }

    fn inode(&self, fid: Fid) -> Result<Option<Inode>> {
        let inodes = self.inodes.get(&fid.owner());
        inodes.map_or(Ok(None), |inodes| inodes.find(fid))
    }

    fn records(&mut self, member: Member, store: &Store) -> Result<()> {
        for keyspace in [keys::STAGED, keys::DECISIONS] {
            for entry in keys::all(store, keyspace) {
                let (key, value) = entry?;
                let found = match keyspace {
                    keys::STAGED => self.staged(member, &key),
                    _ => self.decision(member, &key, &value),
                };
                match found {
                    Ok(finding) => self.findings.extend(finding),
                    Err(error) => self.damage(format!("member {member}: {error}")),
                }
            }
        }
        for fid in keys::orphans(store) {
            self.unfinished.insert(fid?);
        }
        Ok(())
    }

    fn staged(&mut self, member: Member, key: &[u8]) -> Result<Option<Finding>> {
        if key.first() == Some(&records::STAGED_CHANGES) {
            let CommitId { fid, writer, token } = CommitId::from_key(key)?;
            return Ok(Some(Finding::note(format!(
                "member {member}, file {fid:#x}: commit {token} of member {writer} is staged; the next start finishes it"
            ))));
        }
        self.leftover(member, key)
    }

    fn decision(&mut self, member: Member, key: &[u8], value: &[u8]) -> Result<Option<Finding>> {
        if key.first() == Some(&records::DECISION) {
            let fid = CommitId::from_key(key)?.fid;
            let (seq, members) = records::decision_of(value)?;
            self.unfinished.insert(fid);
            return Ok(Some(Finding::note(format!(
                "file {fid:#x}: commit {seq} is not published by members {members:?} yet; the next start does it"
            ))));
        }
        self.leftover(member, key)
    }

    fn leftover(&self, member: Member, key: &[u8]) -> Result<Option<Finding>> {
        let fid = records::fid_of_key(key)?;
        Ok(self.inode(fid)?.is_none().then(|| {
            Finding::note(format!(
                "member {member}: a record of commits of file {fid:#x}, which is gone; harmless"
            ))
        }))
    }

    fn extents(&mut self, member: Member, store: &Arc<Store>) -> Result<()> {
        let index = ExtentIndex::of(store)?;
        let mut file: Option<(Fid, Option<Inode>)> = None;
        let (mut last, mut ownerless) = (None, 0);
        for entry in index.iter()? {
            let (fid, extent) = match entry {
                Ok((fid, extent)) => (Fid(fid), extent),
                Err(error) => {
                    self.damage(format!("member {member}: {error}"));
                    continue;
                }
            };
            if file.as_ref().is_none_or(|(known, _)| *known != fid) {
                if let Some((before, _)) = file {
                    self.ownerless(member, before, ownerless);
                }
                file = Some((fid, self.inode(fid)?));
                (last, ownerless) = (None, 0);
            }
            let inode = file.as_ref().and_then(|(_, inode)| inode.as_ref());
            ownerless += u64::from(inode.is_none());
            self.extent(member, fid, extent, last, inode.map(|i| (i.size, i.layout)));
            last = Some(extent);
        }
        if let Some((before, _)) = file {
            self.ownerless(member, before, ownerless);
        }
        for held in held(store, &index)? {
            let inode = self.inode(held.fid)?;
            self.patterns(member, held, inode);
        }
        Ok(())
    }

    fn patterns(&mut self, member: Member, held: PatternUsage, inode: Option<Inode>) {
        let fid = held.fid;
        *self.bytes.entry(fid).or_default() += held.bytes;
        let whole = held.lost.is_empty();
        for what in held.lost {
            self.damage(format!("member {member}: {what}"));
        }
        if self.unfinished.contains(&fid) {
            return;
        }
        let mut wrong = |what: String| {
            self.damage(format!(
                "member {member}, patterns of file {fid:#x}: {what}"
            ));
        };
        let Some(inode) = inode else {
            return wrong(format!(
                "{} records of a file that does not exist",
                held.records
            ));
        };
        if fid.owner() != member || inode.layout != ExtentLayout::Patterned {
            wrong(format!(
                "{} records, but the file has no patterns",
                held.records
            ));
        }
        if held.end > inode.size {
            wrong(format!(
                "they hold bytes up to {}, behind the end, {}",
                held.end, inode.size
            ));
        }
        if whole && held.counted != held.bytes {
            wrong(format!(
                "they count {} bytes, and hold {}",
                held.counted, held.bytes
            ));
        }
    }

    fn extent(
        &mut self,
        member: Member,
        fid: Fid,
        extent: Extent,
        last: Option<Extent>,
        inode: Option<(u64, ExtentLayout)>,
    ) {
        *self.bytes.entry(fid).or_default() += extent.len;
        let file = || format!("member {member}, file {fid:#x}");
        let in_one_slice = extent.len > 0 && extent.offset / SLICE == (extent.end() - 1) / SLICE;
        let place = match inode {
            Some((_, ExtentLayout::Patterned)) => fid.owner(),
            _ => self.map.member(fid.owner(), extent.offset),
        };
        if !in_one_slice || place != member {
            self.damage(format!(
                "{}: extent {} does not belong to this member",
                file(),
                range(&extent)
            ));
        }
        if let Some(first) = last.filter(|l| l.end() > extent.offset) {
            self.damage(format!(
                "{}: extents {} and {} overlap",
                file(),
                range(&first),
                range(&extent)
            ));
        }
        match inode.map(|i| i.0) {
            Some(size) if extent.end() > size && !self.unfinished.contains(&fid) => {
                self.damage(format!(
                    "{}: extent {} lies behind the end, {size}",
                    file(),
                    range(&extent)
                ));
            }
            Some(_) => {}
            // Counted by `extents`.
            None => {}
        }
    }

    /// These extents are of a file that does not exist.
    fn ownerless(&mut self, member: Member, fid: Fid, extents: u64) {
        if extents > 0 {
            self.damage(format!(
                "member {member}: {extents} extents of file {fid:#x}, which does not exist"
            ));
        }
    }

    fn sums(&mut self, member: Member, store: &Store) -> Result<()> {
        for entry in keys::all(store, keys::INODES) {
            let Ok(key) = <[u8; 8]>::try_from(&entry?.0[..]) else {
                self.damage(format!("member {member}: an inode key of a wrong length"));
                continue;
            };
            let fid = Fid(u64::from_be_bytes(key));
            match self.inode(fid) {
                Ok(Some(inode)) if inode.kind == Kind::File && !self.unfinished.contains(&fid) => {
                    let extents = self.bytes.get(&fid).copied().unwrap_or(0);
                    if extents != inode.bytes {
                        self.damage(format!(
                            "file {fid:#x}: its inode counts {} stored bytes, its extents hold {extents}",
                            inode.bytes
                        ));
                    }
                }
                Ok(_) => {}
                Err(error) => self.damage(format!("member {member}: {error}")),
            }
        }
        Ok(())
    }
}
