//! `forebay fsck --repair`: new records in place of damaged ones.
//!
//! ```text
//! NODE/kv.repair        the new key-value store, made first ([`rebuild`](crate::rebuild)); nothing else is changed until it is whole
//! NODE/damaged-T/kv     the old one, once the new one is in its place
//! NODE/damaged-T/data   log bytes that no record names any more, if records that may have named them are lost
//! FIRST/damaged-T.txt   what was damaged and lost, with paths
//! ```
//!
//! Invariants:
//! - Until [`Repair::put_in_place`] the stores are as they were; cut off before, the next repair begins anew.
//! - Old and new change places in one step (where the file system can; else a start refuses what lies between, and the next repair
//!   finishes it). Everything of the old stores stays in `damaged-T` until the user removes it.
//! - No log byte goes that may be somebody's: a start gives back what no record names, so that is set aside first.
use crate::data::{SEGMENT_HEADER, segment_name, segment_number, spans};
use crate::rebuild::{Look, Losses, Source, rebuild};
use crate::{Error, Result, stopped};
use forebay_storage::{Io, Options, OsIo, Store};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The name of a new key-value store before it has its place.
pub const NEW: &str = "kv.repair";
/// Bytes copied at a time; zeros are not.
const CHUNK: u64 = 64 << 10;

/// A repair whose result is made and waits to be put in place.
pub struct Repair {
    nodes: Vec<PathBuf>,
    losses: Losses,
    /// The name of what is set aside, in each node's directory.
    aside: String,
    report: PathBuf,
    _locks: Vec<File>,
}

fn failed<T>(path: &Path, error: impl std::fmt::Display) -> Result<T> {
    Err(Error::Refused(format!(
        "{}: {error}; the stores are as they were; check the disk, its room and who may write there",
        path.display()
    )))
}

/// A failure with its path.
trait At<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T, E: std::fmt::Display> At<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T> {
        self.or_else(|e| failed(path, e))
    }
}

impl Repair {
    /// Makes new records for the service in `dirs`: the directory of a whole one, or the stores of all its members, in any order. They are
    /// not used before [`Repair::put_in_place`]. `progress` hears what is done.
    ///
    /// # Errors
    /// `Refused` for stores in use, missing ones, and when there is no room for the new records.
    pub fn prepare(dirs: &[PathBuf], progress: &mut dyn FnMut(&'static str)) -> Result<Repair> {
        let io: Arc<dyn Io> = Arc::new(OsIo);
        let found = stopped::open_damaged(&*io, dirs)?;
        let mut nodes = Vec::new();
        for (member, node) in found.nodes.into_iter().enumerate() {
            match node {
                Some(node) => nodes.push(node),
                None => {
                    return Err(Error::Refused(format!(
                        "the store of member {member} is missing; put it back, or read what is left with `forebay mount --salvage`"
                    )));
                }
            }
        }
        let seconds = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let aside = format!("damaged-{}", seconds.as_secs());
        let mut repair = Repair {
            report: dirs[0].join(format!("{aside}.txt")),
            nodes,
            losses: Losses::default(),
            aside,
            _locks: found.locks,
        };
        repair.remove_left_over()?;
        let kv = |node: &PathBuf| Some(node.join("kv")).filter(|kv| kv.is_dir());
        let sources: Vec<Source> = repair
            .nodes
            .iter()
            .map(|node| Source {
                kv: kv(node),
                data: Some(node.join("data")),
            })
            .collect();
        let targets: Vec<PathBuf> = repair.nodes.iter().map(|node| node.join(NEW)).collect();
        repair.losses = rebuild(&io, &sources, &targets, Look::Bytes, progress)?;
        repair.losses.damage.splice(0..0, found.damage);
        for (node, source) in repair.nodes.iter().zip(&sources) {
            if source.kv.is_none() {
                let text = format!("{}: there is no key-value store", node.display());
                repair.losses.damage.push(text);
            }
        }
        Ok(repair)
    }

    /// What a repair that was cut off has left: a new store without its place is finished if the old one has left it, and else removed.
    fn remove_left_over(&self) -> Result<()> {
        for node in &self.nodes {
            let (kv, new) = (node.join("kv"), node.join(NEW));
            if !new.is_dir() {
                continue;
            }
            match kv.exists() {
                true => std::fs::remove_dir_all(&new).at(&new)?,
                false => std::fs::rename(&new, &kv).at(&kv)?,
            }
        }
        Ok(())
    }

    /// What is lost.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Whether records are damaged, or names and files did not fit each other. Damaged file data alone needs no new records.
    pub fn is_needed(&self) -> bool {
        let losses = &self.losses;
        let others = losses.lost.len() as u64 > losses.damaged_files;
        !losses.damage.is_empty() || !losses.found.is_empty() || others
    }

    /// What [`Repair::put_in_place`] will do, a line each.
    pub fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        for (member, node) in self.nodes.iter().enumerate() {
            let aside = node.join(&self.aside);
            steps.push(format!(
                "member {member}: {} goes to {}, and new records made of what is whole take its place",
                node.join("kv").display(),
                aside.join("kv").display()
            ));
            if self.losses.spans_lost.contains(&(member as u16)) {
                steps.push(format!(
                    "member {member}: file data that no record names any more is kept in {}",
                    aside.join("data").display()
                ));
            }
        }
        steps.push(format!(
            "the report is written to {}",
            self.report.display()
        ));
        steps
    }

