//! Who holds which file open: each open by member and token, in memory, at the file's owner. A restarted owner starts with
//! none. An open or close that is asked for again changes nothing.
//!
//! Invariant: opens change only under the inode's lock, so "no writer" and "nobody has it open" stay true while the
//! lock is held. The table's own lock is the innermost of all.
use super::Shared;
use super::proto::{FilesReply, Spans, Unnamed};
use crate::inodes::Inode;
use crate::{Fid, Kind, Lamination, Member, OpenFlags, Result, Time};
use forebay_storage::Batch;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
struct Entry {
    /// Open, by member and token; true: for writing.
    opens: BTreeMap<(Member, u64), bool>,
    /// No append may start below this (0: no reservation).
    reserved: u64,
    /// The last name is gone: removed at the last close.
    orphan: bool,
    /// Being removed: no open succeeds any more.
    removing: bool,
}

impl Entry {
    fn writers(&self) -> bool {
        self.opens.values().any(|write| *write)
    }
}

/// What a close left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
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
pub(super) struct Opens {
    files: Mutex<HashMap<Fid, Entry>>,
}

impl Opens {
    /// False if the file is being removed, or has no name and nobody holds it open.
    pub(super) fn add(&self, fid: Fid, open: (Member, u64), write: bool, nameless: bool) -> bool {
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
    fn counted(&self, fid: Fid, open: (Member, u64)) -> bool {
        let files = self.files.lock();
        files.get(&fid).is_some_and(|e| e.opens.contains_key(&open))
    }
    /// A close without its open (after a restart, or the same once more) changes nothing.
    fn remove(&self, fid: Fid, (member, token): (Member, u64)) -> Closed {
        let mut files = self.files.lock();
        let Some(entry) = files.get_mut(&fid) else {
            return Closed {
                member_gone: true,
                ..Closed::default()
            };
        };
        let counted = entry.opens.remove(&(member, token));
        let of_member = (member, 0)..=(member, u64::MAX);
        let mut closed = Closed {
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
    pub(super) fn members(&self, fid: Fid, but: Member) -> Spans {
        let files = self.files.lock();
        let opens = files.get(&fid).into_iter().flat_map(|e| e.opens.keys());
        Spans::of(opens.map(|(member, _)| *member).filter(|m| *m != but))
    }
    /// Whether any member holds the file open for writing.
    pub(super) fn writers(&self, fid: Fid) -> bool {
        self.files.lock().get(&fid).is_some_and(Entry::writers)
    }
    /// Whether anything is known here of the file: opens, or its removal.
    pub(super) fn known(&self, fid: Fid) -> bool {
        self.files.lock().contains_key(&fid)
    }
    /// Marks a file without a name; true if nobody holds it open.
    pub(super) fn orphan(&self, fid: Fid) -> bool {
        match self.files.lock().get_mut(&fid) {
            Some(entry) => {
                entry.orphan = true;
                entry.opens.is_empty()
            }
            None => true,
        }
    }
    /// Whether any member holds the file open, and it is not being removed.
    pub(super) fn is_open(&self, fid: Fid) -> bool {
        let files = self.files.lock();
        files
            .get(&fid)
            .is_some_and(|e| !e.removing && !e.opens.is_empty())
    }
    /// A file without a name, which nobody but `open` knows of.
    fn add_unnamed(&self, fid: Fid, open: (Member, u64), write: bool) {
        let entry = Entry {
            opens: BTreeMap::from([(open, write)]),
            orphan: true,
            ..Entry::default()
        };
        self.files.lock().insert(fid, entry);
    }
    /// The file has a name now.
    pub(super) fn got_name(&self, fid: Fid) {
        if let Some(entry) = self.files.lock().get_mut(&fid) {
            entry.orphan = false;
        }
    }
    /// From now on opens and commits fail; false if a member holds it open.
    pub(super) fn start_removing(&self, fid: Fid) -> bool {
        let mut files = self.files.lock();
        let entry = files.entry(fid).or_default();
        let free = entry.opens.is_empty();
        entry.removing |= free;
        free
    }
    pub(super) fn removing(&self, fid: Fid) -> bool {
        self.files.lock().get(&fid).is_some_and(|e| e.removing)
    }
    /// The file is gone.
    pub(super) fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }
    /// Reserves `len` bytes at the end of what is reserved, published (`size`) or pending; only for files held open.
    pub(super) fn reserve(&self, fid: Fid, len: u64, at_least: u64) -> Option<u64> {
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
    pub(super) fn unreserve(&self, fid: Fid) {
        if let Some(entry) = self.files.lock().get_mut(&fid) {
            entry.reserved = 0;
        }
    }
    /// How many files are open.
    pub(super) fn len(&self) -> usize {
        self.files.lock().len()
    }
}

impl Shared {
    /// Counts the open and answers attributes. `EPERM` for writing a file laminated for ever; a softly laminated one
    /// (the kernel lets only root get here) becomes writable with a new generation. `ESTALE` if it was removed.
    pub(super) fn open(
        &self,
        from: Member,
        fid: Fid,
        flags: OpenFlags,
        token: u64,
    ) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        if self.opens.counted(fid, (from, token)) {
            return Ok(FilesReply::Attr(inode.attr(fid)));
        }
        self.may_open(fid, &mut inode, flags)?;
        if !self
            .opens
            .add(fid, (from, token), flags.write, inode.nlink == 0)
        {
            return Err(Errno::STALE.into());
        }
        Ok(FilesReply::Attr(inode.attr(fid)))
    }

    /// Makes a file without a name here, open for the asker, who is this member. A crash leaves its orphan record, and so removes
    /// it. `linkable`: it may get a name.
    pub(super) fn open_unnamed(
        &self,
        from: Member,
        new: Unnamed,
        write: bool,
        token: u64,
    ) -> Result<FilesReply> {
        if from != self.member() {
            return Err(Errno::INVAL.into());
        }
        let fid = self.inodes.mint()?;
        let inode = Inode::unnamed(new.mode, new.uid, new.gid, Time::now());
        let _inode = self.inodes.lock(fid);
        let mut batch = Batch::new();
        self.inodes.put(&mut batch, fid, &inode);
        self.inodes.put_orphan(&mut batch, fid, new.linkable);
        self.store.apply(batch)?;
        self.opens.add_unnamed(fid, (from, token), write);
        Ok(FilesReply::Attr(inode.attr(fid)))
    }

    /// Whether a file may be opened so. One laminated softly becomes writable. The caller has the inode's lock.
    pub(super) fn may_open(&self, fid: Fid, inode: &mut Inode, flags: OpenFlags) -> Result<()> {
        match inode.kind {
            Kind::File => {}
            Kind::Dir if flags.write => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if flags.write && inode.lamination == Lamination::Hard {
            return Err(Errno::PERM.into());
        }
        if flags.write && inode.lamination == Lamination::Soft {
            inode.lamination = Lamination::None;
            inode.seq = self.next_seq(fid, inode)?;
            let mut batch = Batch::new();
            self.inodes.put(&mut batch, fid, inode);
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// The last close for writing of a file without write bits laminates it softly; the last close of a file without a
    /// name removes it, in the background.
    pub(super) fn close(&self, from: Member, fid: Fid, token: u64) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let closed = self.close_one(from, fid, token);
        self.after_close(fid, &closed)?;
        Ok(FilesReply::Done)
    }

    /// Counts one open no more. The caller has the inode's lock, and goes on with `after_close`.
    pub(super) fn close_one(&self, from: Member, fid: Fid, token: u64) -> Closed {
        let closed = self.opens.remove(fid, (from, token));
        if closed.counted {
            self.team_opens.closed(token);
        }
        if closed.member_gone && from != self.member() {
            // All that it wrote is published and answered: it asks for none of that again.
            // A receipt that cannot be read stays until the next start.
            if let Ok(Some(token)) = self.receipt(fid, from) {
                self.chores.sweep_receipt(fid, from, token);
            }
        }
        closed
    }

    /// What follows from closes. The caller has the inode's lock.
    pub(super) fn after_close(&self, fid: Fid, closed: &Closed) -> Result<()> {
        if closed.remove {
            self.chores.remove(fid);
        } else if closed.last_writer {
            let mut inode = self.inodes.get(fid)?;
            if inode.kind == Kind::File
                && inode.mode & 0o222 == 0
                && inode.lamination == Lamination::None
            {
                inode.lamination = Lamination::Soft;
                // A close does not fail because the disk is full: the record stays as long as it was.
                let mut batch = super::reclaiming();
                self.inodes.put(&mut batch, fid, &inode);
                self.store.apply(batch)?;
                self.finish_patterns(fid, &inode);
            }
        }
        Ok(())
    }
}
