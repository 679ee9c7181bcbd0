//! The stores of a service that does not run, opened to look at: one directory of a whole service, or those of all its members.
//!
//! Invariants: makes no directory and no store; all directories are locked before anything in them is believed; what is opened
//! is all of one service, each member once.
use crate::repair_marker::{NEW_RECORDS, refuse_if_repairing};
use crate::service_directory::{ServiceDirectory, lock_dir, refuse};
use crate::superblock::{FoundSuperblock, StoreRole, Superblock, Uuid, random_id};
use crate::{Member, Result, keys};
use forebay_index::ExtentIndex;
use forebay_index::Settings;
use forebay_storage::{Io, Options, Store};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Members of a service whose directories are looked for after one that is missing, if no superblock tells how many there are.
const MAX_MEMBERS_SOUGHT: u16 = 64;

/// Opens (and locks) the stores in `dirs`, in any order.
///
/// # Errors
/// `Refused`, each with the next step: in use, no store, stores that are not all those of one service.
pub fn open(io: &dyn Io, dirs: &[PathBuf]) -> Result<ServiceDirectory> {
    let mut members = Vec::new();
    for dir in dirs {
        let block = match dir.is_dir() {
            true => Superblock::read(io, dir)?,
            false => None,
        };
        let Some(block) = block else {
            return refuse(format!(
                "{} is not the store of a Forebay service; name the directory given to `forebay mount` or `--store`",
                dir.display()
            ));
        };
        if !block.ready {
            return refuse(format!(
                "{} was never finished; start the service once, then it is",
                dir.display()
            ));
        }
        match (block.role, dirs) {
            (StoreRole::Service, [_]) => return ServiceDirectory::open(io, dir, block.members),
            (StoreRole::Service, _) => {
                return refuse(format!(
                    "{} is the store of a whole service in one process; name it alone",
                    dir.display()
                ));
            }
            (StoreRole::Member(member), _) => members.push((member, dir, block)),
        }
    }
    layout_of_members(io, &members)
}

/// The stores of members that run in processes of their own.
fn layout_of_members(
    io: &dyn Io,
    found: &[(Member, &PathBuf, Superblock)],
) -> Result<ServiceDirectory> {
    let Some((_, first, block)) = found.first() else {
        return refuse("no store is named; name the store of a service".into());
    };
    if let Some((_, other, _)) = found.iter().find(|(_, _, b)| b.service != block.service) {
        return refuse(format!(
            "{} and {} belong to different services; name the stores of one",
            first.display(),
            other.display()
        ));
    }
    let mut nodes: Vec<Option<PathBuf>> = vec![None; usize::from(block.members)];
    for (member, dir, _) in found {
        match nodes.get_mut(usize::from(*member)) {
            Some(place @ None) => *place = Some((*dir).clone()),
            Some(Some(other)) => {
                return refuse(format!(
                    "{} and {} are both the store of member {member}; name each store once, and no copies",
                    other.display(),
                    dir.display()
                ));
            }
            None => {
                return refuse(format!(
                    "{} is the store of member {member} of a service of {}; put the right store there",
                    dir.display(),
                    block.members
                ));
            }
        }
    }
    if let Some(missing) = nodes.iter().position(Option::is_none) {
        return refuse(missing_store(first, block, missing, found.len()));
    }
    let nodes: Vec<PathBuf> = nodes.into_iter().flatten().collect();
    let mut locks = Vec::new();
    let mut repaired = Vec::new();
    for node in &nodes {
        locks.extend(lock_dir(node)?);
        refuse_if_repairing(io, node)?;
        repaired.push(Superblock::read_and_repair(io, node)?.1);
    }
    Ok(ServiceDirectory {
        nodes,
        locks,
        repaired,
    })
}

/// Stores of a service of which some may be damaged or missing.
pub struct DamagedStores {
    /// Where each member's store lies, if it is there.
    pub nodes: Vec<Option<PathBuf>>,
    /// Held until dropped.
    pub locks: Vec<File>,
    /// What is wrong with the directories.
    pub damage: Vec<String>,
    /// Superblocks of which no copy can be read.
    pub lost: Vec<LostSuperblock>,
}

/// A superblock of which no copy can be read, and what it said as far as that matters.
pub struct LostSuperblock {
    /// Where it lies.
    pub dir: PathBuf,
    /// One that can take its place.
    pub block: Superblock,
}

/// A directory, and its superblock if a copy of it can be read.
type OpenedDirectory = (PathBuf, Option<Superblock>);