    /// Does it; answers where the report is.
    ///
    /// # Errors
    /// When something cannot be set aside or moved. Then the old stores are in place, or those named in the error are aside.
    pub fn put_in_place(&self) -> Result<PathBuf> {
        for (member, node) in self.nodes.iter().enumerate() {
            let aside = node.join(&self.aside);
            std::fs::create_dir(&aside).at(&aside)?;
            if self.losses.spans_lost.contains(&(member as u16)) {
                set_aside(&node.join(NEW), &node.join("data"), &aside.join("data"))?;
            }
        }
        let text = format!(
            "{}\nset aside: {} in each member's store; remove it once nothing is missed\n",
            self.losses.text(),
            self.aside
        );
        std::fs::write(&self.report, text).at(&self.report)?;
        File::open(&self.report)
            .and_then(|f| f.sync_all())
            .at(&self.report)?;
        for node in &self.nodes {
            exchange(node, &node.join(&self.aside).join("kv"))?;
        }
        Ok(self.report.clone())
    }

    /// Gives up what was made; the stores stay as they are.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(&self) -> Result<()> {
        self.remove_left_over()
    }
}

/// The new key-value store of the node takes the place of the old one, which goes to `aside`. The old one never has the name of a new one,
/// which the next repair would remove.
fn exchange(node: &Path, aside: &Path) -> Result<()> {
    let (kv, new) = (node.join("kv"), node.join(NEW));
    let sync = |dir: &Path| File::open(dir).and_then(|d| d.sync_all()).at(dir);
    if kv.exists() {
        std::fs::rename(&new, aside).at(aside)?;
        match renameat_with(CWD, aside, CWD, &kv, RenameFlags::EXCHANGE) {
            Ok(()) => {
                sync(node)?;
                return aside.parent().map_or(Ok(()), sync);
            }
            // The file system cannot.
            Err(Errno::INVAL | Errno::NOSYS) => {
                std::fs::rename(aside, &new).at(&new)?;
                std::fs::rename(&kv, aside).at(aside)?;
                sync(node)?;
            }
            Err(e) => return failed(&kv, e),
        }
    }
    std::fs::rename(&new, &kv).at(&kv)?;
    sync(node)
}

/// Keeps the bytes of segment files in `data` that no span in `kv` names: a file without any by another link, else by a copy.
fn set_aside(kv: &Path, data: &Path, aside: &Path) -> Result<()> {
    let mut known: HashMap<u32, Vec<Range<u64>>> = HashMap::new();
    let options = Options {
        background: false,
        ..Options::default()
    };
    let store = Store::open(Arc::new(OsIo), kv, options)?;
    for span in spans::all(&store) {
        let span = span?;
        let start = u64::from(span.offset);
        let places = known.entry(span.segment).or_default();
        places.push(start..start + span.stored_len());
    }
    store.close()?;
    std::fs::create_dir(aside).at(aside)?;
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return failed(data, e),
    };
    for entry in entries {
        let name = entry.at(data)?.file_name();
        let Some(number) = name.to_str().and_then(segment_number) else {
            continue;
        };
        let (from, to) = (data.join(&name), aside.join(segment_name(number)));
        match known.get(&number) {
            None => std::fs::hard_link(&from, &to).at(&to)?,
            Some(places) => copy_unknown(&from, places, &to).at(&to)?,
        }
    }
    File::open(aside).and_then(|d| d.sync_all()).at(aside)
}

/// Copies what lies between the places and is not zero.
fn copy_unknown(from: &Path, places: &[Range<u64>], to: &Path) -> std::io::Result<()> {
    let from = File::open(from)?;
    let len = from.metadata()?.len();
    let places = crate::data::merge(places.to_vec());
    let mut copy = None;
    let mut buffer = Vec::new();
    for range in crate::data::subtract(SEGMENT_HEADER..len.max(SEGMENT_HEADER), &places) {
        let mut at = range.start;
        while at < range.end {
            let n = CHUNK.min(range.end - at);
            buffer.resize(n as usize, 0);
            from.read_exact_at(&mut buffer, at)?;
            if buffer.iter().any(|b| *b != 0) {
                let file = match &copy {
                    Some(file) => file,
                    None => copy.insert(File::create_new(to)?),
                };
                file.write_all_at(&buffer, at)?;
            }
            at += n;
        }
    }
    copy.map_or(Ok(()), |file| file.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_records_take_the_place_of_the_old_ones_or_of_none() {
        for old in [true, false] {
            let node = tempfile::tempdir().unwrap();
            let aside = node.path().join("damaged-1");
            std::fs::create_dir(&aside).unwrap();
            let put = |store: &str, file: &str| {
                let store = node.path().join(store);
                std::fs::create_dir(&store).unwrap();
                std::fs::write(store.join(file), file).unwrap();
            };
            put(NEW, "new");
            if old {
                put("kv", "old");
            }
            exchange(node.path(), &aside.join("kv")).unwrap();
            assert!(node.path().join("kv/new").exists());
            assert!(!node.path().join(NEW).exists());
            assert_eq!(aside.join("kv/old").exists(), old);
        }
    }
}
