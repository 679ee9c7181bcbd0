//! A service of stores that are damaged, to read what is whole: `forebay mount --salvage`.
//!
//! New records are made beside the stores, in a temporary directory ([`rebuild`](crate::rebuild)), and an ordinary
//! service runs on them. The file data stays where it is: the service sees the segment files of the stores as if they lay
//! with its records.
//!
//! Invariants: nothing in a damaged store is written, cut, punched or removed, but for the text of its lock; a member whose
//! store is missing or cannot be read at all counts as wholly lost; where a repair was interrupted, either all old records are
//! used or all new ones.
mod overlay;

use crate::rebuild::{ByteCheck, LossReport, MemberPaths, rebuild};
use crate::repair_marker::newest_records;
use crate::service_directory::{self, ServiceDirectory};
use crate::{Config, Error, Result, Service, offline_stores};
use forebay_storage::Io;
use overlay::SegmentOverlay;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
pub struct Salvage {
    /// `None` once it has stopped.
    service: Option<Service>,
    losses: LossReport,
    scratch: ScratchDirectory,
    /// Held until it is dropped.
    _locks: Vec<File>,
}

/// A directory that is removed with this.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn create(above: &Path) -> Result<ScratchDirectory> {
        let id = crate::superblock::random_id();
        let id: String = id[..6].iter().map(|b| format!("{b:02x}")).collect();
        let dir = above.join(format!("forebay-salvage-{id}"));
        service_directory::make_private(&forebay_storage::OsIo, &dir)?;
        Ok(ScratchDirectory(dir))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(error = %e, "{} is left behind; remove it", self.0.display());
        }
    }
}

impl Salvage {
    /// Starts a service of what is whole in `dirs`: the directory of a whole service, or stores of its members, in any order, some of
    /// which may be missing. Its records are made in a new directory in `scratch`. `progress` is called with what is done. The number of
    /// nodes in `config` is not looked at.
    ///
    /// # Errors
    /// `Refused` for directories in use, and for what are no stores of one service; when the new records cannot be written.
    pub fn start(
        io: Arc<dyn Io>,
        dirs: &[PathBuf],
        scratch: &Path,
        config: &Config,
        progress: &mut dyn FnMut(&'static str),
    ) -> Result<Salvage> {
        let found = offline_stores::open_damaged(&io, dirs)?;
        let scratch = ScratchDirectory::create(scratch)?;
        let members = found.nodes.len() as u16;
        let new = ServiceDirectory::open(&*io, &scratch.0, members)?;
        let records = newest_records(&*io, &found.nodes)?;
        let sources: Vec<MemberPaths> = found
            .nodes
            .iter()
            .zip(records)
            .map(|(node, kv)| MemberPaths {
                kv,
                data: node.as_ref().map(|node| node.join("data")),
            })
            .collect();
        let targets: Vec<PathBuf> = new.nodes.iter().map(|node| node.join("kv")).collect();
        let mut losses = rebuild(&io, &sources, &targets, ByteCheck::Lengths, progress)?;
        losses.damage.splice(0..0, found.damage);
        losses.notes.push(
            "file data was not read yet: damaged pieces answer EIO, and `forebay fsck` names them"
                .into(),
        );
        let data = |(new, old): (&PathBuf, &Option<PathBuf>)| {
            (new.join("data"), old.as_ref().map(|old| old.join("data")))
        };
        let data = new.nodes.iter().zip(&found.nodes).map(data).collect();
        let overlay = Arc::new(SegmentOverlay::new(io, data));
        drop(new);
        progress("starting");
        let config = Config {
            nodes: members,
            ..config.clone()
        };
        let service = Service::start(overlay, &scratch.0, config)?;
        Ok(Salvage {
            service: Some(service),
            losses,
            scratch,
            _locks: found.locks,
        })
    }

    /// The service that runs.
    ///
    /// # Errors
    /// `Refused` once it has stopped.
    pub fn service(&self) -> Result<&Service> {
        let stopped = || Error::Refused("the service has stopped; start it again".into());
        self.service.as_ref().ok_or_else(stopped)
    }

    /// What is not whole.
    pub fn losses(&self) -> &LossReport {
        &self.losses
    }

    /// Where its records are while it runs.
    pub fn scratch(&self) -> &Path {
        &self.scratch.0
    }

    /// Stops it and removes its records.
    ///
    /// # Errors
    /// What the service fails with; nothing of the stores is lost by it.
    pub fn stop(mut self) -> Result<()> {
        self.service.take().map_or(Ok(()), Service::stop)
    }
}
