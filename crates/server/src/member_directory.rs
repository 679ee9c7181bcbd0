//! The directory of one member that runs in a process of its own, and how all members of a new service agree on one id.
//!
//! ```text
//! STORE/superblock   of member K
//! STORE/lock         held by the process that runs it
//! STORE/kv/          its key-value store
//! STORE/data/        its segment files
//! ```
//!
//! It is what `service_directory` calls `STORE/node-K`: a store can be served either way.
//!
//! # Making a service
//! All members tell the state of their superblock: none, being made, or ready, and an id. If any is ready, its id is the
//! service's; all ready ones must have the same, and one that has nothing is refused, for its files would be missing. If none
//! is ready, the service is new: member 0's id holds. Each writes its superblock "being made", all wait for all, and each
//! writes "ready". After a crash before any is ready nothing is stored yet, and the next start makes the service again; after a
//! later one, those that are not ready have the right id, so they become ready at the next start.
use crate::service_directory::{LockedDirectory, open_directory, refuse};
use crate::superblock::{StoreRole, Superblock, Uuid, random_id};
use crate::{Error, Member, MemberBarrier, Result};
use forebay_storage::Io;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A member's locked directory.
pub struct MemberDirectory {
    dir: PathBuf,
    pub(crate) opened: LockedDirectory,
}

/// The state of a member's superblock, as the members exchange it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SuperblockState {
    /// There is none; this id would be the service's if this were member 0 of a new one.
    Nothing(Uuid),
    /// Cut off while being made.
    BeingMade(Uuid),
    /// Of this service.
    Ready(Uuid),
}

