//! Steps of calls that the clients of a team make together: this node's part, and the part of the call's root.
//!
//! Only the steps that single-client requests cannot express; `client::team` composes them, because it knows paths.
use super::commit::LayerCommitter;
use super::commit_plan::FileCut;
use super::context::DelegateContext;
use super::counted_open::TeamOpenClaims;
use super::handles::Handle;
use super::opens::{MAX_TRIES, OpenClient, OpenedFile};
use crate::meta::names;
use crate::team::{TeamMembership, TeamSpec, Teams};
use crate::{Attr, Error, Fid, Member, OpenFlags, Result};
use forebay_proto::files::{self, MemberSet};
use std::sync::Arc;

/// Tokens of teams have the highest bit; a member's own count up from 1.
const TEAM_TOKEN_BIT: u64 = 1 << 63;

/// The token of the opens that the call of a team makes: the same at all members. Another one for each call of the team, and as good
/// as certainly none that another team's call has: the first is one of 2^63.
pub fn team_token(plan: &TeamSpec, round: u64) -> u64 {
    TEAM_TOKEN_BIT | plan.identity().wrapping_add(round)
}

/// What the clients of teams ask this node for.
pub struct TeamClient {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) committer: Arc<LayerCommitter>,
    pub(super) opens: Arc<OpenClient>,
    /// Opens that a team's root made, until all clients here have their handles.
    pub(super) claims: TeamOpenClaims,
    /// The teams of this node's clients.
    pub teams: Arc<Teams>,
}

impl TeamClient {
    /// Joins a team as one of its clients at this node; waits for a place as long as a request may take.
    ///
    /// # Errors
    /// `Refused` for a plan that cannot be; `EBUSY` if all places stay taken, or the number is another team's that has clients here.
    pub fn join(&self, plan: &TeamSpec) -> Result<TeamMembership> {
        let members = self.ctx.members();
        if let Some(member) = plan.members.iter().find(|m| **m >= members) {
            return Err(Error::Refused(format!(
                "team {}: there is no member {member}; the service has {members}",
                plan.number
            )));
        }
        self.teams.join(plan)
    }

    /// The member that probably owns the last of these directories, each in the one before, the first in the root: where to
    /// carry out what concerns a file in it. Only a choice, the same at all members.
    pub fn likely_owner(&self, directories: &[&[u8]]) -> Member {
        let mut parent = Fid::ROOT;
        for name in directories {
            // Exact for directories of the root that were never moved: else a guess that spreads.
            let home = names::directory_member(parent, name, self.ctx.members());
            parent = Fid::new(home, parent.0.rotate_left(7) ^ name.len() as u64);
        }
        parent.owner()
    }

    /// At the root: a file's attributes, as published.
    ///
    /// # Errors
    /// `ESTALE` if it was removed.
    pub fn published(&self, fid: Fid) -> Result<Attr> {
        self.ctx.ask_attr(fid)
    }

    /// At the root: opens the file for each member of the team, and empties it if the flags say so.
    ///
    /// # Errors
    /// As open. Whatever failed, the members abandon the open.
    pub fn open_for(
        &self,
        fid: Fid,
        flags: OpenFlags,
        token: u64,
        members: &[Member],
    ) -> Result<Attr> {
        let owner = fid.owner();
        let request = files::OpenTeam {
            fid,
            flags,
            token,
            members: MemberSet::of(members.iter().copied()),
        };
        let attr = self.ctx.call_with_retries(owner, &request, MAX_TRIES)?;
        if !flags.truncate {
            return Ok(attr);
        }
        let file = self.ctx.table.acquire(&attr);
        let emptied = FileCut {
            size: 0,
            mtime: Some(self.ctx.now()),
        };
        let cut = self.committer.cut_at(&file, emptied, None);
        self.opens.release(&file);
        let failed = match cut.and_then(|()| self.ctx.ask_attr(fid)) {
            Ok(attr) => return Ok(attr),
            Err(e) => e,
        };
        match self.close_for(fid, token, members) {
            Ok(_) => Err(failed),
            // Not a plain outcome, so that the members abandon the open.
            Err(e) => Err(e),
        }
    }

    /// The handle of one of this node's clients, after [`TeamClient::open_for`]. `handles`: how many clients the team has
    /// here; each of them calls this or [`TeamClient::decline_handle`].
    pub fn opened_for(
        &self,
        attr: &Attr,
        flags: OpenFlags,
        token: u64,
        handles: u32,
    ) -> OpenedFile {
        let _at = self.ctx.counters.other();
        let counted = self.claims.claim(token, handles);
        self.opens.opened(attr, flags, counted, false)
    }

    /// One of this node's clients takes no handle.
    ///
    /// # Errors
    /// When the owner cannot be told; it is tried again in the background.
    pub fn decline_handle(&self, attr: &Attr, token: u64, handles: u32) -> Result<()> {
        let counted = self.claims.claim(token, handles);
        let file = self.ctx.table.acquire(attr);
        file.state
            .lock()
            .unreported_closes
            .extend(counted.release());
        let told = self.opens.tell_closes(&file);
        self.opens.release(&file);
        told
    }

    /// At the root: ends what [`TeamClient::open_for`] opened, for these members; the file's attributes after that.
    ///
    /// # Errors
    /// `EIO`; then each member tells its own close.
    pub fn close_for(&self, fid: Fid, token: u64, members: &[Member]) -> Result<Attr> {
        let owner = fid.owner();
        let request = files::CloseTeam {
            fid,
            token,
            members: MemberSet::of(members.iter().copied()),
        };
        self.ctx.call_with_retries(owner, &request, MAX_TRIES)
    }

    /// The token of a handle's open, if it is a team's, and its file.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn team_open(&self, handle: Handle) -> Result<(Fid, Option<u64>)> {
        let open = self.ctx.table.get(handle)?;
        let token = open.counted.as_ref().map(|c| c.token());
        Ok((open.file.fid, token.filter(|t| t & TEAM_TOKEN_BIT != 0)))
    }

    /// The owner has closed a handle's open ([`TeamClient::close_for`]): nothing is told when it is released.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn told_close(&self, handle: Handle) -> Result<()> {
        let open = self.ctx.table.get(handle)?;
        if let Some(counted) = &open.counted {
            counted.closed_by_owner();
        }
        Ok(())
    }
}
