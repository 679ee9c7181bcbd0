//! The table of opens: each by member and token, in memory, at the file's owner. A restarted owner starts with
//! none. A repeated open or close changes nothing.
//!
//! Invariant: opens change only under the inode's lock, so "no writer" and "not open" stay true while the
//! lock is held. The table's own lock is the innermost of all.
use crate::{Fid, Member};
use forebay_proto::files::MemberSet;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
struct FileOpens {
    /// Open, by member and token; true: for writing.
    opens: BTreeMap<(Member, u64), bool>,
    /// No append may start below this (0: no reservation).
    reserved: u64,
    /// The last name is gone: removed at the last close.
    orphan: bool,
    /// Being removed: no open succeeds any more.
    removing: bool,
}

impl FileOpens {
    fn writers(&self) -> bool {
        self.opens.values().any(|write| *write)
    }
}

/// What a close left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClosedOpen {
    /// There was such an open.
    pub counted: bool,
    /// The member has the file open no more.
    pub member_gone: bool,
    /// The last open for writing, of any member, is gone.
    pub last_writer: bool,
    /// Nobody holds it open and it has no name.
    pub remove: bool,
}

/// The table of open files.
#[derive(Default)]
pub(super) struct OpenTable {
    files: Mutex<HashMap<Fid, FileOpens>>,
}

impl OpenTable {
    /// False if the file is being removed, or has no name and nobody holds it open.
    pub fn add(&self, fid: Fid, open: (Member, u64), write: bool, nameless: bool) -> bool {
        let mut files = self.files.lock();
        let known = files
            .get(&fid)
            .is_some_and(|e| !e.removing && !e.opens.is_empty());
        if (nameless && !known) || files.get(&fid).is_some_and(|e| e.removing) {
            return false;
        }
        files.entry(fid).or_default().opens.insert(open, write);
        true
    }
    /// Whether this open was counted before.
    pub fn counted(&self, fid: Fid, open: (Member, u64)) -> bool {
        let files = self.files.lock();
        files.get(&fid).is_some_and(|e| e.opens.contains_key(&open))
    }
    /// A close without its open (after a restart, or the same once more) changes nothing.
    pub fn remove(&self, fid: Fid, (member, token): (Member, u64)) -> ClosedOpen {
        let mut files = self.files.lock();
        let Some(entry) = files.get_mut(&fid) else {
            return ClosedOpen {
                member_gone: true,
                ..ClosedOpen::default()
            };
        };
        let counted = entry.opens.remove(&(member, token));
        let of_member = (member, 0)..=(member, u64::MAX);
        let mut closed = ClosedOpen {
            counted: counted.is_some(),
            member_gone: entry.opens.range(of_member).next().is_none(),
            last_writer: counted == Some(true) && !entry.writers(),
            remove: false,
        };
        if counted.is_none() {
            return closed;
        }
        if entry.opens.is_empty() {
            closed.remove = entry.orphan;
            if !entry.removing {
                files.remove(&fid);
            }
        }
        closed
    }
    /// The members that hold the file open, but for `but`.
    pub fn members(&self, fid: Fid, but: Member) -> MemberSet {
        let files = self.files.lock();
        let opens = files.get(&fid).into_iter().flat_map(|e| e.opens.keys());
        MemberSet::of(opens.map(|(member, _)| *member).filter(|m| *m != but))
    }
    /// Whether any member holds the file open for writing.
    pub fn writers(&self, fid: Fid) -> bool {
        self.files.lock().get(&fid).is_some_and(FileOpens::writers)
    }
    /// Whether anything is known here of the file: opens, or its removal.
    pub fn known(&self, fid: Fid) -> bool {
        self.files.lock().contains_key(&fid)
    }
    /// Marks a file without a name; true if nobody holds it open.
    pub fn orphan(&self, fid: Fid) -> bool {
        match self.files.lock().get_mut(&fid) {
            Some(entry) => {
                entry.orphan = true;
                entry.opens.is_empty()
            }
            None => true,
        }
    }
    /// Whether any member holds the file open, and it is not being removed.
    pub fn is_open(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files
            .get(&fid)
            .is_some_and(|e| !e.removing && !e.opens.is_empty())
    }
    /// The file of this open. Looks at all: for who lost a reply.
    pub fn find(&self, open: (Member, u64)) -> Option<Fid> {
        let files = self.files.lock();
        let found = files.iter().find(|(_, e)| e.opens.contains_key(&open));
        found.map(|(fid, _)| *fid)
    }
    /// A file without a name, which nobody but `open` knows of.
    pub fn add_unnamed(&self, fid: Fid, open: (Member, u64), write: bool) {
        let entry = FileOpens {
            opens: BTreeMap::from([(open, write)]),
            orphan: true,
            ..FileOpens::default()
        };
        self.files.lock().insert(fid, entry);
    }
    /// The file has a name now.
    pub fn note_named(&self, fid: Fid) {
        if let Some(entry) = self.files.lock().get_mut(&fid) {
            entry.orphan = false;
        }
    }
    /// Makes further opens and commits of a file fail. `false`: a member holds it open, and nothing changes.
    pub fn start_removing(&self, fid: Fid) -> bool {
        let mut files = self.files.lock();
        let entry = files.entry(fid).or_default();
        let free = entry.opens.is_empty();
        entry.removing |= free;
        free
    }
    pub fn removing(&self, fid: Fid) -> bool {
        self.files.lock().get(&fid).is_some_and(|e| e.removing)
    }
    /// The file is gone.
    pub fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }
    /// Reserves `len` bytes at the end of what is reserved, published (`size`) or pending; only for files held open.
    pub fn reserve(&self, fid: Fid, len: u64, at_least: u64) -> Option<u64> {
        let mut files = self.files.lock();
        let reserved = files.get(&fid).map_or(0, |e| e.reserved);
        let offset = reserved.max(at_least);
        let end = offset.checked_add(len)?;
        if let Some(entry) = files.get_mut(&fid) {
            entry.reserved = end;
        }
        Some(offset)
    }
    /// A truncate makes reservations void.
    pub fn unreserve(&self, fid: Fid) {
        if let Some(entry) = self.files.lock().get_mut(&fid) {
            entry.reserved = 0;
        }
    }
    /// How many files are open.
    pub fn len(&self) -> usize {
        self.files.lock().len()
    }
}
