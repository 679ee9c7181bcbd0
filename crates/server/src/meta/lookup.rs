//! Looking: names, attributes of named things, listings. Nothing here changes anything.
//!
//! Until an operation that spans members has done its last step, a name may still show what it was before.
use super::{
    Meta, Stop, entries, names, proto::MetaReply, proto::MetaRequest, steps::Entry, unexpected,
};
use crate::{Attr, Caller, DirEntry, Error, Fid, Kind, Result, inodes::Inode};
use rustix::io::Errno;

/// Sticky bit of a directory: only owners remove or rename.
const STICKY: u32 = 0o1000;
/// Most entries of one page.
const PAGE: u32 = 10_000;

impl Meta {
    /// A directory of this member that entries can be made in.
    pub(crate) fn directory(&self, fid: Fid) -> Result<Inode> {
        let inode = self.inodes.get(fid)?;
        match (inode.kind, inode.dead) {
            (Kind::Dir, false) => Ok(inode),
            (Kind::Dir, true) => Err(Errno::NOENT.into()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Attributes of an inode anywhere. The caller has no locks.
    pub(crate) fn attr_of(&self, fid: Fid) -> Result<Attr> {
        match self.call(fid.owner(), MetaRequest::GetAttr { fid })? {
            MetaReply::Attr(attr) => Ok(attr),
            other => Err(unexpected(fid.owner(), &other)),
        }
    }

    /// Attributes of what an entry of this member names. An inode that is gone was removed since: look again.
    pub(crate) fn attr_of_entry(&self, entry: Entry) -> Result<Attr, Stop> {
        match self.attr_of(entry.fid) {
            Err(Error::Posix(Errno::STALE)) => Err(Stop::Changed),
            other => Ok(other?),
        }
    }

    pub(crate) fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Attr> {
        let mut gone = None;
        self.retry(|| {
            let entry = self.peek(parent, name)?;
            if gone == Some(entry) {
                // Still the same name after its inode went: the last step of a removal waits for this member.
                return Err(Errno::NOENT.into());
            }
            gone = Some(entry);
            self.attr_of_entry(entry)
        })
    }

    /// What a name in a directory of this member names.
    pub(crate) fn peek(&self, dir: Fid, name: &[u8]) -> Result<Entry> {
        names::check(name)?;
        match entries::get(&self.store, dir, name)? {
            Some(entry) => Ok(entry),
            None => self.directory(dir).and(Err(Errno::NOENT.into())),
        }
    }

    pub(crate) fn parent(&self, fid: Fid) -> Result<Fid> {
        let inode = self.inodes.get(fid)?;
        if inode.kind != Kind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        Ok(inode.parent)
    }

    pub(crate) fn readdir(
        &self,
        fid: Fid,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<DirEntry>> {
        match self.directory(fid) {
            // A dead directory has no entries, and can still be listed by who is in it.
            Err(Error::Posix(Errno::NOENT)) => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(_) => entries::list(&self.store, fid, after, limit.min(PAGE) as usize),
        }
    }

    pub(crate) fn readlink(&self, fid: Fid) -> Result<Vec<u8>> {
        let inode = self.inodes.get(fid)?;
        if inode.kind != Kind::Symlink {
            return Err(Errno::INVAL.into());
        }
        Ok(inode.target)
    }

    /// The rule of sticky directories for removing or renaming `entry` of directory `(uid, mode)`.
    pub(crate) fn check_sticky(
        &self,
        uid: u32,
        mode: u32,
        entry: Entry,
        caller: Caller,
    ) -> Result<(), Stop> {
        if mode & STICKY == 0 || caller.uid == 0 || caller.uid == uid {
            return Ok(());
        }
        if self.attr_of_entry(entry)?.uid != caller.uid {
            return Err(Errno::PERM.into());
        }
        Ok(())
    }
}
