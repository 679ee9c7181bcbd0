//! The peers borg and restic, deduplicating backup programs. Each checkpoint is an archive (borg) or a snapshot (restic) of one
//! file.
//!
//! Everything that they write, repository and cache, lies in the subject's directory, and the user's environment variables are
//! hidden from them. Both sync a file of their repository before they name it, so they promise what durability `disk` does.
use super::peer_output::{Version, borg_summary, restic_summary};
use super::source::each_piece;
use crate::cpu;
use crate::fail::{Context, Failure, Result};
use crate::harness::{program_output, run_program};
use crate::subjects::without_variables;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// From this one on restic has repositories that may be compressed; older ones have none that are.
const RESTIC_COMPRESSES: Version = Version(0, 14, 0);

/// A backup program, and its way of cutting chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// borg with these parameters of its chunker; `None`: its default, cut by a rolling hash.
    Borg(Option<&'static str>),
    /// restic, which has one way.
    Restic,
}

impl PeerKind {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            PeerKind::Borg(_) => "borg",
            PeerKind::Restic => "restic",
        }
    }

    /// Its version.
    ///
    /// # Errors
    /// If it is not installed; says how to.
    pub fn version(self) -> Result<Version> {
        let flag = match self {
            PeerKind::Borg(_) => "--version",
            PeerKind::Restic => "version",
        };
        let program = self.program();
        let said = program_output(Command::new(program).arg(flag));
        let said =
            said.map_err(|e| Failure::new(format!("{e}; scripts/setup.sh dedup installs it")))?;
        Version::parse(&said)
            .ok_or_else(|| Failure::new(format!("{program}: no version in '{said}'")))
    }
}

/// What storing a file cost.
pub struct TakenFile {
    /// Seconds until it is in its final form.
    pub seconds: f64,
    /// Processor seconds.
    pub cpu: f64,
    /// Those of them that finding and storing equal chunks took; for a peer all, for the file is there before it begins.
    pub dedup_cpu: f64,
}

/// A repository of a backup program.
pub struct Peer {
    kind: PeerKind,
    version: Version,
    home: PathBuf,
    /// For each file, by name, how the program calls what it made of it.
    archives: Vec<(String, String)>,
}

impl Peer {
    /// Makes a new repository.
    ///
    /// # Errors
    /// If the program is not there or fails.
    pub fn start(kind: PeerKind, home: &Path) -> Result<Peer> {
        std::fs::create_dir_all(home).doing(home.display())?;
        let version = kind.version()?;
        let peer = Peer {
            kind,
            version,
            home: home.to_owned(),
            archives: Vec::new(),
        };
        let mut init = peer.command();
        match kind {
            PeerKind::Borg(_) => init.args(["init", "-e", "none"]).arg(peer.repository()),
            PeerKind::Restic if version >= RESTIC_COMPRESSES => {
                init.args(["init", "--repository-version", "2"])
            }
            PeerKind::Restic => init.arg("init"),
        };
        run_program(&mut init)?;
        Ok(peer)
    }

    /// The directory with all that it stores.
    pub fn repository(&self) -> PathBuf {
        self.home.join("repository")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.kind.program());
        match self.kind {
            PeerKind::Borg(_) => {
                without_variables(&mut command, "BORG_");
                command.env("BORG_BASE_DIR", self.home.join("base"));
                command.env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes");
            }
            PeerKind::Restic => {
                without_variables(&mut command, "RESTIC_");
                command.env("RESTIC_CACHE_DIR", self.home.join("cache"));
                command.env("RESTIC_PASSWORD", "benchmark");
                command.env("RESTIC_REPOSITORY", self.repository());
                if self.version >= RESTIC_COMPRESSES {
                    command.args(["--compression", "off"]);
                }
            }
        }
        command
    }

    /// Stores a file.
    ///
    /// # Errors
    /// If the program fails, or has not read all of it.
    pub fn take(&mut self, dir: &Path, name: &str, bytes: u64) -> Result<TakenFile> {
        let mut command = self.command();
        match self.kind {
            PeerKind::Borg(chunker) => {
                command.args(["create", "--json", "--compression", "none"]);
                if let Some(parameters) = chunker {
                    command.args(["--chunker-params", parameters]);
                }
                command.arg(self.archive(name));
            }
            PeerKind::Restic => drop(command.args(["backup", "--json"])),
        }
        let (begin, before) = (Instant::now(), cpu::of_ended_children()?);
        let said = program_output(command.arg(name).current_dir(dir))?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu = cpu::of_ended_children()? - before;
        let taken = TakenFile {
            seconds,
            cpu,
            dedup_cpu: cpu,
        };
        let summary = match self.kind {
            PeerKind::Borg(_) => borg_summary(&said),
            PeerKind::Restic => restic_summary(&said),
        }
        .doing("what the program said")?;
        // borg counts metadata of the file too.
        if summary.bytes < bytes {
            return Err(Failure::new(format!(
                "{} read {} of {bytes} bytes of {name}",
                self.kind.program(),
                summary.bytes
            )));
        }
        self.archives.push((name.into(), summary.archive));
        Ok(taken)
    }

    fn archive(&self, name: &str) -> String {
        format!("{}::{name}", self.repository().display())
    }

    /// Reads a file back, by a new process whose output is read; how many bytes.
    ///
    /// # Errors
    /// If the program fails, or as `take`.
    pub fn read(&self, name: &str, take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64> {
        let found = self.archives.iter().find(|(file, _)| file == name);
        let (_, archive) = found.ok_or_else(|| Failure::new(format!("{name} was not stored")))?;
        let mut command = self.command();
        match self.kind {
            PeerKind::Borg(_) => {
                command.args(["extract", "--stdout", &self.archive(archive), name])
            }
            PeerKind::Restic => command.args(["dump", archive, name]),
        };
        let log = self.home.join("log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).doing(log.display())?);
        let mut child = command.spawn().doing(self.kind.program())?;
        let read = match &mut child.stdout {
            Some(out) => each_piece(out, take).doing(name),
            None => Err(Failure::new("a process without output")),
        };
        if read.is_err() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        let bytes = read?;
        match status.success() {
            true => Ok(bytes),
            false => Err(Failure::new(format!(
                "{}: {}",
                self.kind.program(),
                std::fs::read_to_string(&log).unwrap_or_default()
            ))),
        }
    }
}