impl MemberDirectory {
    /// Locks the directory and looks what it is; makes it if it is missing or empty.
    ///
    /// # Errors
    /// `Refused`, each with the next step: in use, of another user, foreign, newer, damaged, or of a whole service.
    pub fn open(io: &dyn Io, dir: &Path) -> Result<MemberDirectory> {
        let opened = open_directory(io, dir)?;
        match &opened.superblock {
            Some(block) if block.role == StoreRole::Service => {
                return refuse(format!(
                    "{} is the store of a whole service in one process; use `forebay mount` or embedded servers for it, or name the store of one member",
                    dir.display()
                ));
            }
            _ => {}
        }
        Ok(MemberDirectory {
            dir: dir.to_path_buf(),
            opened,
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of the member and how many its service has; `None` for a new store.
    pub fn member(&self) -> Option<(Member, u16)> {
        match self.opened.superblock.as_ref()?.role {
            StoreRole::Member(member) => Some((member, self.opened.superblock.as_ref()?.members)),
            StoreRole::Service => None,
        }
    }

    /// Agrees with all other members on the service, and makes this the store of the barrier's member.
    ///
    /// # Errors
    /// `Refused`: stores that do not belong together, or cannot be written.
    pub fn agree_on_service(
        &mut self,
        io: &dyn Io,
        barrier: &MemberBarrier,
        limit: Duration,
    ) -> Result<()> {
        let own = match &self.opened.superblock {
            None => SuperblockState::Nothing(random_id()),
            Some(block) if block.ready => SuperblockState::Ready(block.service),
            Some(block) => SuperblockState::BeingMade(block.service),
        };
        let encoded = postcard::to_stdvec(&own).map_err(|e| {
            let dir = self.dir.display();
            Error::Refused(format!(
                "{dir}: its state cannot be encoded for the other members: {e}; report this"
            ))
        })?;
        let mut all = Vec::new();
        let states = barrier.exchange(encoded, limit)?;
        for (member, state) in states.into_iter().enumerate() {
            match postcard::from_bytes::<SuperblockState>(&state) {
                Ok(state) => all.push(state),
                Err(_) => {
                    return refuse(format!(
                        "member {member} does not say what its store is; run the same release on all nodes"
                    ));
                }
            }
        }
        // All refuse alike; one that ended at once would leave the others with "it has ended".
        let service = agree(&all).inspect_err(|_| barrier.exchange_at_stop(limit))?;
        if matches!(own, SuperblockState::Ready(_)) {
            // The others may have to finish.
            barrier.exchange("", limit)?;
            return Ok(());
        }
        let role = StoreRole::Member(barrier.member());
        let mut block = Superblock::new(role, barrier.members(), service);
        block.ready = false;
        block.write(io, &self.dir)?;
        barrier.exchange("", limit)?;
        block.ready = true;
        block.write(io, &self.dir)?;
        self.opened.superblock = Some(block);
        Ok(())
    }
}

/// The id of the service, the same on every member.
fn agree(all: &[SuperblockState]) -> Result<Uuid> {
    let ready = |(member, state): (usize, &SuperblockState)| match state {
        SuperblockState::Ready(id) => Some((member, *id)),
        _ => None,
    };
    let Some((first, id)) = all.iter().enumerate().find_map(ready) else {
        return match all.first() {
            Some(
                SuperblockState::Nothing(id)
                | SuperblockState::BeingMade(id)
                | SuperblockState::Ready(id),
            ) => Ok(*id),
            None => refuse("a service needs at least one member".into()),
        };
    };
    for (member, state) in all.iter().enumerate() {
        match state {
            SuperblockState::Ready(other) | SuperblockState::BeingMade(other) if *other == id => {}
            SuperblockState::Ready(_) => {
                return refuse(format!(
                    "the stores of member {first} and member {member} belong to different services; start each service with its own stores"
                ));
            }
            SuperblockState::Nothing(_) | SuperblockState::BeingMade(_) => {
                return refuse(format!(
                    "the store of member {member} is missing: member {first} has one of a service that was used before; put it back, or start with new directories on all nodes"
                ));
            }
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::local;
    use forebay_storage::OsIo;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(30);

    /// Founds a service of these stores; what each member got.
    fn found(dirs: &[PathBuf]) -> Vec<Result<Uuid>> {
        let ends = local::fabric(dirs.len() as u32);
        let barriers: Vec<_> = ends
            .into_iter()
            .map(|end| MemberBarrier::new(end))
            .collect();
        std::thread::scope(|scope| {
            let start = |(dir, barrier): (&PathBuf, MemberBarrier)| {
                let dir = dir.clone();
                scope.spawn(move || {
                    let mut home = MemberDirectory::open(&OsIo, &dir)?;
                    home.agree_on_service(&OsIo, &barrier, LONG)?;
                    // The others still ask for the last round.
                    barrier.exchange_at_stop(LONG);
                    Ok(home.opened.superblock.unwrap().service)
                })
            };
            let threads: Vec<_> = dirs.iter().zip(barriers).map(start).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn dirs(temp: &tempfile::TempDir, n: usize) -> Vec<PathBuf> {
        (0..n).map(|k| temp.path().join(k.to_string())).collect()
    }

    #[test]
    fn new_stores_get_one_id_and_keep_it_and_their_numbers() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = dirs(&temp, 3);
        let ids: Vec<Uuid> = found(&dirs).into_iter().map(|id| id.unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]));
        let again: Vec<Uuid> = found(&dirs).into_iter().map(|id| id.unwrap()).collect();
        assert_eq!(ids, again);
        for (k, dir) in dirs.iter().enumerate() {
            let home = MemberDirectory::open(&OsIo, dir).unwrap();
            assert_eq!(home.member(), Some((k as Member, 3)));
            assert!(MemberDirectory::open(&OsIo, dir).is_err(), "locked");
        }
    }

    #[test]
    fn a_lost_store_is_missed_and_one_cut_off_is_finished() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = dirs(&temp, 2);
        let id = found(&dirs)[0].as_ref().copied().unwrap();
        let mut block = Superblock::read(&OsIo, &dirs[1]).unwrap().unwrap();
        block.ready = false;
        block.write(&OsIo, &dirs[1]).unwrap();
        assert!(found(&dirs).iter().all(|got| *got.as_ref().unwrap() == id));
        std::fs::remove_dir_all(&dirs[1]).unwrap();
        for got in found(&dirs) {
            let text = got.unwrap_err().to_string();
            assert!(text.contains("the store of member 1 is missing"), "{text}");
        }
        assert!(!dirs[1].join(crate::superblock::FILE_NAME).exists());
    }

    #[test]
    fn a_service_directory_and_a_foreign_one_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("s");
        drop(crate::service_directory::ServiceDirectory::open(&OsIo, &dir, 2).unwrap());
        let refused = |dir: &Path| MemberDirectory::open(&OsIo, dir).err().unwrap().to_string();
        assert!(refused(&dir).contains("whole service"));
        let home = MemberDirectory::open(&OsIo, &dir.join("node-1")).unwrap();
        assert_eq!(home.member(), Some((1, 2)));
        let other = temp.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("thesis.tex"), "x").unwrap();
        assert!(refused(&other).contains("thesis.tex"));
        assert!(!other.join("lock").exists());
    }

    fn states() -> impl Strategy<Value = SuperblockState> {
        (0..3u8, 0..2u8).prop_map(|(kind, id)| match kind {
            0 => SuperblockState::Nothing([id; 16]),
            1 => SuperblockState::BeingMade([id; 16]),
            _ => SuperblockState::Ready([id; 16]),
        })
    }

    proptest! {
        #[test]
        fn what_is_ready_is_never_given_another_id(all in prop::collection::vec(states(), 1..6)) {
            if let Ok(id) = agree(&all) {
                for state in &all {
                    prop_assert!(!matches!(state, SuperblockState::Ready(other) if *other != id));
                }
                let used = all.iter().any(|s| matches!(s, SuperblockState::Ready(_)));
                let empty = all.iter().any(|s| matches!(s, SuperblockState::Nothing(_)));
                prop_assert!(!(used && empty));
            }
        }
    }
}
