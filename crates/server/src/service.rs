//! A whole service in one process: `nodes` members, joined by `fabric::local`.
//!
//! Start: lock and check the directories, open the members' stores side by side, then take the steps of
//! [`NodeServer::START_STEPS`], each on all members before the next. Only then do delegates exist.
use crate::node_server::NodeServer;
use crate::service_directory::ServiceDirectory;
use crate::{Config, Delegate, Error, MemberParts, MemberStatus, Result};
use forebay_fabric::{Fabric, local};
use forebay_storage::Io;
use parking_lot::Mutex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
pub struct Service {
    members: Vec<NodeServer>,
    /// Given up by [`Service::stop`] (or drop), also if a delegate is still held somewhere.
    locks: Mutex<Vec<File>>,
}

impl Service {
    /// Opens (or creates) the store of a service and starts its members; recovers what a crash cut off.
    ///
    /// # Errors
    /// `Refused` with the next step for a directory that cannot be used; what a store or a recovery fails with.
    pub fn start(io: Arc<dyn Io>, store: &Path, config: Config) -> Result<Service> {
        Service::start_over(io, store, config, |end| end)
    }

    /// As `start`, with each end of the fabric wrapped: tests put faults in between.
    ///
    /// # Errors
    /// See `start`.
    #[doc(hidden)]
    pub fn start_over(
        io: Arc<dyn Io>,
        store: &Path,
        config: Config,
        wrap: impl Fn(Arc<dyn Fabric>) -> Arc<dyn Fabric>,
    ) -> Result<Service> {
        config.check()?;
        let layout = ServiceDirectory::open(&*io, store, config.nodes)?;
        let ends = local::fabric(u32::from(config.nodes));
        let fabric: Vec<Arc<dyn Fabric>> = ends
            .into_iter()
            .map(|end| wrap(end as Arc<dyn Fabric>))
            .collect();
        let reserve = Arc::new(config.disk_reserve(config.nodes));
        let open = |(end, (dir, repaired)): (Arc<dyn Fabric>, (&PathBuf, &Vec<String>))| {
            let reserve = reserve.clone();
            NodeServer::open(io.clone(), dir, end, &config, reserve, repaired.clone())
        };
        let opened: Vec<Result<NodeServer>> = std::thread::scope(|scope| {
            let threads: Vec<_> = fabric
                .into_iter()
                .zip(layout.nodes.iter().zip(&layout.repaired))
                .map(|pair| scope.spawn(move || open(pair)))
                .collect();
            let join = |t: std::thread::ScopedJoinHandle<'_, Result<NodeServer>>| {
                t.join().unwrap_or_else(|_| {
                    Err(Error::Refused(
                        "a member panicked at its start; see the log".into(),
                    ))
                })
            };
            threads.into_iter().map(join).collect()
        });
        // From here on a failure must stop threads: a node server does so when it is dropped.
        let members = opened.into_iter().collect::<Result<Vec<_>>>()?;
        let mut service = Service {
            members,
            locks: Mutex::new(layout.locks),
        };
        for member in &service.members {
            member.serve();
        }
        for step in NodeServer::START_STEPS {
            for member in &service.members {
                step(member)?;
            }
        }
        for member in &mut service.members {
            member.start_delegate()?;
        }
        Ok(service)
    }

    /// The delegate of member `member`: one per mount.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn delegate(&self, member: u16) -> Arc<Delegate> {
        match self.members[usize::from(member)].delegate() {
            Some(delegate) => delegate.clone(),
            None => unreachable!("a service has started all its delegates"),
        }
    }

    /// How many members there are.
    pub fn members(&self) -> u16 {
        self.members.len() as u16
    }

    /// The members, for tests and tools.
    #[doc(hidden)]
    pub fn nodes(&self) -> Vec<Arc<MemberParts>> {
        self.members.iter().map(|m| m.node().clone()).collect()
    }

    /// What each member holds and has done. Counts files and extents by looking at each: not for a tight loop.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn status(&self) -> Result<Vec<MemberStatus>> {
        self.members.iter().map(NodeServer::status).collect()
    }

    /// The same as often as wanted, see [`NodeServer::cached_status`].
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn cached_status(&self, max_wait: std::time::Duration) -> Result<Vec<MemberStatus>> {
        let until = std::time::Instant::now() + max_wait;
        let left = || until.saturating_duration_since(std::time::Instant::now());
        self.members
            .iter()
            .map(|m| m.cached_status(left()))
            .collect()
    }

    /// Commits what is pending, stops threads, unlocks the store.
    ///
    /// # Errors
    /// The first failure; everything else is stopped all the same.
    pub fn stop(self) -> Result<()> {
        let mut result = Ok(());
        for step in NodeServer::STOP_STEPS {
            for member in &self.members {
                result = result.and(step(member));
            }
        }
        result
    }
}

impl Drop for Service {
    /// Stops the threads, without committing anything (that is what `stop` does first).
    fn drop(&mut self) {
        for member in &self.members {
            member.end();
        }
        for member in &self.members {
            member.close();
        }
        self.locks.lock().clear();
    }
}