/// Opens (and locks) what there is of the stores in `dirs`, in any order. A superblock that cannot be read is done without if the others,
/// or the directory's own entries, tell what it said.
///
/// # Errors
/// `Refused`: in use, no store, of another version, stores of several services, or too little is known of them.
pub fn open_damaged(io: &Arc<dyn Io>, dirs: &[PathBuf]) -> Result<DamagedStores> {
    let mut damage = Vec::new();
    let mut blocks = Vec::new();
    for dir in dirs {
        if !dir.is_dir() {
            return refuse(format!(
                "{} is no directory; put the store back, or name those that there are to `forebay mount --salvage`",
                dir.display()
            ));
        }
        blocks.push((dir.clone(), read_superblock(&**io, dir, &mut damage)?));
    }
    let service = blocks.iter().position(|(dir, block)| match block {
        Some(block) => block.role == StoreRole::Service,
        None => dir.join("node-0").is_dir(),
    });
    let mut locks = Vec::new();
    let (nodes, lost) = match service {
        Some(_) if dirs.len() > 1 => {
            return refuse("the store of a whole service is among several; name it alone".into());
        }
        Some(at) => {
            locks.extend(lock_dir(&blocks[at].0)?);
            stores_of_service(&**io, &blocks[at], &mut damage)?
        }
        None => stores_by_member(io, &blocks)?,
    };
    for (member, node) in nodes.iter().enumerate() {
        match node {
            Some(node) => locks.extend(lock_dir(node)?),
            None => damage.push(format!("the store of member {member} is missing")),
        }
    }
    Ok(DamagedStores {
        nodes,
        locks,
        damage,
        lost,
    })
}

/// The superblock of a directory, if a copy can be read.
fn read_superblock(
    io: &dyn Io,
    dir: &Path,
    damage: &mut Vec<String>,
) -> Result<Option<Superblock>> {
    match Superblock::find(io, dir)? {
        FoundSuperblock::Whole(block) => return Ok(Some(block)),
        FoundSuperblock::Missing => {
            damage.push(format!("{}: there is no superblock", dir.display()))
        }
        FoundSuperblock::Damaged(e) => damage.push(format!("{e}; so is its copy")),
    }
    Ok(None)
}

/// The stores of a whole service's directory, and superblocks that cannot be read.
fn stores_of_service(
    io: &dyn Io,
    (dir, block): &OpenedDirectory,
    damage: &mut Vec<String>,
) -> Result<(Vec<Option<PathBuf>>, Vec<LostSuperblock>)> {
    let node = |k: u16| dir.join(format!("node-{k}"));
    let mut blocks = Vec::new();
    // As many as there are if nobody knows; the last ones may be missing.
    let mut members = block.as_ref().map_or(u16::MAX, |b| b.members);
    let mut k = 0;
    while k < members {
        let path = node(k);
        if path.is_dir() {
            let found = read_superblock(io, &path, damage)?;
            if let (None, Some(found)) = (block, &found) {
                members = found.members;
            }
            blocks.push(Some((path, found)));
        } else if members == u16::MAX && !((k..MAX_MEMBERS_SOUGHT).any(|k| node(k).is_dir())) {
            members = k;
        } else {
            blocks.push(None);
        }
        k += 1;
    }
    let known = block.as_ref().map(|b| b.service);
    let member_blocks = blocks.iter().flatten().filter_map(|(_, b)| b.as_ref());
    let service = known
        .or_else(|| member_blocks.map(|b| b.service).next())
        .unwrap_or_else(random_id);
    let mut lost = Vec::new();
    if block.is_none() {
        let mut block = Superblock::new(StoreRole::Service, members, service);
        block.ready = true;
        let dir = dir.clone();
        lost.push(LostSuperblock { dir, block });
    }
    for (member, opened) in (0..).zip(&blocks) {
        let role = StoreRole::Member(member);
        match opened {
            Some((dir, Some(found)))
                if found.service != service || found.role != role || found.members != members =>
            {
                return refuse(format!(
                    "{} is not the store of member {member} of {members} of this service; put the right store there",
                    dir.display()
                ));
            }
            Some((dir, None)) => lost.push(LostSuperblock {
                dir: dir.clone(),
                block: Superblock::new(role, members, service),
            }),
            _ => {}
        }
    }
    let nodes = blocks.into_iter().map(|b| b.map(|(dir, _)| dir));
    Ok((nodes.collect(), lost))
}

/// Which member's each directory is, and superblocks that cannot be read.
fn stores_by_member(
    io: &Arc<dyn Io>,
    blocks: &[OpenedDirectory],
) -> Result<(Vec<Option<PathBuf>>, Vec<LostSuperblock>)> {
    let Some(known) = blocks.iter().find_map(|(_, block)| block.as_ref()) else {
        return refuse(
            "no superblock of these stores can be read, so it is not known how many members their service has; put one back from a copy. \
             The store of a service of one member can be moved to S/node-0, with S a new directory: then name S"
                .into(),
        );
    };
    let mut nodes: Vec<Option<PathBuf>> = vec![None; usize::from(known.members)];
    for (dir, block) in blocks {
        let Some(block) = block else { continue };
        let place = match block.role {
            StoreRole::Member(member) if block.service == known.service => {
                nodes.get_mut(usize::from(member))
            }
            _ => None,
        };
        match place {
            Some(place @ None) => *place = Some(dir.clone()),
            _ => {
                return refuse(format!(
                    "{} is no store of the same service, or named twice; name the stores of one",
                    dir.display()
                ));
            }
        }
    }
    let unknown: Vec<&PathBuf> = blocks
        .iter()
        .filter(|(_, block)| block.is_none())
        .map(|(dir, _)| dir)
        .collect();
    let mut lost = Vec::new();
    for dir in &unknown {
        let free: Vec<usize> = (0..nodes.len()).filter(|k| nodes[*k].is_none()).collect();
        let member = match (member_of_records(io, dir), &free[..]) {
            (Some(member), _) => usize::from(member),
            (None, [k]) if unknown.len() == 1 => *k,
            _ => {
                return refuse(format!(
                    "{}: its superblock cannot be read, and its records do not tell whose store it is; put the superblock back from a copy",
                    dir.display()
                ));
            }
        };
        if !free.contains(&member) {
            return refuse(format!(
                "{}: its superblock cannot be read, and by its records it is the store of member {member}, which another one is too, or of \
                 another service; name the stores of one service, each once",
                dir.display()
            ));
        }
        nodes[member] = Some((*dir).clone());
        lost.push(LostSuperblock {
            dir: (*dir).clone(),
            block: Superblock::new(
                StoreRole::Member(member as Member),
                known.members,
                known.service,
            ),
        });
    }
    Ok((nodes, lost))
}

