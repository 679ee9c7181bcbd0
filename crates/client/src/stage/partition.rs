//! Which node copies what. Every process computes the same from what it sees.
use super::hash::Hash;
use super::task::Task;
use std::collections::BTreeMap;

/// The node of a task: the member that holds most of its bytes; of several that hold as much, and where nobody holds any,
/// one by hash, so that equal work is spread evenly.
pub fn node(task: &Task, held: &BTreeMap<u16, u64>, nodes: u16) -> u16 {
    let most = held.values().copied().max().unwrap_or(0);
    let best = |n: &u16| most == 0 || held.get(n).is_some_and(|bytes| *bytes == most);
    let candidates: Vec<u16> = (0..nodes).filter(best).collect();
    // Neighbouring pieces go to neighbouring nodes.
    let piece = task.piece.as_ref().map_or(0, |piece| piece.index);
    let hash = (Hash::new(2).number(task.key).end() >> 1).wrapping_add(piece);
    match candidates.len() {
        0 => 0,
        n => candidates[(hash % n as u64) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::super::task::Folder;
    use super::super::tree::{Place, Stat, What};
    use super::*;
    use forebay_server::Time;
    use std::sync::Arc;

    fn task(name: &str) -> Task {
        let place = || Place::Path("/x".into());
        let folder = Arc::new(Folder {
            from: place(),
            to: place(),
            from_path: "/x".into(),
            to_path: "/y".into(),
        });
        let stat = Stat {
            what: What::File,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 1,
            stored: 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            id: (0, 0),
            born: None,
            xattrs: false,
            attr: None,
        };
        Task::new(&folder, name.into(), name.into(), place(), stat)
    }

    #[test]
    fn the_member_with_most_bytes_copies_it_and_ties_are_spread() {
        let held = |pairs: &[(u16, u64)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(node(&task("a"), &held(&[(0, 5), (3, 9), (2, 8)]), 4), 3);
        let mut counts = [0; 4];
        for n in 0..400 {
            let tied = node(&task(&n.to_string()), &held(&[(1, 9), (3, 9)]), 4);
            assert!(tied == 1 || tied == 3);
            counts[usize::from(node(&task(&n.to_string()), &held(&[]), 4))] += 1;
        }
        assert!(counts.iter().all(|c| (60..140).contains(c)), "{counts:?}");
        // A member that is gone from the service holds nothing that could be copied by it.
        assert_eq!(node(&task("a"), &held(&[(9, 5)]), 1), 0);
    }
}
