//! Makes entries and inodes fit each other: every name refers to an inode that exists, every inode has a name or waits to be
//! removed, every directory can be reached from the root, and link counts are right.
use super::collect::CollectedRecords;
use super::inode_of_kind;
use super::losses::{DamagedPath, LossReport};
use crate::inodes::Inode;
use crate::meta::steps::{EntryTarget, IntentStep, Precondition};
use crate::paths::{self, InodeNames};
use crate::{Fid, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where inodes without a name get one.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The namespace as it will be.
pub struct RebuiltNames {
    pub inodes: BTreeMap<Fid, Inode>,
    pub entries: BTreeMap<(Fid, Vec<u8>), EntryTarget>,
    /// Files that the next start removes.
    pub orphans: HashSet<Fid>,
    /// Files of which nothing but the name is known, or only the content.
    pub unknown: HashSet<Fid>,
    /// The first name of each inode.
    pub named: InodeNames,
    lost_and_found: Option<Fid>,
    /// For the inode of `/lost+found`.
    new_fid: Fid,
}

impl RebuiltNames {
    /// Of what was collected, which loses its names by it.
    pub fn of(collected: &mut CollectedRecords, losses: &mut LossReport) -> RebuiltNames {
        let new = collected.counter(Fid::ROOT.owner(), b"fid") + super::COUNTER_SAFETY_GAP / 2;
        let mut names = RebuiltNames {
            inodes: std::mem::take(&mut collected.inodes).into_iter().collect(),
            entries: std::mem::take(&mut collected.entries),
            orphans: std::mem::take(&mut collected.orphans),
            unknown: HashSet::new(),
            named: HashMap::new(),
            lost_and_found: None,
            new_fid: Fid::new(Fid::ROOT.owner(), new),
        };
        let ended = names.finish_operations(collected);
        names.root(losses);
        names.removed_directories();
        names.entries(collected, losses);
        names.nameless(&ended, losses);
        names.break_cycles(losses);
        names.count();
        names
    }

    /// Does what decided operations have left to do, as the next start would. Answers the inodes that lost their name by it, or never
    /// got one.
    fn finish_operations(&mut self, collected: &CollectedRecords) -> HashSet<Fid> {
        let mut ended = HashSet::new();
        // Of a member whose records may be lost it is not known what it has done: what was made since must not go.
        let done = |member: u16, id| {
            let m = collected.members.get(usize::from(member));
            let mut of = collected.unfinished.iter().filter(|(m, _)| *m == member);
            m.is_none_or(|m| m.damaged) || of.any(|(_, unfinished)| unfinished.has_applied(id))
        };
        let mut decided = HashSet::new();
        for (id, intent) in collected.unfinished.iter().flat_map(|(_, u)| &u.intents) {
            decided.insert(*id);
            for (member, part) in intent.parts.iter().filter(|(m, _)| !done(*m, *id)) {
                tracing::info!(member, "finishing an operation that a crash cut off");
                for make in &part.makes {
                    if let Precondition::Make { fid, inode } = make {
                        self.inodes.entry(*fid).or_insert_with(|| (**inode).clone());
                    }
                }
                for step in &part.steps {
                    self.step(step, &mut ended);
                }
            }
        }
        for (id, needs) in collected.unfinished.iter().flat_map(|(_, u)| &u.prepared) {
            // Whether it was decided is known if the coordinator's records are.
            let asked = collected.members.get(usize::from(id.coordinator));
            if decided.contains(id) || asked.is_none_or(|m| m.damaged) {
                continue;
            }
            let made = needs.iter().filter_map(|need| match need {
                Precondition::Make { fid, .. } => Some(*fid),
                _ => None,
            });
            ended.extend(made);
        }
        ended
    }

    /// One step of a decided operation; links are counted later.
    fn step(&mut self, step: &IntentStep, ended: &mut HashSet<Fid>) {
        match step {
            IntentStep::Entry { dir, name, to } => {
                let key = (*dir, name.clone());
                match to {
                    Some(entry) => drop(self.entries.insert(key, *entry)),
                    None => drop(self.entries.remove(&key)),
                }
            }
            IntentStep::Moved { fid, parent, .. } => {
                if let (Some(inode), Some(parent)) = (self.inodes.get_mut(fid), parent) {
                    inode.parent = *parent;
                }
            }
            IntentStep::Drop { fid, .. } | IntentStep::MarkDead { fid, .. } => {
                ended.insert(*fid);
            }
            IntentStep::UpdateDirectory { .. } => {}
        }
    }

    fn root(&mut self, losses: &mut LossReport) {
        let root = self
            .inodes
            .get_mut(&Fid::ROOT)
            .filter(|i| i.kind == Kind::Dir);
        match root {
            Some(inode) => inode.dead = false,
            None => {
                let mut inode = inode_of_kind(Kind::Dir, Fid::ROOT);
                inode.mode = 0o755;
                self.inodes.insert(Fid::ROOT, inode);
                losses.lose("/".into(), "its owner, mode and times");
            }
        }
    }

    /// They stay for processes inside them, and these have ended.
    fn removed_directories(&mut self) {
        let dead: Vec<Fid> = self
            .inodes
            .iter()
            .filter(|(_, i)| i.dead)
            .map(|(f, _)| *f)
            .collect();
        for fid in dead {
            let first = self.entries.range((fid, Vec::new())..).next();
            if first.is_some_and(|((dir, _), _)| *dir == fid) {
                if let Some(inode) = self.inodes.get_mut(&fid) {
                    inode.dead = false;
                }
            } else {
                self.inodes.remove(&fid);
            }
            self.orphans.remove(&fid);
        }
        let inodes = &self.inodes;
        self.orphans
            .retain(|fid| inodes.get(fid).is_some_and(|i| i.kind != Kind::Dir));
    }

    /// Every entry gets an inode, or goes; every directory at most one name.
    fn entries(&mut self, collected: &CollectedRecords, losses: &mut LossReport) {
        let members = collected.members.len();
        let (mut gone, mut changed, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        for (key, entry) in &self.entries {
            let (dir, name) = key;
            match self.inodes.get(dir).map(|i| i.kind) {
                Some(Kind::Dir) => {}
                None if super::is_member(*dir, members) => {
                    self.inodes
                        .insert(*dir, inode_of_kind(Kind::Dir, Fid::ROOT));
                    self.unknown.insert(*dir);
                }
                _ => {
                    gone.push(key.clone());
                    continue;
                }
            }
            let kind = match self.inodes.get(&entry.fid) {
                Some(inode) => inode.kind,
                None if collected.is_uncertain(entry.fid)
                    && super::is_member(entry.fid, members) =>
                {
                    let kind = match entry.kind {
                        // Where to, and which device, is not known: a file that cannot be read.
                        Kind::Symlink | Kind::CharDevice | Kind::BlockDevice => Kind::File,
                        kind => kind,
                    };
                    self.inodes.insert(entry.fid, inode_of_kind(kind, *dir));
                    self.unknown.insert(entry.fid);
                    kind
                }
                None => {
                    dropped.push(key.clone());
                    continue;
                }
            };
            if kind != entry.kind {
                changed.push((key.clone(), EntryTarget { kind, ..*entry }));
            }
            let first = self
                .named
                .entry(entry.fid)
                .or_insert_with(|| (*dir, name.clone()));
            let parent = self.inodes.get(&entry.fid).map(|inode| inode.parent);
            if kind == Kind::Dir && *first != (*dir, name.clone()) {
                // One of two: the one where the directory says that it is.
                let other = match parent == Some(*dir) && first.0 != *dir {
                    true => std::mem::replace(first, (*dir, name.clone())),
                    false => (*dir, name.clone()),
                };
                gone.push(other);
            }
        }
        self.entries.extend(changed);
        for key in gone {
            self.entries.remove(&key);
        }
        for key in dropped {
            let path = paths::path_in(&self.named, key.0, &key.1);
            losses.lose(
                path,
                "the name of a file that does not exist; it is removed",
            );
            self.entries.remove(&key);
        }
        for fid in &self.unknown {
            // Files are told of with their content.
            if self
                .inodes
                .get(fid)
                .is_some_and(|inode| inode.kind != Kind::File)
            {
                losses.lose(
                    self.path(*fid),
                    "its owner, mode and times; perhaps names in it",
                );
            }
        }
        for (fid, (dir, _)) in &self.named {
            if let Some(inode) = self.inodes.get_mut(fid).filter(|i| i.kind == Kind::Dir) {
                inode.parent = *dir;
            }
        }
        let named = &self.named;
        self.orphans.retain(|fid| !named.contains_key(fid));
    }

    /// Inodes without a name: `ended` ones go, as the next start would have it, the others get one.
    fn nameless(&mut self, ended: &HashSet<Fid>, losses: &mut LossReport) {
        let nameless = |fid: &Fid| {
            *fid != Fid::ROOT && !self.named.contains_key(fid) && !self.orphans.contains(fid)
        };
        let fids: Vec<Fid> = self.inodes.keys().copied().filter(nameless).collect();
        for fid in fids {
            let file = self.inodes.get(&fid).is_some_and(|i| i.kind != Kind::Dir);
            match (ended.contains(&fid), file) {
                (true, true) => drop(self.orphans.insert(fid)),
                (true, false) => drop(self.inodes.remove(&fid)),
                _ => self.find(fid, "its name", losses),
            }
        }
    }

    /// A file of which only bytes are known gets an inode and a name.
    pub fn adopt(&mut self, fid: Fid, losses: &mut LossReport) {
        let first = self.lost_and_found.is_none();
        self.inodes
            .insert(fid, inode_of_kind(Kind::File, Fid::ROOT));
        self.unknown.insert(fid);
        self.find(fid, "its name, owner, mode, times and size", losses);
        if first {
            // For the directory; the file itself has the one link that it was made with.
            self.count();
        }
    }

    /// Gives an inode a name in `/lost+found`.
    fn find(&mut self, fid: Fid, lost: &str, losses: &mut LossReport) {
        let Some(kind) = self.inodes.get(&fid).map(|i| i.kind) else {
            return;
        };
        let dir = self.lost_and_found();
        let name = format!("#{:x}", fid.0).into_bytes();
        self.entries
            .insert((dir, name.clone()), EntryTarget { fid, kind });
        self.named.insert(fid, (dir, name));
        if let Some(inode) = self.inodes.get_mut(&fid).filter(|i| i.kind == Kind::Dir) {
            inode.parent = dir;
        }
        losses.found.push(DamagedPath {
            path: self.path(fid),
            what: format!("{lost} is lost"),
        });
    }

    fn lost_and_found(&mut self) -> Fid {
        if let Some(fid) = self.lost_and_found {
            return fid;
        }
        let mut name = LOST_AND_FOUND.to_vec();
        let fid = loop {
            match self.entries.get(&(Fid::ROOT, name.clone())) {
                Some(entry) if entry.kind == Kind::Dir => break entry.fid,
                // Somebody's file: another name.
                Some(_) => name.push(b'+'),
                None => {
                    let fid = self.new_fid;
                    self.inodes.insert(fid, inode_of_kind(Kind::Dir, Fid::ROOT));
                    let kind = Kind::Dir;
                    self.entries
                        .insert((Fid::ROOT, name.clone()), EntryTarget { fid, kind });
                    self.named.insert(fid, (Fid::ROOT, name));
                    break fid;
                }
            }
        };
        self.lost_and_found = Some(fid);
        fid
    }

    /// Directories that hang on each other and not on the root.
    fn break_cycles(&mut self, losses: &mut LossReport) {
        let dirs = self.inodes.iter().filter(|(_, i)| i.kind == Kind::Dir);
        let dirs: Vec<Fid> = dirs.map(|(fid, _)| *fid).collect();
        let mut rooted = HashSet::from([Fid::ROOT]);
        for fid in dirs {
            let (mut way, mut at) = (Vec::new(), fid);
            while !rooted.contains(&at) {
                let above = self.named.get(&at).cloned();
                match above.filter(|_| !way.contains(&at)) {
                    Some((dir, _)) => {
                        way.push(at);
                        at = dir;
                    }
                    None => {
                        if let Some(key) = self.named.remove(&at) {
                            self.entries.remove(&key);
                        }
                        self.find(at, "its place", losses);
                        break;
                    }
                }
            }
            rooted.extend(way);
        }
    }

    fn count(&mut self) {
        let mut links: HashMap<Fid, u32> = HashMap::new();
        for ((dir, _), entry) in &self.entries {
            match entry.kind {
                Kind::Dir => *links.entry(*dir).or_default() += 1,
                _ => *links.entry(entry.fid).or_default() += 1,
            }
        }
        for (fid, inode) in &mut self.inodes {
            let counted = links.get(fid).copied().unwrap_or(0);
            inode.nlink = counted + if inode.kind == Kind::Dir { 2 } else { 0 };
        }
    }

    /// A path of an inode, for people.
    pub fn path(&self, fid: Fid) -> String {
        paths::path(&self.named, fid)
    }
}
