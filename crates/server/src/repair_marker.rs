//! The exchange of old records for new ones at all members of a service, as one step.
//!
//! ```text
//! NODE/repair-under-way   from before the first exchange at any member until after the last one
//!
//!  0  | "FBYREP\r\n" 8   | what it is
//!  8  | version 4        |
//! 12  | zero 4           |
//! 16  | time 8           | names the repair: T in damaged-T, seconds since 1970
//! 24  | CRC32C 4         | of bytes 0..24
//! ```
//! Numbers are big-endian.
//!
//! Invariants:
//! - While any member has a mark, the new records of all members are whole and on disk, and no service starts. So the
//!   exchange can only go forward: a repair that finds a mark finishes the exchange. Only that there is a mark matters: a
//!   torn or damaged one counts.
//! - A marked member's `kv.repair` is there until it has become `kv`. So each member tells how far it is:
//!
//! | `kv.repair` | `kv` | what is left to do |
//! |---|---|---|
//! | there | there | the old records go aside, the new ones take their place |
//! | there | gone | the new ones take their place |
//! | gone | there | nothing |
//!
//! - Each change is on disk before the next one is made.
use crate::superblock::refused_at;
use crate::{Error, Result};
use forebay_storage::Io;
use std::path::{Path, PathBuf};

/// The name of a new key-value store before it has its place.
pub const NEW_RECORDS: &str = "kv.repair";
/// The name of the mark.
pub const MARK: &str = "repair-under-way";
const MAGIC: &[u8; 8] = b"FBYREP\r\n";
/// Version written, and the only one.
const VERSION: u32 = 1;
const LEN: usize = 28;
const CHECKSUMMED_BYTES: usize = 24;

/// The name of what a repair at this time sets aside.
pub fn damaged_dir_name(time: u64) -> String {
    format!("damaged-{time}")
}

fn encode(time: u64) -> [u8; LEN] {
    let mut b = [0; LEN];
    b[..8].copy_from_slice(MAGIC);
    b[8..12].copy_from_slice(&VERSION.to_be_bytes());
    b[16..24].copy_from_slice(&time.to_be_bytes());
    let sum = forebay_checksum::crc32c(&b[..CHECKSUMMED_BYTES]);
    b[CHECKSUMMED_BYTES..].copy_from_slice(&sum.to_be_bytes());
    b
}

/// The time in a mark; `None` if it is torn or damaged.
fn decode(b: &[u8]) -> Option<u64> {
    let head = b.get(..LEN)?;
    let whole = head[CHECKSUMMED_BYTES..]
        == forebay_checksum::crc32c(&head[..CHECKSUMMED_BYTES]).to_be_bytes();
    let known = head.starts_with(MAGIC) && head[8..12] == VERSION.to_be_bytes();
    let (_, time) = head[..CHECKSUMMED_BYTES].split_last_chunk::<8>()?;
    (whole && known).then(|| u64::from_be_bytes(*time))
}

/// An error while marks are there.
fn interrupted_repair<T>(path: &Path, error: &std::io::Error) -> Result<T> {
    Err(Error::Refused(format!(
        "{}: {error}; the repair is under way: some members may have new records and others old ones, all of them are kept, and no \
         service starts. Check the disk and who may write there, then run `forebay fsck --repair` again, which finishes it",
        path.display()
    )))
}

fn unreadable<T>(path: &Path, error: &std::io::Error) -> Result<T> {
    let advice = "check the disk and who may read there";
    Err(refused_at(path, error, advice))
}

/// Whether the member's store has a mark.
///
/// # Errors
/// `Refused` if that cannot be told.
pub fn is_marked(io: &dyn Io, node: &Path) -> Result<bool> {
    let mark = node.join(MARK);
    io.exists(&mark).or_else(|e| unreadable(&mark, &e))
}

/// What every start asks first.
///
/// # Errors
/// `Refused`, with what to do, if a repair of this member's store is under way.
pub fn refuse_if_repairing(io: &dyn Io, node: &Path) -> Result<()> {
    match is_marked(io, node)? {
        false => Ok(()),
        true => Err(Error::Refused(format!(
            "{}: a repair was cut off while it put new records in place, so members may have records that do not fit each other; \
             run `forebay fsck --repair` again on the whole service, which finishes it",
            node.join(MARK).display()
        ))),
    }
}

/// Where the newest whole records of each member are: while a repair is under way, new ones that have no place yet.
///
/// # Errors
/// `Refused` if that cannot be told.
pub fn newest_records(io: &dyn Io, nodes: &[Option<PathBuf>]) -> Result<Vec<Option<PathBuf>>> {
    let mut marked = false;
    for node in nodes.iter().flatten() {
        marked |= is_marked(io, node)?;
    }
    let records = |node: &Option<PathBuf>| {
        let Some(node) = node else { return Ok(None) };
        let (kv, new) = (node.join("kv"), node.join(NEW_RECORDS));
        let there = marked && io.exists(&new).or_else(|e| unreadable(&new, &e))?;
        Ok(Some(if there { new } else { kv }))
    };
    nodes.iter().map(records).collect()
}

