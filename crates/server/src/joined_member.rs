//! One member in a process of its own, among members in other processes.
//!
//! It takes the steps of [`NodeServer::START_STEPS`] and [`NodeServer::STOP_STEPS`], as a service in one process does, and waits for the
//! other members after each step.
use crate::node_server::NodeServer;
use crate::{Config, Delegate, Error, MemberBarrier, MemberDirectory, MemberStatus, Result};
use forebay_fabric::Fabric;
use forebay_storage::Io;
use std::sync::Arc;
use std::time::Duration;

/// See the head of this file. Dropping it stops its threads, without committing anything.
pub struct JoinedMember {
    server: NodeServer,
    delegate: Arc<Delegate>,
    barrier: Arc<MemberBarrier>,
    _directory: MemberDirectory,
}

impl JoinedMember {
    /// Starts the member whose store is `directory` and whose end of the fabric of requests is `end`; all members do so at once.
    /// Waits for the others, `limit` at each step.
    ///
    /// # Errors
    /// `Refused` with the next step for stores that do not belong together; `Peer` when another member has given up; what a
    /// store or a recovery fails with.
    pub fn start(
        io: Arc<dyn Io>,
        mut directory: MemberDirectory,
        barrier: Arc<MemberBarrier>,
        end: Arc<dyn Fabric>,
        config: Config,
        limit: Duration,
    ) -> Result<JoinedMember> {
        let config = Config {
            nodes: barrier.members(),
            ..config
        };
        config.check()?;
        directory.agree_on_service(&*io, &barrier, limit)?;
        let reserve = Arc::new(config.disk_reserve(1));
        let mut server = NodeServer::open(
            io,
            directory.dir(),
            end,
            &config,
            reserve,
            directory.opened.repaired.clone(),
        )?;
        server.serve();
        // A request before everyone serves would wait; but one that could not open its store would never serve.
        barrier.exchange("", limit)?;
        for step in NodeServer::START_STEPS {
            step(&server)?;
            barrier.exchange("", limit)?;
        }
        let delegate = server.start_delegate()?;
        Ok(JoinedMember {
            server,
            delegate,
            barrier,
            _directory: directory,
        })
    }

    /// The delegate: for the mount.
    pub fn delegate(&self) -> Arc<Delegate> {
        self.delegate.clone()
    }

    /// To be called when another member has died: what members do together does not wait for it any more.
    pub fn on_death(&self) -> impl Fn(u32) + Send + Sync + use<> {
        let node = Arc::downgrade(self.server.node());
        move |member| {
            if let Some(node) = node.upgrade() {
                node.collectives.rank_died(member);
            }
        }
    }

    /// The barrier of all members.
    pub fn barrier(&self) -> &Arc<MemberBarrier> {
        &self.barrier
    }

    /// What the member holds and has done.
    ///
    /// # Errors
    /// When its store cannot be read.
    pub fn status(&self) -> Result<MemberStatus> {
        self.server.status()
    }

    /// The same as often as wanted, see [`NodeServer::cached_status`].
    ///
    /// # Errors
    /// When its store cannot be read.
    pub fn cached_status(&self, max_wait: Duration) -> Result<MemberStatus> {
        self.server.cached_status(max_wait)
    }

    /// Commits what is pending, stops, unlocks the store. All members do so at once; each step waits for the others,
    /// `limit` at most, but not for those that have died.
    ///
    /// # Errors
    /// The first failure; everything else is stopped all the same. That something needed a member that has died is none:
    /// the store is closed well without it, whichever member that was.
    pub fn stop(self, limit: Duration) -> Result<()> {
        let mut result = Ok(());
        for step in NodeServer::STOP_STEPS {
            let done = match step(&self.server) {
                Err(error @ Error::Fabric(forebay_fabric::Error::Dead(_))) => {
                    tracing::warn!(%error, "what was not committed when it died is lost");
                    Ok(())
                }
                done => done,
            };
            result = result.and(done);
            self.barrier.exchange_at_stop(limit);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Consistency, Error};
    use forebay_fabric::local;
    use forebay_storage::OsIo;
    use std::path::PathBuf;

    const LONG: Duration = Duration::from_secs(30);

    fn start(dirs: &[PathBuf]) -> Vec<Result<JoinedMember>> {
        let n = dirs.len() as u32;
        // All meet before any is given up.
        let barriers: Vec<_> = local::fabric(n)
            .into_iter()
            .map(|end| Arc::new(MemberBarrier::new(end)))
            .collect();
        let ends = barriers.into_iter().zip(local::fabric(n));
        std::thread::scope(|scope| {
            let start = |(dir, (barrier, end)): (
                &PathBuf,
                (Arc<MemberBarrier>, Arc<local::LocalFabric>),
            )| {
                let dir = dir.clone();
                scope.spawn(move || {
                    let directory = MemberDirectory::open(&OsIo, &dir)?;
                    let config = Config {
                        memory: 16 << 20,
                        consistency: Consistency::Posix,
                        ..Config::default()
                    };
                    JoinedMember::start(Arc::new(OsIo), directory, barrier, end, config, LONG)
                })
            };
            let threads: Vec<_> = dirs.iter().zip(ends).map(start).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn stop(members: Vec<JoinedMember>) {
        std::thread::scope(|scope| {
            for member in members {
                scope.spawn(move || member.stop(LONG).unwrap());
            }
        });
    }

    fn all(started: Vec<Result<JoinedMember>>) -> Vec<JoinedMember> {
        started.into_iter().map(|m| m.unwrap()).collect()
    }

    #[test]
    fn members_start_stop_and_start_again_with_what_they_hold() {
        let temp = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..3).map(|k| temp.path().join(format!("{k}"))).collect();
        let members = all(start(&dirs));
        for (k, member) in members.iter().enumerate() {
            let status = member.status().unwrap();
            assert_eq!(usize::from(status.member), k);
            assert_eq!(member.delegate().members(), 3);
        }
        stop(members);
        stop(all(start(&dirs)));
    }

    #[test]
    fn a_member_says_that_a_copy_of_its_superblock_was_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..2).map(|k| temp.path().join(format!("{k}"))).collect();
        stop(all(start(&dirs)));
        std::fs::remove_file(dirs[1].join("superblock.copy")).unwrap();
        let members = all(start(&dirs));
        assert!(members[0].status().unwrap().notes.is_empty());
        let status = members[1].status().unwrap();
        assert!(
            status.notes.len() == 1 && status.notes[0].contains("superblock.copy was missing"),
            "{:?}",
            status.notes
        );
        assert!(!status.unclean);
        stop(members);
        let members = all(start(&dirs));
        assert!(members[1].status().unwrap().notes.is_empty());
        stop(members);
    }

    #[test]
    fn a_member_that_cannot_start_ends_the_start_of_all() {
        let temp = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..3).map(|k| temp.path().join(format!("{k}"))).collect();
        stop(all(start(&dirs)));
        // A file where the directory of segments should be.
        std::fs::remove_dir_all(dirs[1].join("data")).unwrap();
        std::fs::write(dirs[1].join("data"), "x").unwrap();
        for (k, started) in start(&dirs).into_iter().enumerate() {
            match started {
                Err(Error::Refused(text)) if k == 1 => assert!(text.contains("data"), "{text}"),
                Err(Error::Peer { member: 1, reason }) => {
                    assert!(reason.contains("has ended"), "{reason}");
                }
                // Whoever heard of it first has ended, too.
                Err(Error::Peer { .. }) => {}
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("member {k} started"),
            }
        }
    }
}
