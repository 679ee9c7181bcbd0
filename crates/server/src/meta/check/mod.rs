//! The check of a whole namespace, given the stores of its members, none of them served: what `forebay fsck` shows.
//!
//! Operations that a crash cut off are finished at the next start. The check reports them as `Unfinished` (a note of
//! `forebay fsck`, no damage), and finds no fault with the inodes they name.
mod finding;

pub use finding::NamespaceFinding;

use super::{
    entries, records,
    records::{Intent, RecordTag},
    steps::{EntryTarget, IntentStep, Precondition},
};
use crate::{Fid, Kind, Member, Result, inodes, inodes::Inode, keys};
use forebay_proto::intents::IntentId;
use forebay_storage::Store;
use std::collections::{HashMap, HashSet};
use std::ops::Bound;

/// Of an inode, what the check needs.
struct CheckedInode {
    kind: Kind,
    nlink: u32,
    dead: bool,
    parent: Fid,
    names: u32,
    subdirs: u32,
    entries: u32,
    orphan: bool,
    /// Directories: whether it hangs on the root, once known.
    rooted: bool,
}

impl CheckedInode {
    fn of(inode: &Inode) -> CheckedInode {
        CheckedInode {
            kind: inode.kind,
            nlink: inode.nlink,
            dead: inode.dead,
            parent: if inode.kind == Kind::Dir {
                inode.parent
            } else {
                Fid::ROOT
            },
            names: 0,
            subdirs: 0,
            entries: 0,
            orphan: false,
            rooted: false,
        }
    }
}

/// Operations over several members that a crash cut off, of one store; what cannot be read is left out.
pub(crate) struct UnfinishedOperations {
    /// Decided here.
    pub(crate) intents: Vec<(IntentId, Intent)>,
    /// Promised to other members.
    pub(crate) prepared: Vec<(IntentId, Vec<Precondition>)>,
    applied: HashSet<IntentId>,
    watermarks: HashMap<Member, u64>,
}

impl UnfinishedOperations {
    /// Of the store of a member.
    pub(crate) fn read(store: &Store) -> UnfinishedOperations {
        let applied: Vec<(IntentId, ())> = records::readable(store, RecordTag::Applied);
        let watermarks: Vec<(IntentId, u64)> = records::readable(store, RecordTag::Watermark);
        UnfinishedOperations {
            intents: records::readable(store, RecordTag::Intent),
            prepared: records::readable(store, RecordTag::Prepared),
            applied: applied.into_iter().map(|(id, ())| id).collect(),
            watermarks: watermarks
                .into_iter()
                .map(|(id, number)| (id.coordinator, number))
                .collect(),
        }
    }

    /// Whether this member has done its steps of the intent.
    pub(crate) fn has_applied(&self, id: IntentId) -> bool {
        let below = self.watermarks.get(&id.coordinator).copied();
        self.applied.contains(&id) || below.is_some_and(|below| id.number < below)
    }
}

#[derive(Default)]
struct NamespaceCheck {
    members: HashSet<Member>,
    inodes: HashMap<Fid, CheckedInode>,
    /// Inodes that an unfinished operation names.
    excused: HashSet<Fid>,
    findings: Vec<NamespaceFinding>,
}

/// Checks entries and inodes of all members against each other. Members that are not given are not judged.
pub fn check(stores: &[(Member, &Store)]) -> Vec<NamespaceFinding> {
    let mut check = NamespaceCheck {
        members: stores.iter().map(|(member, _)| *member).collect(),
        ..NamespaceCheck::default()
    };
    for (member, store) in stores {
        if let Err(e) = check.unfinished(*member, store) {
            check.findings.push(NamespaceFinding::Damaged {
                member: *member,
                text: e.to_string(),
            });
        }
        check.read_inodes(*member, store);
    }
    for (member, store) in stores {
        check.read_entries(*member, store);
    }
    check.judge();
    check.findings
}

impl NamespaceCheck {
    fn unfinished(&mut self, member: Member, store: &Store) -> Result<()> {
        let committed: Vec<(IntentId, Intent)> = records::all(store, RecordTag::Intent)?;
        let prepared: Vec<(IntentId, Vec<Precondition>)> =
            records::all(store, RecordTag::Prepared)?;
        if committed.is_empty() && prepared.is_empty() {
            return Ok(());
        }
        for step in committed
            .iter()
            .flat_map(|(_, intent)| &intent.parts)
            .flat_map(|(_, part)| &part.steps)
        {
            self.excused.insert(step.guard());
            if let IntentStep::Entry {
                to: Some(EntryTarget { fid, .. }),
                ..
            } = step
            {
                self.excused.insert(*fid);
            }
        }
        let parts = committed.iter().flat_map(|(_, intent)| &intent.parts);
        let makes = parts.flat_map(|(_, part)| &part.makes);
        for need in (prepared.iter().flat_map(|(_, needs)| needs)).chain(makes) {
            self.excused.insert(need.guard());
            if let Precondition::Entry {
                is: Some(EntryTarget { fid, .. }),
                ..
            } = need
            {
                self.excused.insert(*fid);
            }
        }
        let (committed, prepared) = (committed.len(), prepared.len());
        self.findings.push(NamespaceFinding::Unfinished {
            member,
            committed,
            prepared,
        });
        Ok(())
    }