/// Marks all members, whose new records are whole and on disk.
///
/// # Errors
/// `Refused`. Then no member is marked and the stores are as they were, or the error says that the repair is under way.
pub fn begin(io: &dyn Io, nodes: &[PathBuf], time: u64) -> Result<()> {
    for node in nodes {
        let path = node.join(MARK);
        let written = (|| {
            let file = io.create(&path)?;
            file.write_at(&encode(time), 0)?;
            file.sync()?;
            io.sync_dir(node)
        })();
        if let Err(e) = written {
            // Nothing was exchanged yet, so it can be taken back.
            return match remove_marks(io, nodes) {
                Ok(()) => Err(Error::Refused(format!(
                    "{}: {e}; the stores are as they were; check the disk, its room and who may write there",
                    path.display()
                ))),
                Err(_) => Err(Error::Refused(format!(
                    "{}: {e}; nothing was exchanged, but a store may be marked as under repair, and then no service starts: check the disk, \
                     and run `forebay fsck --repair` again",
                    path.display()
                ))),
            };
        }
    }
    Ok(())
}

/// Puts all new records in place that are not, and removes the marks. Answers whether there was one, and the time of that repair.
/// `fallback` is the time if no mark tells it.
///
/// # Errors
/// `Refused`: the repair is still under way, and this can be called again; or the marks are of several repairs.
pub fn finish(io: &dyn Io, nodes: &[PathBuf], fallback: u64) -> Result<Option<u64>> {
    let mut marked = false;
    let mut time = None;
    for node in nodes {
        if !is_marked(io, node)? {
            continue;
        }
        marked = true;
        let path = node.join(MARK);
        let mut bytes = [0; LEN];
        let read = io
            .open_to_read(&path)
            .and_then(|f| f.read_at(&mut bytes, 0));
        let len = match read {
            // A mark that the disk cannot read is a damaged one.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => 0,
            read => read.or_else(|e| unreadable(&path, &e))?,
        };
        match (decode(&bytes[..len]), time) {
            (Some(found), Some(other)) if found != other => {
                return Err(Error::Refused(format!(
                    "{}: this store is in the repair of {found}, and another member's in that of {other}; put stores of one time back from a \
                     copy, or read what is whole with `forebay mount --salvage`",
                    path.display()
                )));
            }
            (found, _) => time = time.or(found),
        }
    }
    if !marked {
        return Ok(None);
    }
    let time = time.unwrap_or(fallback);
    for node in nodes {
        exchange(io, node, &node.join(damaged_dir_name(time)))?;
    }
    remove_marks(io, nodes).or_else(|(path, e)| interrupted_repair(&path, &e))?;
    Ok(Some(time))
}

/// The node's new records take the place of the old ones, which go to `aside/kv`; as far as that is not done.
fn exchange(io: &dyn Io, node: &Path, aside: &Path) -> Result<()> {
    let (kv, new) = (node.join("kv"), node.join(NEW_RECORDS));
    let there = |path: &Path| io.exists(path).or_else(|e| interrupted_repair(path, &e));
    let rename = |from: &Path, to: &Path, dirs: &[&Path]| {
        let renamed = io.rename(from, to);
        let synced = renamed.and_then(|()| dirs.iter().try_for_each(|dir| io.sync_dir(dir)));
        synced.or_else(|e| interrupted_repair(to, &e))
    };
    if !there(&new)? {
        return Ok(());
    }
    if there(&kv)? {
        let made = io.create_dir_all(aside);
        let synced = made.and_then(|()| io.sync_dir(node));
        synced.or_else(|e| interrupted_repair(aside, &e))?;
        rename(&kv, &aside.join("kv"), &[aside, node])?;
    }
    rename(&new, &kv, &[node])
}

