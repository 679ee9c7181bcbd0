//! Opening and closing the files of this member, where their appends go, and lamination.
//!
//! # Invariants
//! 1. Each operation is one step under the inode's lock: what the table of opens says of a file fits its inode while that lock is held.
//! 2. A file is laminated only while no member holds it open for writing. Laminated for ever (`Permanent`) it is never opened for
//!    writing again; laminated by its mode (`ByMode`), the next open for writing ends it, with a new generation.
//! 3. The last close of a file without a name removes it, in the background.
mod teams;

use super::components::FileComponents;
use super::open_table::ClosedOpen;
use crate::inodes::Inode;
use crate::{Attr, Fid, Kind, Lamination, Member, OpenFlags, Result, Time};
use forebay_proto::files::{MemberSet, UnnamedFile};
use forebay_proto::meta::NewOpen;
use forebay_storage::Batch;
use rustix::io::Errno;
use std::sync::Arc;
use teams::TeamTokens;

/// See the head of this file.
pub(super) struct OpenService {
    components: Arc<FileComponents>,
    teams: TeamTokens,
}

impl OpenService {
    pub fn new(components: Arc<FileComponents>) -> OpenService {
        OpenService {
            components,
            teams: TeamTokens::default(),
        }
    }

    /// Counts the open and answers attributes. `EPERM` for writing a file laminated for ever; a softly laminated one
    /// (the kernel lets only root get here) becomes writable with a new generation. `ESTALE` if it was removed.
    pub fn open(&self, from: Member, fid: Fid, flags: OpenFlags, token: u64) -> Result<Attr> {
        let inodes = &self.components.context.inodes;
        let _inode = inodes.lock(fid);
        let mut inode = inodes.get(fid)?;
        if self.components.opens.counted(fid, (from, token)) {
            return Ok(inode.attr(fid));
        }
        self.may_open(fid, &mut inode, flags)?;
        if !self
            .components
            .opens
            .add(fid, (from, token), flags.write, inode.nlink == 0)
        {
            return Err(Errno::STALE.into());
        }
        Ok(inode.attr(fid))
    }

    /// Makes a file without a name here, open for the asker, who is this member. A crash leaves its orphan record, and so removes
    /// it. `linkable`: it may get a name.
    pub fn open_unnamed(
        &self,
        from: Member,
        new: UnnamedFile,
        write: bool,
        token: u64,
    ) -> Result<Attr> {
        if from != self.components.context.member() {
            return Err(Errno::INVAL.into());
        }
        let inodes = &self.components.context.inodes;
        let fid = inodes.allocate_fid()?;
        let inode = Inode {
            codec: new.codec,
            ..Inode::new(Kind::File, new.mode, new.uid, new.gid, Time::now())
        };
        let _inode = inodes.lock(fid);
        let mut batch = Batch::new();
        inodes.put(&mut batch, fid, &inode);
        inodes.put_orphan(&mut batch, fid, new.linkable);
        self.components.context.store.apply(batch)?;
        self.components.opens.add_unnamed(fid, (from, token), write);
        Ok(inode.attr(fid))
    }

    /// Counts the open of a file that was made in this step. The caller has the inode's lock.
    pub fn open_new(&self, fid: Fid, by: Member, open: NewOpen) -> bool {
        let opens = &self.components.opens;
        opens.add(fid, (by, open.token), open.write, false);
        // Counted first: whoever abandons it meanwhile finds it, or is found here.
        let wanted = !self.teams.is_abandoned(by, open.token);
        if !wanted {
            opens.remove(fid, (by, open.token));
        }
        wanted
    }

    /// As an open of each of the members. Again under the same token: for those that have not closed it, nothing changes.
    pub fn open_team(
        &self,
        fid: Fid,
        flags: OpenFlags,
        token: u64,
        members: &MemberSet,
    ) -> Result<Attr> {
        let inodes = &self.components.context.inodes;
        let _inode = inodes.lock(fid);
        let mut inode = inodes.get(fid)?;
        self.may_open(fid, &mut inode, flags)?;
        let members = self.teams.begin(fid, token, members);
        for (i, member) in members.into_iter().enumerate() {
            let nameless = inode.nlink == 0;
            // The first decides for all, as the file's state is that of one moment.
            if !self
                .components
                .opens
                .add(fid, (member, token), flags.write, nameless)
                && i == 0
            {
                self.teams.forget(token);
                return Err(Errno::STALE.into());
            }
        }
        Ok(inode.attr(fid))
    }

