//! The state of a disk after a power failure: drawn from the seed, sector by sector and directory by directory.
use super::{Change, Disk, Draws, Inode, SECTOR, apply};
use crate::fault::Image;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

impl Disk {
    /// What is left after a power failure, by the seed.
    pub fn crashed(&mut self) -> Image {
        let mut names = self.names.durable.clone();
        let mut cut: BTreeSet<PathBuf> = BTreeSet::new();
        for change in std::mem::take(&mut self.names.changes) {
            let dirs = change.dirs();
            if dirs.iter().any(|d| cut.contains(d)) || self.draws.below(3) == 0 {
                cut.extend(dirs);
            } else {
                change.apply(&mut names);
            }
        }
        // Entries of directories that are gone are gone.
        let whole = |p: &Path| {
            p.ancestors()
                .skip(1)
                .filter(|a| a.parent().is_some())
                .all(|a| names.get(a) == Some(&None))
        };
        let kept: Vec<_> = names
            .iter()
            .filter(|(p, _)| whole(p))
            .map(|(p, n)| (p.clone(), *n))
            .collect();
        let mut bytes = HashMap::new();
        for number in kept
            .iter()
            .filter_map(|(_, n)| *n)
            .collect::<BTreeSet<u64>>()
        {
            if let Some(inode) = self.inodes.get(&number) {
                bytes.insert(number, crashed_file(inode, &mut self.draws));
            }
        }
        let content = |n: u64| bytes.get(&n).cloned().unwrap_or_default();
        Image {
            entries: kept.into_iter().map(|(p, n)| (p, n.map(content))).collect(),
        }
    }
}

/// What is left of a file, by these draws.
fn crashed_file(inode: &Inode, draws: &mut Draws) -> Vec<u8> {
    if inode.changes.is_empty() {
        return inode.durable.clone();
    }
    let (changes, durable) = (&inode.changes, &inode.durable);
    let mut longest = durable.len();
    let mut state = durable.clone();
    let mut lengths = vec![durable.len()];
    for change in changes {
        apply(&mut state, change);
        longest = longest.max(state.len());
        lengths.push(state.len());
    }
    // Each sector was last written back after `keep` of the changes; half of them at one of the ends.
    let sectors = (longest as u64).div_ceil(SECTOR) as usize;
    let n = changes.len() as u64;
    let keeps: Vec<u64> = (0..=sectors)
        .map(|_| match draws.below(4) {
            0 => 0,
            1 => n,
            _ => draws.below(n + 1),
        })
        .collect();
    let length = lengths[keeps[sectors] as usize];
    let mut out = vec![0; longest];
    out[..durable.len()].copy_from_slice(durable);
    for (i, change) in changes.iter().enumerate() {
        let (from, to) = match change {
            Change::Write(at, bytes) => (*at, *at + bytes.len() as u64),
            Change::Zero(at, len) => (*at, at.saturating_add(*len).min(longest as u64)),
            Change::Length(len) => (*len, longest as u64),
        };
        if from >= to {
            continue;
        }
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            if keeps[sector as usize] <= i as u64 {
                continue;
            }
            let start = from.max(sector * SECTOR) as usize;
            let end = to.min((sector + 1) * SECTOR) as usize;
            match change {
                Change::Write(at, bytes) => {
                    out[start..end]
                        .copy_from_slice(&bytes[start - *at as usize..end - *at as usize]);
                }
                Change::Zero(..) | Change::Length(_) => out[start..end].fill(0),
            }
        }
    }
    out.truncate(length);
    out
}