fn remove_marks(
    io: &dyn Io,
    nodes: &[PathBuf],
) -> std::result::Result<(), (PathBuf, std::io::Error)> {
    for node in nodes {
        let path = node.join(MARK);
        let removed = io.exists(&path).and_then(|there| match there {
            true => io.remove(&path).and_then(|()| io.sync_dir(node)),
            false => Ok(()),
        });
        removed.map_err(|e| (path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;
    use forebay_storage::fault::{Call, HookedIo};
    use std::sync::atomic::{AtomicU64, Ordering};

    const TIME: u64 = 1_700_000_000;

    /// Members' stores with old and new records; member 0 of several has no old ones.
    fn nodes(temp: &tempfile::TempDir, members: usize) -> Vec<PathBuf> {
        let make = |k: usize| {
            let node = temp.path().join(k.to_string());
            for (kv, text) in [("kv", "old"), (NEW_RECORDS, "new")] {
                if k > 0 || members == 1 || kv == NEW_RECORDS {
                    std::fs::create_dir_all(node.join(kv)).unwrap();
                    std::fs::write(node.join(kv).join(text), text).unwrap();
                }
            }
            node
        };
        (0..members).map(make).collect()
    }

    /// A disk whose `n`-th change fails, and all calls after it too if the process is killed by it.
    fn failing(n: u64, killed: bool) -> HookedIo {
        let changes = AtomicU64::new(0);
        HookedIo::new(OsIo, move |_, call| {
            let changes = match call {
                Call::Exists | Call::Open | Call::Read { .. } => changes.load(Ordering::SeqCst),
                _ => changes.fetch_add(1, Ordering::SeqCst) + 1,
            };
            let looks = matches!(call, Call::Exists | Call::Open | Call::Read { .. });
            match (changes == n && !looks) || (killed && changes >= n) {
                true => Err(std::io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        })
    }

    fn count(nodes: &[PathBuf], name: &str) -> usize {
        nodes.iter().filter(|node| node.join(name).exists()).count()
    }

    #[test]
    fn cut_off_at_any_change_no_start_finds_old_and_new_records_and_the_next_repair_finishes() {
        for (members, killed) in [(1, true), (1, false), (3, true), (3, false)] {
            for n in 1.. {
                let temp = tempfile::tempdir().unwrap();
                let nodes = nodes(&temp, members);
                let old = count(&nodes, "kv");
                let io = failing(n, killed);
                let begun = begin(&io, &nodes, TIME);
                let done = begun.and_then(|()| finish(&io, &nodes, 0));
                let marked = count(&nodes, MARK);
                let new = count(&nodes, "kv/new");
                let context = format!("{members} members, killed {killed}, change {n}: {done:?}");
                if marked == 0 {
                    assert!(new == 0 || new == members, "{context}");
                }
                let refused = nodes
                    .iter()
                    .any(|node| refuse_if_repairing(&OsIo, node).is_err());
                assert_eq!(refused, marked > 0, "{context}");
                match &done {
                    Ok(time) => assert_eq!((*time, new), (Some(TIME), members), "{context}"),
                    Err(e) => {
                        let text = e.to_string();
                        let unchanged = text.contains("as they were");
                        assert!(unchanged || text.contains("--repair` again"), "{text}");
                        assert!(!unchanged || marked == 0 && new == 0, "{context}");
                    }
                }
                // What is read meanwhile is all of one time.
                let all: Vec<_> = nodes.iter().cloned().map(Some).collect();
                let read = newest_records(&OsIo, &all).unwrap();
                let news = read.iter().flatten().filter(|kv| kv.join("new").exists());
                assert_eq!(
                    news.count(),
                    if marked > 0 { members } else { new },
                    "{context}"
                );
                let found = finish(&OsIo, &nodes, TIME).unwrap();
                assert_eq!(found, (marked > 0).then_some(TIME), "{context}");
                if marked > 0 || done.is_ok() {
                    assert_eq!(count(&nodes, "kv/new"), members, "{context}");
                    let kept = format!("{}/kv/old", damaged_dir_name(TIME));
                    assert_eq!(count(&nodes, &kept), old, "{context}");
                    assert_eq!(
                        count(&nodes, NEW_RECORDS) + count(&nodes, MARK),
                        0,
                        "{context}"
                    );
                }
                if done.is_ok() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_damaged_mark_counts_and_marks_of_two_repairs_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let nodes = nodes(&temp, 3);
        begin(&OsIo, &nodes, TIME).unwrap();
        std::fs::write(nodes[0].join(MARK), b"").unwrap();
        let mut bytes = encode(TIME);
        bytes[20] ^= 1;
        std::fs::write(nodes[1].join(MARK), bytes).unwrap();
        assert!(refuse_if_repairing(&OsIo, &nodes[0]).is_err());
        std::fs::write(nodes[1].join(MARK), encode(TIME + 1)).unwrap();
        let refused = finish(&OsIo, &nodes, 0).unwrap_err().to_string();
        assert!(
            refused.contains("1700000001") && refused.contains("--salvage"),
            "{refused}"
        );
        assert_eq!(count(&nodes, "kv/new"), 0);
        std::fs::write(nodes[1].join(MARK), bytes).unwrap();
        assert_eq!(finish(&OsIo, &nodes, 0).unwrap(), Some(TIME));
        assert_eq!(count(&nodes, "kv/new"), 3);
    }
}
