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

use crate::error::{Result, WithPath};
use crate::{Client, File, Metadata, OpenOptions};
use forebay_server::delegate::{Handle, team_token};
use forebay_server::team::TeamMembership;
pub use forebay_server::team::TeamSpec;
use forebay_server::{Attr, Error, Fid, Member};
use mount_user::MountUser;
use request::{TeamAction, TeamAnswer, TeamRequest, combine, decode, encode};
use root::RootExecutor;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One client's place in a team.
pub struct Team {
    client: Client,
    membership: TeamMembership,
    /// Whose permissions count, if not all is permitted.
    user: Option<MountUser>,
}

impl Client {
    /// Joins a team as one of its clients at this node; waits for a place as long as a request may take.
    ///
    /// # Errors
    /// `EIO` with the reason for a plan that cannot be; `EBUSY` if all places at this node stay taken, or the number is another team's
    /// that has clients here.
    pub fn team(&self, plan: &TeamSpec) -> Result<Team> {
        let membership = self
            .delegate
            .team
            .join(plan)
            .at("join a team at", Path::new("/"))?;
        Ok(Team {
            client: self.clone(),
            membership,
            user: None,
        })
    }

    /// The plan of team `number` with clients at all nodes of the service, `here` of them at this one.
    pub fn plan_of_all(&self, number: u32, here: u32) -> TeamSpec {
        TeamSpec {
            number,
            members: (0..self.delegate.members()).collect(),
            here,
        }
    }
}

impl Team {
    /// For a process that asks through a mount: as for the kernel, modes decide which directories it gets through and creates files
    /// in, and which files it opens for writing. `groups`: those of the process, besides the client's.
    #[doc(hidden)]
    #[must_use]
    pub fn by_mode(self, groups: Vec<u32>) -> Team {
        let user = MountUser::new(self.client.caller, groups);
        Team { user, ..self }
    }

    /// The attributes of a file; follows symbolic links.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EINVAL` if the clients do not ask the same; `EIO` if one does not ask in time, or asks about another
    /// directory.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.stat_attr(path).map(Metadata).at("stat", path)
    }

    /// The same, as the mount needs it.
    ///
    /// # Errors
    /// As [`Team::stat`].
    #[doc(hidden)]
    pub fn stat_attr(&mut self, path: &Path) -> forebay_server::Result<Attr> {
        let request = self.request(TeamAction::Stat {
            path: path.as_os_str().as_bytes().to_vec(),
        });
        match self.call(self.likely_owner_of(path), request)? {
            TeamAnswer::Attr(attr) => Ok(self.client.delegate.names.as_seen(attr)),
            other => Err(self.unexpected_answer(other)),
        }
    }

    /// Opens a file for writing; creates it, or empties it.
    ///
    /// # Errors
    /// As [`Team::open`].
    pub fn create(&mut self, path: impl AsRef<Path>) -> Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        self.open(path, &options)
    }

    /// Opens a file. Clients may differ in what they want to do with it (read, write, append, truncate), not in
    /// [`OpenOptions::create`] and [`OpenOptions::create_new`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `EINVAL` if the clients do not ask the same, or one asks what cannot be; `EIO` if one does not ask
    /// in time, or asks about another directory.
    pub fn open(&mut self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let opened = self.open_handle(path, options).at("open", path)?;
        Ok(File::new(&self.client, opened, options.flags, path))
    }

    /// The same, as the mount needs it.
    ///
    /// # Errors
    /// As [`Team::open`].
    #[doc(hidden)]
    pub fn open_handle(
        &mut self,
        path: &Path,
        options: &OpenOptions,
    ) -> forebay_server::Result<forebay_server::delegate::OpenedFile> {
        let mut request = self.request(TeamAction::Open {
            path: path.as_os_str().as_bytes().to_vec(),
            create: options.create,
            create_new: options.create_new,
        });
        let flags = options.effective();
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

    /// Publishes what this node wrote, and closes; the file as it is when all have done so. Files that one call
    /// of this team opened are closed by one request; others by each client alone, once all have come.
    ///
    /// # Errors
    /// Those of [`File::commit`], of this node. A client that does not come in time does not make the close of others fail.
    pub fn close(&mut self, file: File) -> Result<Metadata> {
        let (handle, path) = file.into_parts();
        let attr = self.close_handle(handle);
        let released = self.client.delegate.release(handle);
        let attr = attr.and_then(|attr| released.map(|()| attr));
        attr.map(Metadata).at("close", &path)
    }

    /// The same, as the mount needs it: the handle remains to be released, which costs no message if all went well.
    ///
    /// # Errors
    /// As [`Team::close`].
    #[doc(hidden)]
    pub fn close_handle(&mut self, handle: Handle) -> forebay_server::Result<Attr> {
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

    /// Takes part in the next call without asking for anything: it fails for all, or is done by each alone, but nobody waits.
    #[doc(hidden)]
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

    fn call(&mut self, root: Member, request: TeamRequest) -> forebay_server::Result<TeamAnswer> {
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
