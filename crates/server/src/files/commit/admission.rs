//! Decides whether a file admits a commit as it is, and the file's layout after it. Pure.
//!
//! ```text
//! OwnerOnly --- a commit with staged parts ---> BySlice
//! OwnerOnly --- a commit with patterns -------> Patterned --- a truncate to 0 that leaves nothing ---> OwnerOnly
//! ```
//!
//! A commit that was planned for another layout is answered `Replan`, and nothing has happened: the asker plans it again
//! from a new view.
use crate::inodes::Inode;
use crate::{Error, ExtentLayout, Lamination, Member, Result};
use forebay_index::Change;
use forebay_proto::files::Commit;
use forebay_proto::placement::{SliceMap, belongs, touched};
use rustix::io::Errno;

/// A commit and the file that it would change.
pub(in super::super) struct Admission<'a> {
    pub map: SliceMap,
    /// This member, the file's owner.
    pub own: Member,
    pub inode: &'a Inode,
    pub commit: &'a Commit,
}

impl Admission<'_> {
    /// The layout after this commit; an error if it does not fit the layout that the file has.
    pub fn layout(&self) -> Result<ExtentLayout> {
        let (map, commit, inode) = (self.map, self.commit, self.inode);
        let misplaced = commit
            .staged
            .iter()
            .any(|m| *m == self.own || *m >= map.members);
        let patterns = !commit.patterns.is_empty();
        let staged = !commit.staged.is_empty();
        if misplaced || (patterns && staged) {
            return Err(Errno::INVAL.into());
        }
        match inode.layout {
            ExtentLayout::Patterned if staged => return Err(Error::Replan),
            ExtentLayout::Patterned => return Ok(ExtentLayout::Patterned),
            ExtentLayout::BySlice if patterns => return Err(Error::Replan),
            ExtentLayout::OwnerOnly if patterns => return Ok(ExtentLayout::Patterned),
            ExtentLayout::OwnerOnly | ExtentLayout::BySlice => {}
        }
        // Who took the file for another layout did not ask the members that a cut must reach.
        if inode.layout == ExtentLayout::BySlice && !self.cuts_reach() {
            return Err(Error::Replan);
        }
        if !belongs(map, commit.fid.owner(), self.own, &commit.own) {
            // Right for a file with patterns, and it may have been one.
            return match inode.seq {
                0 => Err(Errno::INVAL.into()),
                _ => Err(Error::Replan),
            };
        }
        Ok(match inode.layout {
            ExtentLayout::OwnerOnly if staged => ExtentLayout::BySlice,
            layout => layout,
        })
    }

    /// Whether every member with a slice inside a cut of this commit has a part of it. Truncates are looked at with the size.
    fn cuts_reach(&self) -> bool {
        let commit = self.commit;
        let owner = commit.fid.owner();
        let reached = |m: &Member| *m == owner || commit.staged.contains(m);
        commit.own.iter().all(|change| match *change {
            Change::Cut { end: u64::MAX, .. } | Change::Put(_) => true,
            Change::Cut { start, end } => touched(self.map, owner, start, end).iter().all(reached),
        })
    }

    /// Lamination, kind, and whether a truncate reaches every member that holds bytes it cuts.
    pub fn permitted(&self) -> Result<()> {
        let (commit, inode) = (self.commit, self.inode);
        inode.must_be_file()?;
        // A truncate by root without an open is all that gets here for softly laminated files; it ends the lamination.
        let soft_truncate = inode.lamination == Lamination::ByMode && commit.attr.size.is_some();
        if inode.lamination != Lamination::None && !soft_truncate {
            return Err(Errno::PERM.into());
        }
        let Some(size) = commit.attr.size.filter(|size| *size < inode.size) else {
            return Ok(());
        };
        let own_cut =
            |c: &Change| matches!(c, Change::Cut { start, end: u64::MAX } if *start <= size);
        let reached = |m: &Member| match *m == self.own {
            true => commit.own.iter().any(own_cut),
            false => commit.staged.contains(m),
        };
        let mut members = touched(self.map, self.own, size, inode.size);
        match inode.layout {
            ExtentLayout::BySlice => {}
            // The others have nothing that could be cut.
            ExtentLayout::OwnerOnly => members.retain(|m| *m == self.own),
            ExtentLayout::Patterned => members = vec![self.own],
        }
        match members.iter().all(reached) {
            true => Ok(()),
            false => Err(Error::Replan),
        }
    }

    /// Whether a commit to a synced file with patterns must be on disk before it takes effect: what it displaces of a pattern could not be put
    /// back, and what is lost of a pattern not be taken away.
    pub fn must_sync_first(&self) -> bool {
        let changes = |change: &Change| match change {
            Change::Put(_) => true,
            Change::Cut { start, .. } => *start < self.inode.size,
        };
        let commit = self.commit;
        !commit.sync && (!commit.patterns.is_empty() || commit.own.iter().any(changes))
    }
}
