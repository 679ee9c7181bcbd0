//! Teams for processes other than the server: the ranks of a job, through the mount of their node.
//!
//! [`RankTeam`] offers the same calls with the same results as [`Team`](crate::Team) does inside the server's process. A process
//! opens the directory of teams once. Each call is an `ioctl` on it (`wire`), which the server carries out for the process. After
//! an open, the handle is taken by opening a name in that directory, which exists only for the thread that asked, and once. So a
//! call costs the process no look-up, and the service only the messages of the collective.
//!
//! `forebay run` puts into the environment what a rank needs for the job's own team ([`RankTeam::of_job`]).

pub mod wire;

use crate::OpenOptions;
use forebay_server::team::MAX_NUMBER;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::{BUFFER_BYTES, COMMAND, DIRECTORY, FileAttributes, TeamOp, grant};

/// The number of the job's own team; `forebay run` sets it.
pub const TEAM_VARIABLE: &str = "FOREBAY_TEAM";
/// The mounts of this machine, separated by colons; `forebay run` sets them.
pub const MOUNTS_VARIABLE: &str = "FOREBAY_MOUNTS";

/// How many ranks of the job run on this machine, and which of them this is: OpenMPI, MPICH, Slurm.
const LOCAL_RANK_VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("FOREBAY_LOCAL_RANKS", "FOREBAY_LOCAL_RANK"),
];

/// What is the same at all ranks of one step of a job, and different in each: PMIx (OpenMPI, Slurm), Slurm.
const STEP_VARIABLES: [&str; 2] = ["PMIX_NAMESPACE", "SLURM_STEP_ID"];

/// One process's place in a team.
pub struct RankTeam {
    directory: OwnedFd,
}

/// A file that a team opened. To be closed with [`RankTeam::close`]; if it is dropped instead, it is closed alone.
#[derive(Debug)]
pub struct TeamFile {
    file: File,
    ino: u64,
}

impl Deref for TeamFile {
    type Target = File;
    fn deref(&self) -> &File {
        &self.file
    }
}

impl RankTeam {
    /// Joins team `number`, of which `here` processes use the mount `mount`; it has some at `members` (none named:
    /// at all nodes). Waits for a place as long as a request may take: those who had it may have ended just now.
    ///
    /// # Errors
    /// `ENOENT` if there is no mount of Forebay; `EACCES` for another user than the service's; `EINVAL` for a team that cannot be,
    /// `EBUSY` if all places stay taken, or the number is another team's whose processes do not end: the server's log says more.
    pub fn join(mount: &Path, number: u32, here: u32, members: &[u16]) -> io::Result<RankTeam> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(mount.join(DIRECTORY), flags, Mode::empty())?;
        let rank = RankTeam { directory };
        let join = TeamOp::Join {
            number,
            here,
            members: members.to_vec(),
        };
        rank.call(&join).map(|_| rank)
    }

    /// Joins the team of all ranks of the job that `forebay run` started. The ranks of a machine with
    /// several mounts are dealt out to them in turn; each mount needs one at least.
    ///
    /// # Errors
    /// `NotFound` if the environment says nothing of a job (it must reach the ranks: `mpirun -x`, `srun --export`); those
    /// of [`RankTeam::join`].
    pub fn of_job() -> io::Result<RankTeam> {
        let place = RankPlacement::of(|name| std::env::var(name).ok())?;
        RankTeam::join(&place.mount, place.team, place.here, &[])
    }

    /// The attributes of a file; follows symbolic links. Paths begin at the root of the file system.
    ///
    /// # Errors
    /// As stat; `EINVAL` if the ranks do not ask the same, `EIO` if one does not ask in time, or asks about another directory.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> io::Result<FileAttributes> {
        self.call(&TeamOp::Stat {
            path: path.as_ref().as_os_str().as_bytes().to_vec(),
        })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As open; `EINVAL` if the ranks do not ask the same, `EIO` if one does not ask in time, or asks about another directory.
    pub fn open(&mut self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<TeamFile> {
        let shown = self.call(&TeamOp::Open {
            path: path.as_ref().as_os_str().as_bytes().to_vec(),
            options: options.clone(),
        })?;
        let name = grant(shown.ino);
        let fd = rustix::fs::openat(&self.directory, name, kernel_flags(options), Mode::empty())?;
        Ok(TeamFile {
            file: File::from(fd),
            ino: shown.ino,
        })
    }

    /// Publishes what this node wrote, and closes; the file as it is when all ranks have done so. Pages written through a
    /// mapping are not waited for: `msync` them first.
    ///
    /// # Errors
    /// As close, of this node; the file is closed all the same. A rank that does not come in time does not make the close of others fail.
    pub fn close(&mut self, opened: TeamFile) -> io::Result<FileAttributes> {
        let shown = self.call(&TeamOp::Close { ino: opened.ino });
        drop(opened);
        shown
    }

    fn call(&self, op: &TeamOp) -> io::Result<FileAttributes> {
        let mut buffer = op.encode().ok_or(Errno::NAMETOOLONG)?;
        // SAFETY: the command says that the kernel reads and writes `BUFFER_BYTES` bytes, which is what the buffer has.
        let call =
            unsafe { rustix::ioctl::Updater::<{ COMMAND }, [u8; BUFFER_BYTES]>::new(&mut buffer) };
        // SAFETY: another file system than Forebay's does not know the command and touches nothing.
        unsafe { rustix::ioctl::ioctl(&self.directory, call) }?;
        let unreadable = || {
            io::Error::other(
                "the server's answer is of another version; use the library of the server's release",
            )
        };
        FileAttributes::decode(&buffer[..], op).ok_or_else(unreadable)
    }
}

