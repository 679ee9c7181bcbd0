//! The number of this server in its job, and its own store and mount point. Both are needed before MPI has started, so they
//! come from the launcher's environment variables.
use crate::failure::{Failure, Result};
use crate::mount_table;
use std::path::{Path, PathBuf};

/// Every launcher tells the rank in one of these.
const RANK_VARIABLES: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// How many processes of the job run on this machine: OpenMPI, MPICH.
const LOCAL_SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// See the head of this file.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerPaths {
    /// The number in the job; 0 for a process that nobody launched.
    pub rank: u32,
    /// The store, absolute.
    pub store: PathBuf,
    /// The mount point, absolute.
    pub point: PathBuf,
}

impl ServerPaths {
    /// The place of this process; `{rank}` in the paths becomes its number. `alike` says that all servers of the job were given
    /// these very paths: then those of one machine cannot do without it.
    ///
    /// # Errors
    /// Paths that several servers of this machine would share, or that lie in each other (2).
    pub fn of(store: &Path, mount: &Path, alike: bool) -> Result<ServerPaths> {
        let told = |name: &&str| std::env::var(name).ok()?.parse().ok();
        let rank = RANK_VARIABLES.iter().find_map(told).unwrap_or(0);
        let neighbours = LOCAL_SIZE_VARIABLES.iter().find_map(told).filter(|_| alike);
        ServerPaths::among(neighbours, rank, store, mount)
    }

    fn among(
        neighbours: Option<u32>,
        rank: u32,
        store: &Path,
        mount: &Path,
    ) -> Result<ServerPaths> {
        for (flag, path) in [("--store", store), ("--mount", mount)] {
            if let Some(n) =
                neighbours.filter(|n| *n > 1 && !path.to_string_lossy().contains("{rank}"))
            {
                return Err(Failure::usage(
                    format!(
                        "{flag}: {n} servers on this machine would share {}",
                        path.display()
                    ),
                    "write {rank} in it, which becomes the number of the server, or start one server on each machine",
                ));
            }
        }
        let own = |path: &Path| {
            let text = path.to_string_lossy();
            mount_table::absolute(Path::new(&text.replace("{rank}", &rank.to_string())))
        };
        let (store, point) = (own(store)?, own(mount)?);
        crate::spec::check_mount_outside_store(&store, &point)?;
        crate::spec::outside_stores(&store)?;
        Ok(ServerPaths { rank, store, point })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_of_a_machine_has_its_own_store_and_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("s2")).unwrap();
        let place = |n, store: &str, mount: &str| {
            ServerPaths::among(n, 2, &base.join(store), &base.join(mount))
        };
        let own = place(Some(3), "s{rank}", "m{rank}").unwrap();
        assert_eq!((own.store, own.point), (base.join("s2"), base.join("m2")));
        for n in [None, Some(1)] {
            assert_eq!(place(n, "s", "m").unwrap().store, base.join("s"));
        }
        for (store, mount, word) in [
            ("s", "m{rank}", "--store: 3 servers"),
            ("s{rank}", "m", "--mount: 3 servers"),
            ("s{rank}", "s{rank}/m", "lie in each other"),
        ] {
            let failure = place(Some(3), store, mount).unwrap_err();
            assert!(failure.text.contains(word), "{failure}");
            assert_eq!(failure.code, crate::failure::USAGE);
        }
    }
}
