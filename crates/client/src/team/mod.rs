//! Teams: clients of several nodes that open, create, look at and close one file together, as the ranks of a job do.
//!
//! Each client makes the same calls in the same order; each call is one operation for the service, however many clients there
//! are: it is combined at each node, then from node to node, and executed once ([the collectives](forebay_server::team)).
//!
//! A call works as if each client had made it alone, all at the same moment:
//! - an open or create gives each client a handle of its own. With `create_new` the team succeeds as one: the file is made by
//!   this call. Owner and mode of a new file are those that the client at the lowest member gives. The file is emptied once if
//!   any client says so.
//! - a close publishes what each node wrote, then closes for all at once, and shows the file as it is after that.
//! - no call ends before the last client has made it; so a call is a barrier, too.
//!
//! If a client stays away, or a server dies, the call fails with `EIO` for all that wait, within limits that follow from the
//! deadline of the service. Then an open is undone everywhere, and each node closes by itself. A file that such a call created
//! may be there.

#[cfg(test)]
mod fuzz;
mod mount_user;
mod request;
mod root;

mod public;

use crate::OpenOptions;
use crate::embedded::{EmbeddedClient, EmbeddedFile};
use forebay_server::delegate::{Handle, OpenedFile, team_token};
use forebay_server::team::TeamMembership;
pub use forebay_server::team::TeamSpec;
use forebay_server::{Attr, Error, Fid, Member, Result};
use mount_user::MountUser;
pub use public::Team;
use request::{TeamAction, TeamAnswer, TeamRequest, combine, decode, encode};
use root::RootExecutor;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One client's place in a team, in the process of its server.
pub struct EmbeddedTeam {
    client: EmbeddedClient,
    membership: TeamMembership,
    /// Whose permissions count, if not all is permitted.
    user: Option<MountUser>,
}

impl EmbeddedClient {
    /// Joins a team as one of its clients at this node; waits for a place as long as a request may take.
    ///
    /// # Errors
    /// As [`Client::team`](crate::Client::team).
    pub fn team(&self, plan: &TeamSpec) -> Result<EmbeddedTeam> {
        Ok(EmbeddedTeam {
            client: self.clone(),
            membership: self.delegate.team.join(plan)?,
            user: None,
        })
    }

    /// As [`Client::plan_of_all`](crate::Client::plan_of_all).
    pub fn plan_of_all(&self, number: u32, here: u32) -> TeamSpec {
        plan_of_all(self.delegate.members(), number, here)
    }
}

fn plan_of_all(members: Member, number: u32, here: u32) -> TeamSpec {
    TeamSpec {
        number,
        members: (0..members).collect(),
        here,
    }
}

impl EmbeddedTeam {
    /// For a process that asks through a mount: as for the kernel, modes decide which directories it gets through and creates files
    /// in, and which files it opens for writing. `groups`: those of the process, besides the client's.
    #[must_use]
    pub fn by_mode(self, groups: Vec<u32>) -> EmbeddedTeam {
        let user = MountUser::new(self.client.caller, groups);
        EmbeddedTeam { user, ..self }
    }

    /// The attributes of a file; follows symbolic links.
    ///
    /// # Errors
    /// As [`Team::stat`].
    pub fn stat(&mut self, path: &Path) -> Result<Attr> {
        let request = self.request(TeamAction::Stat {
            path: path.as_os_str().as_bytes().to_vec(),
        });
        match self.call(self.likely_owner_of(path), request)? {
            TeamAnswer::Attr(attr) => Ok(self.client.delegate.names.as_seen(attr)),
            other => Err(self.unexpected_answer(other)),
        }
    }

    /// Opens a file.
    pub(crate) fn open_file(&mut self, path: &Path, options: &OpenOptions) -> Result<EmbeddedFile> {
        let opened = self.open(path, options)?;
        Ok(EmbeddedFile::new(&self.client, opened))
    }

