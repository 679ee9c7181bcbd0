//! The subjects by name, and a running one behind one interface: a service or a peer's repository.
use super::peers::{Peer, PeerKind};
use super::service::{ServiceOptions, SettlingService};
use super::source::SourceFiles;
use super::status::ServiceFigures;
use crate::fail::{Failure, Result};
use crate::harness::by_name;
use std::io;
use std::path::{Path, PathBuf};

/// How a subject stores files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// Forebay, with or without settling.
    Service { settles: bool },
    /// A backup program.
    Peer(PeerKind),
}

/// A subject of `dedup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupSubject {
    /// Its name.
    pub name: &'static str,
    /// How it stores files.
    pub kind: SubjectKind,
    /// What it gives up, and what it does besides, for the header.
    pub about: &'static str,
}

const fn service(name: &'static str, settles: bool, about: &'static str) -> DedupSubject {
    let kind = SubjectKind::Service { settles };
    DedupSubject { name, kind, about }
}

const fn peer(name: &'static str, peer: PeerKind, about: &'static str) -> DedupSubject {
    let kind = SubjectKind::Peer(peer);
    DedupSubject { name, kind, about }
}

/// All, in the order of the table.
pub const SUBJECTS: [DedupSubject; 5] = [
    service(
        "forebay",
        true,
        "a service of one node, settle = auto; no compression, no encryption",
    ),
    service(
        "settle-off",
        false,
        "a service of one node, settle = off; no compression, no encryption",
    ),
    peer(
        "borg-fixed",
        PeerKind::Borg(Some("fixed,4096")),
        "blocks of 4 KiB; compression none, encryption none",
    ),
    peer(
        "borg-buzhash",
        PeerKind::Borg(None),
        "its default, chunks of some 2 MiB cut by content; compression none, encryption none",
    ),
    peer(
        "restic",
        PeerKind::Restic,
        "its default, chunks of some 1 MiB cut by content; compression off; encrypts always, on all processors",
    ),
];

impl DedupSubject {
    /// Why it cannot be measured here, if it cannot.
    fn obstacle(&self, options: &ServiceOptions) -> Option<Failure> {
        match self.kind {
            SubjectKind::Service { settles } => (settles && !options.has_setting).then(|| {
                Failure::new(format!(
                    "{} has no setting `settle`",
                    options.program.display()
                ))
            }),
            SubjectKind::Peer(peer) => peer.version().err(),
        }
    }

    /// Which one of its versions, for the header.
    pub fn version(&self) -> String {
        match self.kind {
            SubjectKind::Service { .. } => String::new(),
            SubjectKind::Peer(peer) => match peer.version() {
                Ok(version) => format!(" {version}"),
                Err(_) => String::new(),
            },
        }
    }
}

/// The named subjects, or all that can be measured here; and why others cannot.
///
/// # Errors
/// Names an unknown one, or one that was named and cannot be measured.
pub fn select(
    names: &[String],
    options: &ServiceOptions,
) -> Result<(Vec<DedupSubject>, Vec<String>)> {
    let hint = format!("there are {}", SUBJECTS.map(|s| s.name).join(", "));
    let wanted = by_name("subject", &SUBJECTS, |s| s.name, names, &hint)?;
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for subject in wanted {
        match subject.obstacle(options) {
            None => found.push(subject),
            Some(failure) if names.is_empty() => {
                left_out.push(format!("{}: left out: {failure}", subject.name));
            }
            Some(failure) => return Err(failure),
        }
    }
    Ok((found, left_out))
}

/// What taking a file cost, in seconds.
pub struct StoredFile {
    /// Seconds until it was written and closed.
    pub written: f64,
    /// Until it was stored as it stays. `None`: it stays as it was written.
    pub settled: Option<f64>,
    /// Processor seconds until then.
    pub cpu: f64,
    /// Those of them that finding and storing equal chunks took. `None`: nothing looks for any.
    pub dedup_cpu: Option<f64>,
}

/// A running subject.
pub enum RunningSubject {
    /// Forebay, with or without settling.
    Service(SettlingService, bool),
    /// A backup program.
    Peer(Peer),
}

impl RunningSubject {
    /// Starts a subject with an empty store.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(kind: SubjectKind, options: &ServiceOptions, home: &Path) -> Result<Self> {
        Ok(match kind {
            SubjectKind::Service { settles } => {
                let service = SettlingService::start(options, settles, home)?;
                RunningSubject::Service(service, settles)
            }
            SubjectKind::Peer(peer) => RunningSubject::Peer(Peer::start(peer, home)?),
        })
    }

    /// Stores a file.
    ///
    /// # Errors
    /// If it fails.
    pub fn take(&mut self, source: &SourceFiles, name: &str, bytes: u64) -> Result<StoredFile> {
        match self {
            RunningSubject::Service(service, settles) => {
                let (written, taken) = service.take(source, name)?;
                Ok(StoredFile {
                    written,
                    settled: settles.then_some(taken.seconds),
                    cpu: taken.cpu,
                    dedup_cpu: settles.then_some(taken.dedup_cpu),
                })
            }
            RunningSubject::Peer(peer) => {
                let taken = peer.take(&source.dir, name, bytes)?;
                Ok(StoredFile {
                    written: taken.seconds,
                    settled: Some(taken.seconds),
                    cpu: taken.cpu,
                    dedup_cpu: Some(taken.dedup_cpu),
                })
            }
        }
    }

    /// Stops what runs; a service's last figures.
    ///
    /// # Errors
    /// If it does not report them.
    pub fn stop(&mut self) -> Result<Option<ServiceFigures>> {
        match self {
            RunningSubject::Service(service, _) => service.stop().map(Some),
            RunningSubject::Peer(_) => Ok(None),
        }
    }

    /// Starts it again.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn open(&mut self) -> Result<()> {
        match self {
            RunningSubject::Service(service, _) => service.open(),
            RunningSubject::Peer(_) => Ok(()),
        }
    }

    /// Reads a file back; returns its length.
    ///
    /// # Errors
    /// If it cannot be read, or as `take`.
    pub fn read(&self, name: &str, take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64> {
        match self {
            RunningSubject::Service(service, _) => service.read(name, take),
            RunningSubject::Peer(peer) => peer.read(name, take),
        }
    }

    /// The directory whose bytes are counted.
    pub fn stored_in(&self) -> PathBuf {
        match self {
            RunningSubject::Service(service, _) => service.store(),
            RunningSubject::Peer(peer) => peer.repository(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_left_out_unless_it_is_named() {
        let options = ServiceOptions {
            program: "forebay".into(),
            has_setting: false,
        };
        let (found, left_out) = select(&[], &options).unwrap();
        assert!(found.iter().any(|s| s.name == "settle-off"));
        assert!(found.iter().all(|s| s.name != "forebay"));
        assert!(left_out[0].starts_with("forebay: left out: "));
        let named = select(&["forebay".into()], &options);
        assert!(named.is_err_and(|e| e.0.contains("settle")));
        let unknown = select(&["tape".into()], &options);
        assert!(unknown.is_err_and(|e| e.0.contains("borg-buzhash")));
    }
}