    fn read_inodes(&mut self, member: Member, store: &Store) {
        for item in store.scan(keys::INODES, Bound::Unbounded, Bound::Unbounded) {
            let read = item.map_err(Into::into).and_then(|(key, value)| {
                let fid = fid_of(&key)?;
                inodes::decode(fid, &value).map(|inode| (fid, inode))
            });
            match read {
                Ok((fid, _)) if fid.owner() != member => self
                    .findings
                    .push(NamespaceFinding::Foreign { member, fid }),
                Ok((fid, inode)) => {
                    self.inodes.insert(fid, CheckedInode::of(&inode));
                }
                Err(e) => self.findings.push(NamespaceFinding::Damaged {
                    member,
                    text: e.to_string(),
                }),
            }
        }
        for item in store.scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded) {
            match item.map_err(Into::into).and_then(|(key, _)| fid_of(&key)) {
                Ok(fid) => {
                    if let Some(known) = self.inodes.get_mut(&fid) {
                        known.orphan = true;
                    }
                }
                Err(e) => self.findings.push(NamespaceFinding::Damaged {
                    member,
                    text: e.to_string(),
                }),
            }
        }
    }

    fn read_entries(&mut self, member: Member, store: &Store) {
        for item in entries::all(store) {
            match item {
                Ok((dir, name, entry)) => self.entry(dir, name, entry),
                Err(e) => self.findings.push(NamespaceFinding::Damaged {
                    member,
                    text: e.to_string(),
                }),
            }
        }
    }

    fn entry(&mut self, dir: Fid, name: Vec<u8>, entry: EntryTarget) {
        let fid = entry.fid;
        let is_dir = entry.kind == Kind::Dir;
        match self.inodes.get_mut(&dir) {
            Some(parent) if parent.kind == Kind::Dir => {
                parent.entries += 1;
                parent.subdirs += u32::from(is_dir);
            }
            _ => {
                return self
                    .findings
                    .push(NamespaceFinding::NoDirectory { dir, name });
            }
        }
        if !self.members.contains(&fid.owner()) {
            return;
        }
        let excused = self.excused.contains(&fid) || self.excused.contains(&dir);
        let Some(known) = self.inodes.get_mut(&fid) else {
            if !excused {
                self.findings
                    .push(NamespaceFinding::NoInode { dir, name, fid });
            }
            return;
        };
        known.names += 1;
        if known.kind != entry.kind {
            self.findings
                .push(NamespaceFinding::WrongKind { dir, name, fid });
        } else if is_dir && known.names > 1 && !excused {
            self.findings
                .push(NamespaceFinding::TwoNames { dir, name, fid });
        } else if is_dir && known.parent != dir && !excused {
            self.findings.push(NamespaceFinding::WrongParent {
                fid,
                parent: known.parent,
                expected: dir,
            });
        }
    }

    fn judge(&mut self) {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        fids.sort_unstable();
        let whole = self.whole();
        for fid in fids {
            let known = &self.inodes[&fid];
            let is_dir = known.kind == Kind::Dir;
            let excused = self.excused.contains(&fid);
            if known.dead && known.entries > 0 {
                self.findings
                    .push(NamespaceFinding::DeadWithEntries { fid });
            }
            let expected = match (is_dir, known.dead) {
                (true, false) => 2 + known.subdirs,
                (true, true) => 0,
                (false, _) => known.names,
            };
            let named = known.names > 0 || fid == Fid::ROOT;
            // Names of files may be with members that are not here.
            let counted = is_dir || whole;
            if counted && known.nlink != expected && !excused {
                self.findings.push(NamespaceFinding::WrongLinks {
                    fid,
                    links: known.nlink,
                    expected,
                });
            }
            if whole && !named && !known.orphan && !excused {
                self.findings.push(NamespaceFinding::Unreachable { fid });
            }
            if is_dir && named && !excused && !self.rooted(fid) {
                self.findings.push(NamespaceFinding::Loop { fid });
            }
        }
    }

    /// Every member that an inode names is here.
    fn whole(&self) -> bool {
        let last = self.members.iter().max().copied().unwrap_or(0);
        (0..=last).all(|member| self.members.contains(&member))
            && self
                .inodes
                .values()
                .all(|known| self.members.contains(&known.parent.owner()))
    }

    /// Whether the way up ends at the root (or leaves the members that are here, or meets an excused directory).
    fn rooted(&mut self, fid: Fid) -> bool {
        let mut path = Vec::new();
        let mut seen = HashSet::new();
        let mut at = fid;
        let rooted = loop {
            if at == Fid::ROOT || !self.members.contains(&at.owner()) || self.excused.contains(&at)
            {
                break true;
            }
            match self.inodes.get(&at) {
                Some(known) if known.rooted => break true,
                Some(known) if seen.insert(at) => {
                    path.push(at);
                    at = known.parent;
                }
                _ => break false,
            }
        };
        for fid in path {
            if let Some(known) = self.inodes.get_mut(&fid) {
                known.rooted = rooted;
            }
        }
        rooted
    }
}

fn fid_of(key: &[u8]) -> Result<Fid> {
    let key = <[u8; 8]>::try_from(key);
    key.map(|key| Fid(u64::from_be_bytes(key)))
        .map_err(|_| crate::Error::Corrupt("an inode key is not 8 bytes long".into()))
}