/// How the process takes the handle that its team has opened.
fn kernel_flags(options: &OpenOptions) -> OFlags {
    let handle = options.handle_flags();
    let access = match (handle.read, handle.write) {
        (true, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDWR,
    };
    let mut flags = access | OFlags::CLOEXEC;
    flags.set(OFlags::APPEND, handle.append);
    flags
}

/// What the environment says of a rank.
#[derive(Debug, PartialEq, Eq)]
struct RankPlacement {
    team: u32,
    mount: PathBuf,
    here: u32,
}

impl RankPlacement {
    fn of(told: impl Fn(&str) -> Option<String>) -> io::Result<RankPlacement> {
        let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_string());
        let number = |name: &str| told(name)?.parse::<u32>().ok();
        let team = number(TEAM_VARIABLE).ok_or_else(|| {
            missing("FOREBAY_TEAM is not set: start the job with `forebay run`, and let its environment reach the ranks")
        })?;
        // A job may have several steps, one after the other or at once: each is a team.
        let step = STEP_VARIABLES.iter().find_map(|name| told(name));
        let team = step.map_or(team, |step| mixed(team, &step));
        let mounts = told(MOUNTS_VARIABLE).unwrap_or_default();
        let mounts: Vec<&str> = mounts.split(':').filter(|m| !m.is_empty()).collect();
        let count = mounts.len() as u32;
        let place = LOCAL_RANK_VARIABLES
            .iter()
            .find_map(|(size, rank)| Some((number(size)?, number(rank)?)));
        let (size, rank) = place.or_else(|| slurm(&number)).ok_or_else(|| {
            missing("nothing says how many ranks this machine has: start them with mpirun or srun, or set FOREBAY_LOCAL_RANKS and FOREBAY_LOCAL_RANK")
        })?;
        if count == 0 || size < count || rank >= size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "rank {rank} of {size} on this machine, and {count} mounts: each mount needs a rank"
                ),
            ));
        }
        let own = rank % count;
        Ok(RankPlacement {
            team,
            mount: PathBuf::from(mounts[own as usize]),
            here: (size - own).div_ceil(count),
        })
    }
}

