//! Merges the recordings of several mounts and machines into one.

use crate::recording::Recording;
use std::collections::{BTreeMap, HashMap};

/// What one server process recorded.
#[derive(Debug, Clone)]
pub struct NodeRecording {
    /// Which service it belongs to: inodes mean the same files within one.
    pub service: String,
    /// Its calls.
    pub recording: Recording,
}

/// Joins recordings of one time: files of one service are the same by inode, ranks by machine, process and thread. Ranks that
/// a launcher gave keep their number; all others follow, in the order of their first calls. Calls are in order of their
/// start.
pub fn merge(name: &str, begun: u64, parts: Vec<NodeRecording>) -> Recording {
    let mut whole = Recording {
        name: name.to_owned(),
        begun,
        ..Recording::default()
    };
    // Ranks are numbered as they are met here, and again at the end.
    let mut met: HashMap<(String, u32, u32), u32> = HashMap::new();
    let mut processes = Vec::new();
    let mut numbers: HashMap<(String, u64), u32> = HashMap::new();
    for (index, part) in parts.into_iter().enumerate() {
        let NodeRecording { service, recording } = part;
        let mut files = Vec::new();
        for file in recording.files {
            let next = whole.files.len() as u32;
            let number = match file.inode {
                0 => next,
                inode => *numbers.entry((service.clone(), inode)).or_insert(next),
            };
            files.push(number);
            match whole.files.get_mut(number as usize) {
                None => whole.files.push(file),
                Some(known) if known.path.is_empty() => known.path = file.path,
                Some(_) => {}
            }
        }
        let mut ranks = BTreeMap::new();
        for (rank, process) in recording.processes {
            let key = (process.host.clone(), process.pid, process.thread);
            let next = processes.len() as u32;
            let number = *met.entry(key).or_insert(next);
            if number == next {
                processes.push(Some(process));
            }
            ranks.insert(rank, number);
        }
        for mut call in recording.calls {
            call.file = files.get(call.file as usize).copied().unwrap_or(0);
            call.rank = *ranks.entry(call.rank).or_insert_with(|| {
                // One of whom the part says nothing.
                processes.push(None);
                met.insert(
                    (format!("part {index}"), call.rank, 0),
                    processes.len() as u32 - 1,
                );
                processes.len() as u32 - 1
            });
            whole.calls.push(call);
        }
        if let Some(loss) = recording.loss {
            let all = whole.loss.get_or_insert_default();
            all.at += loss.at;
            all.bytes += loss.bytes;
            all.calls += loss.calls;
        }
    }
    whole.calls.sort_by_key(|call| call.start);
    let worlds = processes.iter().flatten().filter_map(|p| p.world);
    let mut next = worlds.max().map_or(0, |w| w.saturating_add(1));
    let mut final_ranks: HashMap<u32, u32> = HashMap::new();
    for call in &mut whole.calls {
        let process = processes[call.rank as usize].as_ref();
        let rank = *final_ranks.entry(call.rank).or_insert_with(|| {
            process.and_then(|p| p.world).unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        });
        if let Some(process) = process {
            whole
                .processes
                .entry(rank)
                .or_insert_with(|| process.clone());
        }
        call.rank = rank;
    }
    whole.ranks = whole.calls.iter().map(|c| c.rank + 1).max().unwrap_or(0);
    whole
}
