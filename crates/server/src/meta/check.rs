//! The check of a whole namespace, given the stores of its members, none of them served: what `forebay fsck` shows.
//!
//! Operations that a crash cut off are finished at the next start. The check reports them as a note,
//! no damage, and finds no fault with the inodes they name.
use super::{
    entries, records,
    records::{Intent, RecordTag},
    steps::{EntryTarget, IntentStep, Precondition},
};
use crate::finding::Finding;
use crate::{Fid, Kind, Member, Result, inodes, inodes::Inode, keys};
use forebay_proto::intents::IntentId;
use forebay_storage::Store;
use std::collections::{HashMap, HashSet};

/// Of an inode, what the check needs.
#[derive(Clone, Copy)]
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
    findings: Vec<Finding>,
}

/// Checks entries and inodes of all members against each other. Members that are not given are not judged.
pub fn check(stores: &[(Member, &Store)]) -> Vec<Finding> {
    let mut check = NamespaceCheck {
        members: stores.iter().map(|(member, _)| *member).collect(),
        ..NamespaceCheck::default()
    };
    for (member, store) in stores {
        if let Err(e) = check.unfinished(*member, store) {
            check.damage(format!("member {member}: {e}"));
        }
        check.read_inodes(*member, store);
    }
    for (member, store) in stores {
        check.read_entries(*member, store);
    }
    check.check_link_counts();
    check.findings
}

impl NamespaceCheck {
    fn damage(&mut self, text: String) {
        self.findings.push(Finding::damage(text));
    }

    /// A fault of the entry `name` of `dir`.
    fn bad_entry(&mut self, dir: Fid, name: &[u8], what: String) {
        let name = String::from_utf8_lossy(name);
        self.damage(format!("entry {name:?} of directory {dir:#x}: {what}"));
    }

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
        for precondition in
            (prepared.iter().flat_map(|(_, preconditions)| preconditions)).chain(makes)
        {
            self.excused.insert(precondition.guard());
            if let Precondition::Entry {
                is: Some(EntryTarget { fid, .. }),
                ..
            } = precondition
            {
                self.excused.insert(*fid);
            }
        }
        let (committed, prepared) = (committed.len(), prepared.len());
        self.findings.push(Finding::note(format!(
            "member {member}: {committed} operations to finish, {prepared} held for others (the next start does it)"
        )));
        Ok(())
    }

    fn read_inodes(&mut self, member: Member, store: &Store) {
        for item in keys::all(store, keys::INODES) {
            let read = item.map_err(Into::into).and_then(|(key, value)| {
                let fid = fid_of(&key)?;
                inodes::decode(fid, &value).map(|inode| (fid, inode))
            });
            match read {
                Ok((fid, _)) if fid.owner() != member => {
                    self.damage(format!(
                        "member {member}: inode {fid:#x} belongs to another member"
                    ));
                }
                Ok((fid, inode)) => {
                    self.inodes.insert(fid, CheckedInode::of(&inode));
                }
                Err(e) => self.damage(format!("member {member}: {e}")),
            }
        }
        for item in keys::all(store, keys::ORPHANS) {
            match item.map_err(Into::into).and_then(|(key, _)| fid_of(&key)) {
                Ok(fid) => {
                    if let Some(known) = self.inodes.get_mut(&fid) {
                        known.orphan = true;
                    }
                }
                Err(e) => self.damage(format!("member {member}: {e}")),
            }
        }
    }

    fn read_entries(&mut self, member: Member, store: &Store) {
        for item in entries::all(store) {
            match item {
                Ok((dir, name, entry)) => self.entry(dir, name, entry),
                Err(e) => self.damage(format!("member {member}: {e}")),
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
                let name = String::from_utf8_lossy(&name);
                return self.damage(format!("entry {name:?} of {dir:#x}, which is no directory"));
            }
        }
        if !self.members.contains(&fid.owner()) {
            return;
        }
        let excused = self.excused.contains(&fid) || self.excused.contains(&dir);
        let Some(known) = self.inodes.get_mut(&fid) else {
            if !excused {
                self.bad_entry(dir, &name, format!("inode {fid:#x} does not exist"));
            }
            return;
        };
        known.names += 1;
        let known = *known;
        if known.kind != entry.kind {
            self.bad_entry(dir, &name, format!("inode {fid:#x} is of another kind"));
        } else if is_dir && known.names > 1 && !excused {
            self.bad_entry(dir, &name, format!("directory {fid:#x} has another name"));
        } else if is_dir && known.parent != dir && !excused {
            let parent = known.parent;
            self.damage(format!(
                "directory {fid:#x}: parent {parent:#x}, should be {dir:#x}"
            ));
        }
    }

    fn check_link_counts(&mut self) {
        let mut fids: Vec<Fid> = self.inodes.keys().copied().collect();
        fids.sort_unstable();
        let whole = self.whole();
        for fid in fids {
            let known = self.inodes[&fid];
            let is_dir = known.kind == Kind::Dir;
            let excused = self.excused.contains(&fid);
            if known.dead && known.entries > 0 {
                self.damage(format!("removed directory {fid:#x} has entries"));
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
                self.damage(format!(
                    "inode {fid:#x}: {} links, should be {expected}",
                    known.nlink
                ));
            }
            if whole && !named && !known.orphan && !excused {
                self.damage(format!("inode {fid:#x} has no name"));
            }
            if is_dir && named && !excused && !self.rooted(fid) {
                self.damage(format!("directory {fid:#x} has no way to the root"));
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
