//! The stores of a service that does not run, opened to look at: one directory of a whole service, or those of all its members.
//!
//! Invariants: makes no directory and no store; all directories are locked before anything in them is believed; what is opened
//! is all of one service, each member once.
use crate::layout::{Layout, lock, refuse};
use crate::superblock::{Id, Role, Superblock};
use crate::{Member, Result};
use forebay_storage::Io;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Opens (and locks) the stores in `dirs`, in any order.
///
/// # Errors
/// `Refused`, each with the next step: in use, no store, stores that are not all those of one service.
pub fn open(io: &dyn Io, dirs: &[PathBuf]) -> Result<Layout> {
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
            (Role::Service, [_]) => return Layout::open(io, dir, block.members),
            (Role::Service, _) => {
                return refuse(format!(
                    "{} is the store of a whole service in one process; name it alone",
                    dir.display()
                ));
            }
            (Role::Member(member), _) => members.push((member, dir, block)),
        }
    }
    of_members(io, &members)
}

/// The stores of members that run in processes of their own.
fn of_members(io: &dyn Io, found: &[(Member, &PathBuf, Superblock)]) -> Result<Layout> {
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
        locks.extend(lock(node)?);
        repaired.extend(Superblock::read_and_repair(io, node)?.1);
    }
    Ok(Layout {
        nodes,
        locks,
        repaired,
    })
}

/// Stores of a service of which some may be damaged or missing.
pub struct Damaged {
    /// Where each member's store lies, if it is there.
    pub nodes: Vec<Option<PathBuf>>,
    /// Held until dropped.
    pub locks: Vec<File>,
    /// What is wrong with the directories.
    pub damage: Vec<String>,
}

/// Opens (and locks) what there is of the stores in `dirs`, in any order. A superblock that cannot be read is done without if the others,
/// or the directory's own entries, tell what it said.
///
/// # Errors
/// `Refused`: in use, no store, stores of several services, or too little is known of them.
pub fn open_damaged(io: &dyn Io, dirs: &[PathBuf]) -> Result<Damaged> {
    let mut damage = Vec::new();
    let mut blocks = Vec::new();
    for dir in dirs {
        if !dir.is_dir() {
            return refuse(format!(
                "{} is no directory; name the stores that there are",
                dir.display()
            ));
        }
        let block = match Superblock::read(io, dir) {
            Ok(Some(block)) => Some(block),
            Ok(None) => {
                damage.push(format!("{}: there is no superblock", dir.display()));
                None
            }
            Err(e) => {
                damage.push(e.to_string());
                None
            }
        };
        blocks.push((dir, block));
    }
    let service = blocks.iter().position(|(dir, block)| match block {
        Some(block) => block.role == Role::Service,
        None => dir.join("node-0").is_dir(),
    });
    let mut locks = Vec::new();
    let nodes = match service {
        Some(_) if dirs.len() > 1 => {
            return refuse("the store of a whole service is among several; name it alone".into());
        }
        Some(_) => {
            let (dir, block) = &blocks[0];
            locks.extend(lock(dir)?);
            let members = match block {
                Some(block) => block.members,
                // As many as there are; the last ones may be missing.
                None => (0..u16::MAX)
                    .take_while(|k| dir.join(format!("node-{k}")).is_dir())
                    .count() as u16,
            };
            let node = |k: u16| Some(dir.join(format!("node-{k}"))).filter(|node| node.is_dir());
            (0..members).map(node).collect::<Vec<_>>()
        }
        None => places(&blocks)?,
    };
    for (member, node) in nodes.iter().enumerate() {
        match node {
            Some(node) => locks.extend(lock(node)?),
            None => damage.push(format!("the store of member {member} is missing")),
        }
    }
    Ok(Damaged {
        nodes,
        locks,
        damage,
    })
}

/// Which member's each directory is.
fn places(blocks: &[(&PathBuf, Option<Superblock>)]) -> Result<Vec<Option<PathBuf>>> {
    let Some(known) = blocks.iter().find_map(|(_, block)| block.as_ref()) else {
        return refuse("no superblock of these stores can be read, so it is not known whose they are; put one back from a copy".into());
    };
    let mut nodes: Vec<Option<PathBuf>> = vec![None; usize::from(known.members)];
    for (dir, block) in blocks {
        let Some(block) = block else { continue };
        let place = match block.role {
            Role::Member(member) if block.service == known.service => {
                nodes.get_mut(usize::from(member))
            }
            _ => None,
        };
        match place {
            Some(place @ None) => *place = Some((*dir).clone()),
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
        .map(|(dir, _)| *dir)
        .collect();
    let free: Vec<usize> = (0..nodes.len()).filter(|k| nodes[*k].is_none()).collect();
    match (&unknown[..], &free[..]) {
        ([], _) => {}
        ([dir], [k]) => nodes[*k] = Some((*dir).clone()),
        _ => {
            return refuse(format!(
                "{} superblocks cannot be read, and it is not known whose stores these are; put all but one back from copies",
                unknown.len()
            ));
        }
    }
    Ok(nodes)
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
fn same_service(dir: &Path, service: Id) -> Option<&Path> {
    let block = Superblock::read(&forebay_storage::OsIo, dir).ok()??;
    (block.role == Role::Service && block.service == service).then_some(dir)
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
            let block = Superblock::new(Role::Member(member), members, service);
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
        drop(Layout::open(&OsIo, &whole, 2).unwrap());
        assert!(refused(&[whole.join("node-0")]).contains("directory above it"));
        assert!(refused(&[whole.clone(), a[0].clone()]).contains("name it alone"));
        assert_eq!(open(&OsIo, &[whole]).unwrap().nodes.len(), 2);
    }
}
