//! The environment of a part of a stage job in its server: nodes, journals, and the paths that are the service's
//! own.
use crate::control::StageSpec;
use crate::members::LocalMembers;
use crate::server_context::ServerContext;
use forebay_client::Client;
use forebay_client::stage::{
    self, Direction, LocalNode, PathPair, StageOptions, StageRun, job_number,
};
use std::path::PathBuf;
use std::sync::Arc;

/// See the head of this file.
pub struct StageEnvironment {
    /// The server.
    pub server: Arc<ServerContext>,
    /// What no specification says.
    pub options: StageOptions,
}

/// What a specification asks for, as the engine takes it.
pub struct StagePlan {
    /// Which way.
    pub direction: Direction,
    /// What becomes what.
    pub pairs: Vec<PathPair>,
    /// The same whenever and wherever the same is copied.
    pub key: u64,
    /// For people.
    pub what: String,
}

impl StagePlan {
    /// Of a specification.
    ///
    /// # Errors
    /// If it names nothing.
    pub fn new(spec: &StageSpec) -> Result<StagePlan, String> {
        let direction = match spec.into {
            true => Direction::In,
            false => Direction::Out,
        };
        let pair = |(from, to): &(String, String)| PathPair {
            from: from.into(),
            to: to.into(),
        };
        let pairs: Vec<PathPair> = spec.pairs.iter().map(pair).collect();
        Ok(StagePlan {
            direction,
            key: job_number(direction, &pairs),
            pairs,
            what: describe(spec)?,
        })
    }
}

fn describe(spec: &StageSpec) -> Result<String, String> {
    let way = if spec.into { "in" } else { "out" };
    match spec.pairs.as_slice() {
        [] => Err(String::from(
            "the manifest names nothing; write `SRC DST` lines",
        )),
        [(from, to)] => Ok(format!("{way} {from} to {to}")),
        [(from, to), more @ ..] => Ok(format!("{way} {from} to {to} and {} more", more.len())),
    }
}

impl StageEnvironment {
    fn journals(&self, service: &dyn LocalMembers, member: u16) -> PathBuf {
        self.server
            .store
            .join(service.store_subdir(member))
            .join("stage")
    }

    /// Whether nothing can be copied into the service.
    pub fn is_read_only(&self) -> bool {
        let read_only = self.server.with_members(|service| service.is_read_only());
        read_only.unwrap_or(false)
    }

    /// Paths of this machine that are the service's own.
    pub fn places(&self) -> Vec<PathBuf> {
        let mut places = self.server.points();
        places.push(self.server.store.clone());
        places
    }

    /// The engine's job over all nodes of this process. `follows`: another process leads it.
    ///
    /// # Errors
    /// If the service is stopping, or a journal cannot be written.
    pub fn job(
        &self,
        spec: &StageSpec,
        plan: &StagePlan,
        avoid: &[PathBuf],
        follows: bool,
    ) -> Result<StageRun, String> {
        let shown = self.server.store.display();
        let made = self.server.with_members(|service| {
            let nodes = service.members();
            let local = |(node, delegate)| LocalNode {
                node,
                client: Client::new(delegate),
                journals: self.journals(service, node),
            };
            let jobs = match (spec.jobs, nodes) {
                (0, 1) => 4,
                (0, _) => 2,
                (jobs, _) => usize::from(jobs),
            };
            let options = StageOptions {
                verify: spec.verify,
                sync: spec.sync,
                jobs,
                avoid: avoid.to_vec(),
                follows,
                ..self.options.clone()
            };
            let local = service.delegates().into_iter().map(local).collect();
            let pairs = plan.pairs.clone();
            StageRun::new(plan.direction, pairs, options, nodes, local, &plan.what)
        });
        match made {
            None => Err(format!(
                "the service of {shown} is stopping; start it again"
            )),
            Some(Err(e)) => Err(format!(
                "cannot write the journal in {shown}: {e}; make room there, or look at its log"
            )),
            Some(Ok(job)) => Ok(job),
        }
    }

    /// Jobs that were cut off here: key, and what they copy.
    pub fn left(&self) -> Vec<(u64, String)> {
        // Every member of a job keeps a journal of it.
        let first = self.server.with_members(|service| {
            let (member, _) = *service.delegates().first()?;
            Some(self.journals(service, member))
        });
        let first = first.flatten();
        let left = first
            .iter()
            .flat_map(|journals| stage::unfinished(journals));
        left.map(|(key, what)| (key, String::from_utf8_lossy(&what).into_owned()))
            .collect()
    }

    /// Forgets what is finished of a job that is done and does not run here.
    pub fn forget(&self, key: u64) {
        let journals = self.server.with_members(|service| {
            let members = service.delegates().into_iter();
            let journals = members.map(|(member, _)| self.journals(service, member));
            journals.collect::<Vec<PathBuf>>()
        });
        for journals in journals.unwrap_or_default() {
            // One that stays costs nothing but room: what it tells is true.
            if let Err(e) = stage::forget(&journals, key) {
                tracing::warn!(
                    "cannot remove a stage journal in {}: {e}",
                    journals.display()
                );
            }
        }
    }
}
