//! A team as programs see it, over either backend.
use super::{EmbeddedTeam, TeamSpec, plan_of_all};
use crate::client::Backend;
use crate::error::{Result, WithPath};
use crate::file::FileBackend;
use crate::link::{CallError, LinkTeam};
use crate::{Client, File, Metadata, OpenOptions};
use std::path::Path;

/// One client's place in a team.
pub struct Team(TeamBackend);

enum TeamBackend {
    Embedded(EmbeddedTeam),
    Link(LinkTeam),
}

impl Client {
    /// Joins a team as one of its clients at this node; waits for a place as long as a request may take.
    ///
    /// # Errors
    /// `EIO` with the reason for a plan that cannot be; `EBUSY` if all places at this node stay taken, or the number is another team's
    /// that has clients here.
    pub fn team(&self, plan: &TeamSpec) -> Result<Team> {
        let joined = match &self.backend {
            Backend::Embedded(client) => client
                .team(plan)
                .map(TeamBackend::Embedded)
                .map_err(CallError::from),
            Backend::Link(client) => client.team(plan).map(TeamBackend::Link),
        };
        joined.map(Team).at("join a team at", Path::new("/"))
    }

    /// The plan of team `number` with clients at all nodes of the service, `here` of them at this one.
    pub fn plan_of_all(&self, number: u32, here: u32) -> TeamSpec {
        plan_of_all(self.members(), number, here)
    }
}

impl From<EmbeddedTeam> for Team {
    fn from(team: EmbeddedTeam) -> Team {
        Team(TeamBackend::Embedded(team))
    }
}

impl Team {
    /// The attributes of a file; follows symbolic links.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EINVAL` if the clients do not ask the same; `EIO` if one does not ask in time, or asks about another
    /// directory.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        let attr = match &mut self.0 {
            TeamBackend::Embedded(team) => team.stat(path).map_err(CallError::from),
            TeamBackend::Link(team) => team.stat(path),
        };
        attr.map(Metadata).at("stat", path)
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
        let opened = match &mut self.0 {
            TeamBackend::Embedded(team) => team
                .open_file(path, options)
                .map(FileBackend::Embedded)
                .map_err(CallError::from),
            TeamBackend::Link(team) => team.open(path, options).map(FileBackend::Link),
        };
        Ok(File::new(opened.at("open", path)?, options.flags, path))
    }

    /// Publishes what this node wrote, and closes; the file as it is when all have done so. Files that one call
    /// of this team opened are closed by one request; others by each client alone, once all have come.
    ///
    /// # Errors
    /// Those of [`File::commit`], of this node. A client that does not come in time does not make the close of others fail.
    pub fn close(&mut self, file: File) -> Result<Metadata> {
        let attr = match (&mut self.0, &file.backend) {
            (TeamBackend::Embedded(team), FileBackend::Embedded(file)) => {
                team.close_file(file).map_err(CallError::from)
            }
            (TeamBackend::Link(team), FileBackend::Link(file)) => team.close(file),
            // A file of another client; the others are not to wait.
            (TeamBackend::Embedded(team), _) => {
                team.skip();
                Err(forebay_server::Error::Posix(rustix::io::Errno::BADF).into())
            }
            (TeamBackend::Link(team), _) => team.skip(),
        };
        attr.map(Metadata).at("close", file.path())
    }
}