    /// Whether a file may be opened so. One laminated softly becomes writable. The caller has the inode's lock.
    fn may_open(&self, fid: Fid, inode: &mut Inode, flags: OpenFlags) -> Result<()> {
        match inode.kind {
            Kind::File => {}
            Kind::Dir if flags.write => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if flags.write && inode.lamination == Lamination::Permanent {
            return Err(Errno::PERM.into());
        }
        if flags.write && inode.lamination == Lamination::ByMode {
            inode.lamination = Lamination::None;
            inode.seq = self.components.sequences.next(fid, inode.seq)?;
            self.components
                .context
                .inodes
                .write(Batch::new(), fid, inode)?;
        }
        Ok(())
    }

    /// Ends the open of this token.
    pub fn close(&self, from: Member, fid: Fid, token: u64) -> Result<()> {
        let _inode = self.components.context.inodes.lock(fid);
        let closed = self.close_one(from, fid, token);
        self.after_close(fid, &closed)
    }

    /// As a close of each of the members.
    pub fn close_team(&self, fid: Fid, token: u64, members: &MemberSet) -> Result<Attr> {
        let inodes = &self.components.context.inodes;
        let _inode = inodes.lock(fid);
        let mut all = ClosedOpen::default();
        for member in members.iter() {
            let closed = self.close_one(member, fid, token);
            all.last_writer |= closed.last_writer;
            all.remove |= closed.remove;
        }
        self.after_close(fid, &all)?;
        Ok(inodes.get(fid)?.attr(fid))
    }

    /// `member` has no handle of this open, whatever became of it.
    pub fn abandon(&self, member: Member, token: u64) -> Result<()> {
        let of_team = self.teams.abandon(member, token);
        let opened = || self.components.opens.find((member, token));
        match of_team.or_else(opened) {
            Some(fid) => self.close(member, fid, token),
            None => Ok(()),
        }
    }

    /// Counts one open no more. The caller has the inode's lock, and goes on with `after_close`.
    fn close_one(&self, from: Member, fid: Fid, token: u64) -> ClosedOpen {
        let closed = self.components.opens.remove(fid, (from, token));
        if closed.counted {
            self.teams.closed(token);
        }
        if closed.member_gone && from != self.components.context.member() {
            // All that it wrote is published and answered: it asks for none of that again.
            // A receipt that cannot be read stays until the next start.
            if let Ok(Some(token)) = self.components.outcomes.receipt(fid, from) {
                self.components.work.sweep_receipt((fid, from, token));
            }
        }
        closed
    }

    /// What follows from closes: the last one for writing of a file without write bits laminates it softly, the last one of a file
    /// without a name removes it. The caller has the inode's lock.
    fn after_close(&self, fid: Fid, closed: &ClosedOpen) -> Result<()> {
        if closed.remove {
            self.components.work.remove(fid);
        } else if closed.last_writer {
            let mut inode = self.components.context.inodes.get(fid)?;
            if inode.kind == Kind::File
                && inode.mode & 0o222 == 0
                && inode.lamination == Lamination::None
            {
                inode.lamination = Lamination::ByMode;
                // A close does not fail because the disk is full: the record stays as long as it was.
                let inodes = &self.components.context.inodes;
                inodes.write(Batch::reclaiming(), fid, &inode)?;
                self.components.patterns.finish(fid, &inode);
            }
        }
        Ok(())
    }

    /// Reserves `len` bytes after the published size, every reservation before, and the asker's own pending writes, so that
    /// appends of several nodes never overlap. Reservations end when nobody holds the file open, or with a truncate.
    pub fn append(&self, fid: Fid, len: u64, pending_end: u64) -> Result<u64> {
        let _inode = self.components.context.inodes.lock(fid);
        let size = self.components.context.inodes.get(fid)?.size;
        let offset = self
            .components
            .opens
            .reserve(fid, len, size.max(pending_end));
        offset.ok_or(Errno::FBIG.into())
    }

    /// Makes a file read-only for ever. `EBUSY` while a member holds the file open for writing. Doing it again changes nothing.
    pub fn laminate(&self, fid: Fid) -> Result<Attr> {
        let inodes = &self.components.context.inodes;
        let _inode = inodes.lock(fid);
        let mut inode = inodes.get(fid)?;
        inode.must_be_file()?;
        if self.components.opens.writers(fid) {
            return Err(Errno::BUSY.into());
        }
        if inode.lamination != Lamination::Permanent {
            inode.lamination = Lamination::Permanent;
            inode.ctime = Time::now();
            inodes.write(Batch::new(), fid, &inode)?;
            self.components.patterns.finish(fid, &inode);
        }
        Ok(inode.attr(fid))
    }
}
