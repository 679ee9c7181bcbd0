//! The links of the members of this process to other processes of this machine: a socket in the store's directory for each.
use crate::descriptors;
use crate::failure::{Context, Result};
use crate::server_context::ServerContext;
use crate::units::counted;
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use std::time::Duration;

/// A client does not ask sooner what keeps an answer: its server may be slow to run on a busy machine.
const MIN_DEADLINE: Duration = Duration::from_secs(1);

/// See the head of this file.
#[derive(Default)]
pub struct LinkServers(Vec<LinkServer>);

impl LinkServers {
    /// Serves all members of the process.
    ///
    /// # Errors
    /// If a socket cannot be made.
    pub fn start(server: &ServerContext) -> Result<LinkServers> {
        let delegates = server.with_members(|members| members.delegates());
        let delegates = delegates.unwrap_or_default();
        let connections = descriptors::link_connections(delegates.len());
        if connections == 0 {
            tracing::warn!(
                "the limit on open files is too low for other processes to connect: only the mounts are served"
            );
            return Ok(LinkServers::default());
        }
        let limits = LinkLimits {
            connections,
            deadline: server.deadline.max(MIN_DEADLINE),
            ..LinkLimits::default()
        };
        let start = |(member, delegate)| {
            let socket = socket_of(&server.store, member);
            LinkServer::start(&socket, delegate, limits).or_fail(
                format!("cannot open the socket {}", socket.display()),
                "check the permissions of the store's directory",
            )
        };
        let links = delegates.into_iter().map(start);
        Ok(LinkServers(links.collect::<Result<_>>()?))
    }

    /// Processes that are connected, and files that they have open.
    pub fn clients(&self) -> (u64, u64) {
        let counts = self.0.iter().map(LinkServer::clients);
        counts.fold((0, 0), |sum, (clients, files)| {
            (sum.0 + clients as u64, sum.1 + files as u64)
        })
    }

    /// What speaks against a stop: files that connected programs have open.
    pub fn stop_obstacle(&self) -> Option<String> {
        let (_, open) = self.clients();
        (open > 0).then(|| {
            format!(
                "programs that are connected to the store have {} open (EBUSY); end them and try again, or add --force",
                counted(open, "file")
            )
        })
    }

    /// Ends all connections; what they have open is closed.
    pub fn stop(&self, limit: Duration) {
        for link in &self.0 {
            link.stop(limit);
        }
    }
}
