//! Where the extents of a file are kept, and how a commit changes that.
//!
//! ```text
//! Fresh --- a commit with staged parts ---> Spread
//! Fresh --- a commit with patterns -------> Patterned --- a truncate to 0 that leaves nothing ---> Fresh
//! ```
//!
//! A commit that was planned for another layout is answered `Stale`, and nothing has happened: the asker plans it again
//! from a new view.
use super::Shared;
use super::commit::Commit;
use super::parts::{belongs, touched};
use crate::inodes::Inode;
use crate::{Error, Layout, Member, Result};
use forebay_index::Change;
use rustix::io::Errno;

impl Shared {
    /// The layout after this commit; an error if it does not fit the layout that the file has.
    pub(super) fn layout_after(&self, inode: &Inode, commit: &Commit) -> Result<Layout> {
        let map = self.map();
        let misplaced = commit
            .staged
            .iter()
            .any(|m| *m == self.member() || *m >= map.members);
        let patterns = !commit.patterns.is_empty();
        let staged = !commit.staged.is_empty();
        if misplaced || (patterns && staged) {
            return Err(Errno::INVAL.into());
        }
        match inode.layout {
            Layout::Patterned if staged => return Err(Error::Stale),
            Layout::Patterned => return Ok(Layout::Patterned),
            Layout::Spread if patterns => return Err(Error::Stale),
            Layout::Fresh if patterns => return Ok(Layout::Patterned),
            Layout::Fresh | Layout::Spread => {}
        }
        // Who took the file for another layout did not ask the members that a cut must reach.
        if inode.layout == Layout::Spread && !self.cuts_reach(commit) {
            return Err(Error::Stale);
        }
        if !belongs(map, commit.id.fid.owner(), self.member(), &commit.own) {
            // Right for a file with patterns, and it may have been one.
            return match inode.seq {
                0 => Err(Errno::INVAL.into()),
                _ => Err(Error::Stale),
            };
        }
        Ok(match inode.layout {
            Layout::Fresh if staged => Layout::Spread,
            layout => layout,
        })
    }

    /// Whether every member with a slice inside a cut of this commit has a part of it. Truncates are looked at with the size.
    fn cuts_reach(&self, commit: &Commit) -> bool {
        let owner = commit.id.fid.owner();
        let reached = |m: &Member| *m == owner || commit.staged.contains(m);
        commit.own.iter().all(|change| match *change {
            Change::Cut { end: u64::MAX, .. } | Change::Put(_) => true,
            Change::Cut { start, end } => {
                touched(self.map(), owner, start, end).iter().all(reached)
            }
        })
    }
}