    /// Opens a handle.
    ///
    /// # Errors
    /// As [`Team::open`].
    pub fn open(&mut self, path: &Path, options: &OpenOptions) -> Result<OpenedFile> {
        let mut request = self.request(TeamAction::Open {
            path: path.as_os_str().as_bytes().to_vec(),
            create: options.create,
            create_new: options.create_new,
        });
        let flags = match options.temporary {
            // A team has several handles, and the name would be removed with one.
            true => Err(Errno::INVAL.into()),
            false => options.effective(),
        };
        // The others are to hear of it at once.
        request.differ = flags.is_err();
        let flags = flags.unwrap_or_default();
        request.read = flags.read;
        request.write = flags.write;
        request.read_only = !flags.write;
        request.truncate = flags.truncate;
        request.first.2 = options.mode;
        let token = self.token();
        let answer = self.call(self.likely_owner_of(path), request);
        let delegate = &self.client.delegate;
        let here = self.membership.plan().here;
        match answer {
            Ok(TeamAnswer::Opened {
                attr, no_writers, ..
            }) => match no_writers.filter(|_| flags.write) {
                None => Ok(delegate.team.opened_for(&attr, flags, token, here)),
                Some(why) => {
                    delegate.team.decline_handle(&attr, token, here)?;
                    Err(why.into_error(attr.fid.owner()))
                }
            },
            Ok(TeamAnswer::Failed(e)) => {
                let error = e.into_error(delegate.member());
                if !matches!(error, Error::Posix(_)) {
                    delegate.opens.abandon(token);
                }
                Err(error)
            }
            Ok(other) => Err(self.unexpected_answer(other)),
            Err(e) => {
                if may_have_happened(&e) {
                    delegate.opens.abandon(token);
                }
                Err(e)
            }
        }
    }

    /// Publishes what this node wrote, and closes for all; the handle remains to be released, which costs no message if all went well.
    ///
    /// # Errors
    /// As [`Team::close`].
    pub fn close(&mut self, handle: Handle) -> Result<Attr> {
        let delegate = self.client.delegate.clone();
        let (fid, token) = match delegate.team.team_open(handle) {
            Ok(open) => open,
            Err(e) => {
                self.skip();
                return Err(e);
            }
        };
        let flushed = delegate.flush(handle);
        let mut request = self.request(TeamAction::Close { fid, token });
        if flushed.is_err() {
            request.kept.push(delegate.member());
        }
        let answer = self.call(self.membership.root(fid.owner()), request);
        let me = delegate.member();
        flushed?;
        match answer {
            Ok(TeamAnswer::Closed { attr, kept }) if !kept.contains(me) => {
                delegate.team.told_close(handle)?;
                Ok(delegate.names.as_seen(attr))
            }
            // Each node tells its own close; twice is no harm.
            Ok(_) | Err(_) => delegate.names.getattr(fid),
        }
    }

    /// Publishes what this node wrote, and closes.
    pub(crate) fn close_file(&mut self, file: &EmbeddedFile) -> Result<Attr> {
        let handle = match file.take_handle() {
            Ok(handle) => handle,
            Err(e) => {
                self.skip();
                return Err(e);
            }
        };
        let attr = self.close(handle);
        let released = self.client.delegate.release(handle);
        attr.and_then(|attr| released.map(|()| attr))
    }

    /// Takes part in the next call without asking for anything: it fails for all, or is done by each alone, but nobody waits.
    pub fn skip(&mut self) {
        let mut request = self.request(TeamAction::Close {
            fid: Fid(0),
            token: None,
        });
        request.differ = true;
        // It has no outcome of its own.
        let _ = self.call(self.membership.root(0), request);
    }

    fn request(&self, action: TeamAction) -> TeamRequest {
        let mut request =
            TeamRequest::new(action, self.client.delegate.member(), self.client.caller);
        request.users.extend(self.user.clone());
        request
    }

    /// The token of the opens that the next call makes.
    fn token(&self) -> u64 {
        team_token(self.membership.plan(), self.membership.round())
    }

    /// The member that probably has least to ask others about a path.
    fn likely_owner_of(&self, path: &Path) -> Member {
        let names = path.iter().map(|name| name.as_bytes());
        let names: Vec<&[u8]> = names.filter(|name| *name != b"/").collect();
        let directories = names.split_last().map_or(&[][..], |(_, before)| before);
        let owner = self.client.delegate.team.likely_owner(directories);
        self.membership.root(owner)
    }

    fn call(&mut self, root: Member, request: TeamRequest) -> Result<TeamAnswer> {
        let delegate = self.client.delegate.clone();
        let token = self.token();
        let members = self.membership.plan().members.clone();
        let executor = RootExecutor {
            delegate: &delegate,
            members: &members,
            token,
        };
        let execute = |request| executor.execute(request);
        decode(
            &self
                .membership
                .call(root, encode(&request)?, &combine, execute)?,
        )
    }

    fn unexpected_answer(&self, answer: TeamAnswer) -> Error {
        match answer {
            TeamAnswer::Failed(e) => e.into_error(self.client.delegate.member()),
            TeamAnswer::Differ => Errno::INVAL.into(),
            other => Error::Refused(format!("a team was answered {other:?}; report this")),
        }
    }
}

fn may_have_happened(error: &Error) -> bool {
    match error {
        Error::Team { failure, .. } => failure.may_have_happened(),
        _ => true,
    }
}
