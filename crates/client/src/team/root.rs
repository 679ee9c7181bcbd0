//! The root of a team's call: carries it out once, for all clients of the team.
//!
//! It walks the path and asks the owners as one client would; an open is counted at the file's owner for every member of the team
//! in one request. So whatever the number of clients and servers, each owner gets one request for each step of the path.
use super::mount_user::{WRITE, permit, permit_entry, walk};
use super::request::{TeamAction, TeamAnswer, TeamRequest, decode, encode};
use crate::embedded::open_or_create;
use bytes::Bytes;
use forebay_server::delegate::NewFile;
use forebay_server::proto::WireError;
use forebay_server::proto::files::MemberSet;
use forebay_server::{Attr, Delegate, Error, Fid, Kind, Member, OpenFlags, Result};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A call at its root.
pub(super) struct RootExecutor<'a> {
    pub delegate: &'a Delegate,
    /// All of the team.
    pub members: &'a [Member],
    /// Of the opens that this call makes.
    pub token: u64,
}

impl RootExecutor<'_> {
    /// Carries out the combined request.
    pub fn execute(&self, request: Bytes) -> Bytes {
        let answer = decode::<TeamRequest>(&request).and_then(|request| match request.differ {
            true => Ok(TeamAnswer::Differ),
            false => self.answer(&request),
        });
        let failed = |e| TeamAnswer::Failed(WireError::from(&e));
        // What cannot be written is told instead; and were that impossible, all find the answer unreadable.
        encode(&answer.unwrap_or_else(failed))
            .or_else(|e| encode(&failed(e)))
            .unwrap_or_else(|_| Bytes::new())
    }

    fn answer(&self, request: &TeamRequest) -> Result<TeamAnswer> {
        match &request.action {
            TeamAction::Stat { path } => self.stat(request, path).map(TeamAnswer::Attr),
            TeamAction::Open {
                path,
                create,
                create_new,
            } => self.open(request, path, *create || *create_new, *create_new),
            TeamAction::Close {
                fid,
                token: Some(token),
            } => self.close(*fid, *token, &request.kept),
            // Opened by each client alone, so closed so too.
            TeamAction::Close { token: None, .. } => Ok(TeamAnswer::Differ),
        }
    }

    fn stat(&self, request: &TeamRequest, path: &[u8]) -> Result<Attr> {
        let path = Path::new(OsStr::from_bytes(path));
        let seen = walk(&request.users, self.delegate, path, true)?.file()?;
        // Without what is pending at this node, which is not every client's.
        match self.delegate.team.published(seen.fid) {
            Err(e) if e.errno() == Errno::STALE => Err(Errno::NOENT.into()),
            attr => attr,
        }
    }

    fn open(
        &self,
        request: &TeamRequest,
        path: &[u8],
        create: bool,
        new: bool,
    ) -> Result<TeamAnswer> {
        let path = Path::new(OsStr::from_bytes(path));
        let (_, caller, mode) = request.first;
        let users = &request.users;
        let open = |attr: &Attr, made: bool| {
            // The kernel looks again when a process takes its handle; but then a file is empty already, or writable although its
            // last write bit was taken away.
            let may_write = match request.write && !made {
                true => permit(users, attr, WRITE),
                false => Ok(()),
            };
            self.open_each(request, attr.fid, made, may_write)
        };
        open_or_create(
            (create, new),
            |follow| walk(users, self.delegate, path, follow),
            |attr| open(attr, false),
            |parent, name| {
                permit_entry(users, self.delegate, parent)?;
                let file = NewFile {
                    parent,
                    name: name.into(),
                    becomes: None,
                    mode,
                    caller,
                };
                match self.delegate.opens.make_file(&file, new)? {
                    (attr, false) if attr.kind != Kind::File => Ok(None),
                    (attr, made) => open(&attr, made).map(Some),
                }
            },
        )
    }

    fn open_each(
        &self,
        request: &TeamRequest,
        fid: Fid,
        made: bool,
        may_write: Result<()>,
    ) -> Result<TeamAnswer> {
        let flags = OpenFlags {
            read: request.read,
            write: request.write,
            append: false,
            truncate: request.truncate && !made,
        };
        let open = |flags| {
            self.delegate
                .team
                .open_for(fid, flags, self.token, self.members)
        };
        let opened = may_write.and_then(|()| open(flags));
        if flags.truncate {
            self.delegate.kernel_pages.refresh_kernel(fid);
        }
        let not_writing = |e: &Error| matches!(e.errno(), Errno::PERM | Errno::ACCESS);
        match opened {
            // Those who only read get it, as if each had asked alone.
            Err(e) if not_writing(&e) && request.write && request.read_only => {
                Ok(TeamAnswer::Opened {
                    attr: open(OpenFlags::READ)?,
                    made,
                    no_writers: Some(WireError::from(&e)),
                })
            }
            attr => Ok(TeamAnswer::Opened {
                attr: attr?,
                made,
                no_writers: None,
            }),
        }
    }

    fn close(&self, fid: Fid, token: u64, kept: &[Member]) -> Result<TeamAnswer> {
        let kept = MemberSet::of(kept.iter().copied());
        let members: Vec<Member> = self
            .members
            .iter()
            .copied()
            .filter(|m| !kept.contains(*m))
            .collect();
        let attr = self.delegate.team.close_for(fid, token, &members)?;
        Ok(TeamAnswer::Closed { attr, kept })
    }
}
