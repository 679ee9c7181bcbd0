//! Opens that a team asks for with one request: each of its members holds the file open, under one token.
//!
//! # Invariants
//! - They are opens like any other (`opens`): each member's ends with a close of its own, or all together with the team's.
//! - A member that did not hear what became of the request abandons it, at every member, as it may not know the file. What
//!   was counted for it is closed; if the request is still on its way, it counts nothing for that member when it comes.
use super::Shared;
use super::opens::Closed;
use super::proto::{FilesReply, Spans};
use crate::{Fid, Member, OpenFlags, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};

/// Abandoned opens remembered: those of one call of the largest service.
const MOST_ABANDONED: usize = 1 << 16;

/// The tokens of teams, here at the owner of their files.
#[derive(Default)]
pub(super) struct TeamOpens(Mutex<Tokens>);

#[derive(Default)]
struct Tokens {
    /// Of which file, and how many of it are counted.
    open: HashMap<u64, (Fid, usize)>,
    abandoned: HashSet<(Member, u64)>,
    /// The same, the oldest first.
    order: VecDeque<(Member, u64)>,
}

impl TeamOpens {
    /// The members to count: those that have not abandoned it.
    fn begin(&self, fid: Fid, token: u64, members: &Spans) -> Vec<Member> {
        let mut tokens = self.0.lock();
        let here = |member: &Member| !tokens.abandoned.contains(&(*member, token));
        let members: Vec<Member> = members.iter().filter(here).collect();
        if !members.is_empty() {
            tokens.open.insert(token, (fid, members.len()));
        }
        members
    }

    /// One open is counted no more. Nothing if the token is no team's.
    pub(super) fn closed(&self, token: u64) {
        let mut tokens = self.0.lock();
        if let Some((_, left)) = tokens.open.get_mut(&token) {
            *left -= 1;
            if *left == 0 {
                tokens.open.remove(&token);
            }
        }
    }

    /// The file that `member` may hold open under the token. From now on none is counted for it.
    fn abandon(&self, member: Member, token: u64) -> Option<Fid> {
        let mut tokens = self.0.lock();
        // Also if it is counted: the request may come once more.
        if tokens.abandoned.insert((member, token)) {
            tokens.order.push_back((member, token));
        }
        if tokens.order.len() > MOST_ABANDONED
            && let Some(oldest) = tokens.order.pop_front()
        {
            tokens.abandoned.remove(&oldest);
        }
        tokens.open.get(&token).map(|(fid, _)| *fid)
    }
}

impl Shared {
    /// As an open of each of the members. Again under the same token: for those that have not closed it, nothing changes.
    pub(super) fn open_team(
        &self,
        fid: Fid,
        flags: OpenFlags,
        token: u64,
        members: &Spans,
    ) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        self.may_open(fid, &mut inode, flags)?;
        for (i, member) in self
            .team_opens
            .begin(fid, token, members)
            .into_iter()
            .enumerate()
        {
            let nameless = inode.nlink == 0;
            // The first decides for all, as the file's state is that of one moment.
            if !self.opens.add(fid, (member, token), flags.write, nameless) && i == 0 {
                self.team_opens.0.lock().open.remove(&token);
                return Err(Errno::STALE.into());
            }
        }
        Ok(FilesReply::Attr(inode.attr(fid)))
    }

    /// As a close of each of the members.
    pub(super) fn close_team(&self, fid: Fid, token: u64, members: &Spans) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let mut all = Closed::default();
        for member in members.iter() {
            let closed = self.close_one(member, fid, token);
            all.last_writer |= closed.last_writer;
            all.remove |= closed.remove;
        }
        self.after_close(fid, &all)?;
        Ok(FilesReply::Attr(self.inodes.get(fid)?.attr(fid)))
    }

    /// `member` has no handle of this open, whatever became of it.
    pub(super) fn abandon_open(&self, member: Member, token: u64) -> Result<FilesReply> {
        match self.team_opens.abandon(member, token) {
            Some(fid) => self.close(member, fid, token),
            None => Ok(FilesReply::Done),
        }
    }
}
