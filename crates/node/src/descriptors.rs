//! Divides the file descriptors of a server process among their users when it starts.
//!
//! 1. The process itself, each member and each mount get what they always need.
//! 2. Connections to the control socket, to the metrics and to the links have fixed shares, so that clients cannot take descriptors
//!    that writing needs.
//! 3. Three quarters of the rest keep segments and tables open (`forebay_storage::PooledIo`).
//! 4. The last quarter is for files that are open briefly, for example those of a stage job.
use crate::failure::{Failure, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit is never raised beyond: no service needs them, and programs close all that they might have, one by one.
const MAX_LIMIT: u64 = 1 << 16;
/// Streams, log, sockets, event sources and locks of a process.
const PROCESS_DESCRIPTORS: u64 = 16;
/// What MPI takes: its own event sources, and sockets to the other processes.
const MPI_DESCRIPTORS: u64 = 64;
/// A member: lock, manifest, log and those before it that are not on disk yet, segments being filled, tables being written.
const MEMBER_DESCRIPTORS: u64 = 12;
/// A service cannot work with fewer open segments and tables.
const MIN_OPEN_FILES: u64 = 4;
/// Connections to the links of a process at most: each has a thread.
const MAX_LINK_CONNECTIONS: usize = 1024;
/// With fewer connections no program could do much.
const MIN_LINK_CONNECTIONS: usize = 8;
/// Descriptors of files kept open for reading, for each member at most.
const MAX_OPEN_FILES_PER_MEMBER: u64 = 256;

/// Raises the limit to what the process may have. Without it, the first services to run out would be ordinary ones.
pub fn raise_limit() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    if now.current.is_none_or(|current| current >= most) {
        return;
    }
    let wanted = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!("the limit on open files stays at {:?}: {e}", now.current);
    }
}

/// Connections that the control socket serves at once.
pub fn connections() -> usize {
    share(limit(), 32)
}

/// Connections that metrics are served on at once.
pub fn metrics_connections() -> usize {
    share(limit(), 8)
}

/// Connections that the link of each of `members` members of this process serves at once; 0: there are too few descriptors.
pub fn link_connections(members: usize) -> usize {
    link_share(limit()) / members.max(1)
}

/// Connections to all links. Each takes two descriptors: its socket, and the memory or the process of its client. Where few files
/// may be open there are none: the mounts come first.
fn link_share(limit: u64) -> usize {
    let share =
        usize::try_from(limit / 32).map_or(MAX_LINK_CONNECTIONS, |n| n.min(MAX_LINK_CONNECTIONS));
    if share < MIN_LINK_CONNECTIONS {
        0
    } else {
        share
    }
}

fn share(limit: u64, most: usize) -> usize {
    usize::try_from(limit / 16).map_or(most, |n| n.clamp(2, most))
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Number of descriptors of files that `members` members of this process may keep open for reading, with `threads` threads for each mount.
///
/// # Errors
/// If the limit is too low for the members.
pub fn open_files(members: usize, threads: usize, mpi: bool) -> Result<usize> {
    open_files_of(limit(), members as u64, threads as u64, mpi)
}

fn open_files_of(limit: u64, members: u64, threads: u64, mpi: bool) -> Result<usize> {
    let fits = |limit: u64| {
        let connections = share(limit, 32) + share(limit, 8);
        let needed = PROCESS_DESCRIPTORS
            + connections as u64
            + 2 * link_share(limit) as u64
            + u64::from(mpi) * MPI_DESCRIPTORS
            + members * (MEMBER_DESCRIPTORS + threads);
        let kept = (limit.saturating_sub(needed) / 4 * 3).min(members * MAX_OPEN_FILES_PER_MEMBER);
        (kept >= MIN_OPEN_FILES).then_some(kept)
    };
    if let Some(kept) = fits(limit) {
        return Ok(usize::try_from(kept).unwrap_or(usize::MAX));
    }
    let enough = (limit..=u64::MAX).find(|limit| fits(*limit).is_some());
    Err(Failure::new(
        format!(
            "a server process of {} needs at least {} open files, and may have {limit}",
            crate::units::counted(members, "node"),
            enough.unwrap_or(u64::MAX)
        ),
        "raise the limit (`ulimit -n`; the hard one counts), or have fewer nodes in one process",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_stay_within_the_limit() {
        for mpi in [false, true] {
            for (members, threads) in [(1, 1), (1, 4), (1, 8), (4, 8), (64, 8)] {
                for limit in (0..40_000).step_by(7).chain([1 << 16, u64::MAX]) {
                    let Ok(open_files) = open_files_of(limit, members, threads, mpi) else {
                        continue;
                    };
                    let connections = (share(limit, 32) + share(limit, 8)) as u64;
                    let all = open_files as u64
                        + connections
                        + 2 * link_share(limit) as u64
                        + members * (MEMBER_DESCRIPTORS + threads)
                        + PROCESS_DESCRIPTORS;
                    assert!(
                        all < limit && open_files as u64 >= MIN_OPEN_FILES,
                        "{members} of {limit}"
                    );
                    assert!(open_files as u64 <= members * MAX_OPEN_FILES_PER_MEMBER);
                }
            }
        }
    }

    #[test]
    fn one_node_runs_with_few_and_many_nodes_say_how_many_they_need() {
        assert!(open_files_of(48, 1, 4, false).is_ok());
        let refused = open_files_of(48, 4, 4, false).unwrap_err();
        assert!(
            refused.text.contains("4 nodes") && refused.text.contains("48"),
            "{refused}"
        );
        let needs: u64 = refused
            .text
            .split(' ')
            .find_map(|w| w.parse().ok().filter(|n| *n > 48))
            .unwrap();
        assert!(open_files_of(needs, 4, 4, false).is_ok());
        assert_eq!(open_files_of(20_000, 1, 8, false).unwrap(), 256);
    }
}