/// As a store is opened to look at it, or to write it anew: without threads of its own.
pub(crate) fn without_threads() -> Options {
    Options {
        background: false,
        ..Options::default()
    }
}

/// The index of a store, without threads of its own.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn open_index(store: &Store) -> Result<ExtentIndex> {
    let settings = Settings {
        background: false,
        ..Settings::default()
    };
    Ok(ExtentIndex::open(store, settings)?)
}

/// Whose store it is by its inodes, which lie with their member; `None` if there are none that can be read.
fn member_of_records(io: &Arc<dyn Io>, dir: &Path) -> Option<Member> {
    let kv = [NEW_RECORDS, "kv"].map(|name| dir.join(name));
    let opened = kv
        .into_iter()
        .filter_map(|kv| Store::salvage(io.clone(), &kv, without_threads()).ok());
    let owner = |store: Store| {
        let mut inodes = keys::all(&store, keys::INODES);
        let (key, _) = inodes.find_map(|item| item.ok())?;
        Some(keys::fid_of(&key)?.owner())
    };
    let mut owners = opened.filter_map(owner);
    owners.next()
}

fn missing_store(first: &Path, block: &Superblock, missing: usize, named: usize) -> String {
    let above = first
        .parent()
        .and_then(|dir| same_service(dir, block.service));
    match above {
        Some(dir) => format!(
            "{} is the store of one member; name the directory above it, {}",
            first.display(),
            dir.display()
        ),
        None => format!(
            "{named} of {} stores of this service are named, and member {missing}'s is not among them; name all, \
             or one path with {{rank}} in it as for `forebay serve`",
            block.members
        ),
    }
}

/// The directory, if it is that of the whole service.
fn same_service(dir: &Path, service: Uuid) -> Option<&Path> {
    let block = Superblock::read(&forebay_storage::OsIo, dir).ok()??;
    (block.role == StoreRole::Service && block.service == service).then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::superblock::random_id;
    use forebay_storage::OsIo;

    fn refused(dirs: &[PathBuf]) -> String {
        match open(&OsIo, dirs) {
            Err(Error::Refused(text)) => text,
            Err(other) => panic!("not a refusal: {other}"),
            Ok(_) => panic!("opened"),
        }
    }

    fn stores(temp: &tempfile::TempDir, name: &str, members: u16) -> Vec<PathBuf> {
        let service = random_id();
        let make = |member| {
            let dir = temp.path().join(format!("{name}{member}"));
            std::fs::create_dir(&dir).unwrap();
            let block = Superblock::new(StoreRole::Member(member), members, service);
            block.write(&OsIo, &dir).unwrap();
            dir
        };
        (0..members).map(make).collect()
    }

    #[test]
    fn all_stores_of_a_service_are_opened_in_any_order_and_locked() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = stores(&temp, "a", 3);
        let order = [2, 0, 1].map(|k: usize| dirs[k].clone());
        let layout = open(&OsIo, &order).unwrap();
        assert_eq!(layout.nodes, dirs);
        assert!(refused(&dirs).contains("in use"));
    }

    #[test]
    fn stores_that_are_not_all_of_one_service_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (a, b) = (stores(&temp, "a", 3), stores(&temp, "b", 3));
        let some = refused(&a[..2]);
        assert!(
            some.contains("2 of 3") && some.contains("member 2's"),
            "{some}"
        );
        let mixed = [a[0].clone(), b[1].clone(), a[2].clone()];
        assert!(refused(&mixed).contains("different services"));
        let twice = [a[0].clone(), a[1].clone(), a[1].clone()];
        assert!(refused(&twice).contains("both the store of member 1"));
        assert!(refused(&[temp.path().into()]).contains("not the store"));
        let whole = temp.path().join("s");
        drop(ServiceDirectory::open(&OsIo, &whole, 2).unwrap());
        assert!(refused(&[whole.join("node-0")]).contains("directory above it"));
        assert!(refused(&[whole.clone(), a[0].clone()]).contains("name it alone"));
        assert_eq!(open(&OsIo, &[whole]).unwrap().nodes.len(), 2);
    }
}