/// FNV-1a of a team's number and the step's name, as the number of a team.
fn mixed(team: u32, step: &str) -> u32 {
    let bytes = team.to_le_bytes().into_iter().chain(step.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    ((hash ^ hash >> 32) as u32) & MAX_NUMBER
}

/// Slurm says how many tasks a node has only if all have the same number.
fn slurm(number: &impl Fn(&str) -> Option<u32>) -> Option<(u32, u32)> {
    let (tasks, nodes) = (number("SLURM_NTASKS")?, number("SLURM_NNODES")?);
    let even = nodes > 0 && tasks.is_multiple_of(nodes);
    Some((even.then(|| tasks / nodes)?, number("SLURM_LOCALID")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(told: &[(&str, &str)]) -> io::Result<RankPlacement> {
        RankPlacement::of(|name| {
            let found = told.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_string())
        })
    }

    #[test]
    fn ranks_are_dealt_out_to_the_mounts() {
        let place = |rank: &str| {
            place(&[
                (TEAM_VARIABLE, "7"),
                (MOUNTS_VARIABLE, "/a:/b:/c"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "8"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
            ])
        };
        let at = |rank: &str| {
            let place = place(rank).unwrap();
            assert_eq!(place.team, 7);
            (place.mount.display().to_string(), place.here)
        };
        assert_eq!(at("0"), ("/a".into(), 3));
        assert_eq!(at("4"), ("/b".into(), 3));
        assert_eq!(at("5"), ("/c".into(), 2));
        assert!(place("8").is_err());
    }

    #[test]
    fn each_step_of_a_job_is_a_team_of_its_own() {
        let base = [
            (TEAM_VARIABLE, "1"),
            (MOUNTS_VARIABLE, "/m"),
            ("MPI_LOCALNRANKS", "1"),
            ("MPI_LOCALRANKID", "0"),
        ];
        let team = |more: &[(&'static str, &'static str)]| {
            place(&[&base[..], more].concat()).unwrap().team
        };
        let teams = [
            team(&[]),
            team(&[("SLURM_STEP_ID", "0")]),
            team(&[("SLURM_STEP_ID", "1")]),
            team(&[("PMIX_NAMESPACE", "a.1")]),
        ];
        let distinct: std::collections::BTreeSet<u32> = teams.into();
        assert_eq!(distinct.len(), 4);
        assert!(teams[0] == 1 && teams.iter().all(|t| *t <= MAX_NUMBER));
    }

    #[test]
    fn every_launcher_is_understood_and_none_is_said() {
        let base = [(TEAM_VARIABLE, "1"), (MOUNTS_VARIABLE, "/m")];
        let with = |more: &[(&'static str, &'static str)]| place(&[&base[..], more].concat());
        let four = |more: &[(&'static str, &'static str)]| {
            assert_eq!(with(more).unwrap().here, 4);
        };
        four(&[("MPI_LOCALNRANKS", "4"), ("MPI_LOCALRANKID", "1")]);
        four(&[("FOREBAY_LOCAL_RANKS", "4"), ("FOREBAY_LOCAL_RANK", "0")]);
        four(&[
            ("SLURM_NTASKS", "12"),
            ("SLURM_NNODES", "3"),
            ("SLURM_LOCALID", "3"),
        ]);
        let uneven = [
            ("SLURM_NTASKS", "13"),
            ("SLURM_NNODES", "3"),
            ("SLURM_LOCALID", "3"),
        ];
        assert_eq!(with(&uneven).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(
            place(&[(MOUNTS_VARIABLE, "/m")])
                .unwrap_err()
                .to_string()
                .contains("forebay run")
        );
        let too_few = [
            (TEAM_VARIABLE, "1"),
            (MOUNTS_VARIABLE, "/a:/b"),
            ("MPI_LOCALNRANKS", "1"),
            ("MPI_LOCALRANKID", "0"),
        ];
        assert!(
            place(&too_few)
                .unwrap_err()
                .to_string()
                .contains("each mount needs")
        );
    }
}
