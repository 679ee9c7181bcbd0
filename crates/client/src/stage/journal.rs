//! The journal of finished work, with which an interrupted run goes on where it was. One file a node and job, in the node's
//! part of the store: `STORE/node-K/stage/<job, 16 hex digits>`. Little-endian.
//!
//! ```text
//! offset 0          8           12          16         20              20 + n
//!        +-----------+-----------+-----------+----------+---------------+--------- - - -
//!        | FBSTAGE\n | version 4 | length n 4| crc 4    | description n | records, 24 each
//!        +-----------+-----------+-----------+----------+---------------+--------- - - -
//! record 0      1        4       8         16        24
//!        +------+--------+-------+---------+---------+
//!        | kind | zero 3 | crc 4 | key 8   | stamp 8 |
//!        +------+--------+-------+---------+---------+
//! ```
//!
//! The header's crc (CRC32C) covers version, length and description: what the job copies, for people and for `matches`. A
//! record's crc covers its other bytes. `key` is a hash of the target's path and of the piece, `stamp` one of the source's
//! size, times and number: a source that changed since has another stamp, and is copied again. The stamp of a piece also names
//! the temporary file that the piece is in: a file that was created again since does not have the piece.
//!
//! | kind | means |
//! |---|---|
//! | 1 boot | key and stamp together name the boot of the machine; records after it were written in it |
//! | 2 written | whole under its temporary name, perhaps not on disk |
//! | 3 done | whole under its own name (a piece: in the temporary file); its bytes were on disk before |
//! | 4 done unsynced | the same, perhaps not on disk |
//! | 5 void | cancels earlier records of this key and stamp: the copy was found damaged |
//!
//! Why a cut at any point is safe. A record is written after what it tells of has happened, so a missing one costs a copy. A
//! torn one has a wrong checksum; it and what follows is cut off. A killed process loses nothing that the system has, so all
//! records of this boot count. After a power loss records may tell of bytes that never reached the disk: of another boot only
//! `done` counts, whose bytes were synced first. A record is trusted only if the target is there with the size and time that it
//! was given.
use super::hash::StableHash;
use parking_lot::Mutex;
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"FBSTAGE\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 20;
const RECORD_BYTES: usize = 24;
/// Longest description believed.
const MAX_DESCRIPTION_BYTES: u32 = 1 << 20;

const BOOT: u8 = 1;
const WRITTEN: u8 = 2;
const DONE: u8 = 3;
const DONE_UNSYNCED: u8 = 4;
const VOID: u8 = 5;

/// How far something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskProgress {
    /// Whole under its temporary name.
    Written,
    /// Whole under its own name; `synced`: and on disk.
    Done {
        /// Its bytes are on disk.
        synced: bool,
    },
    /// Found damaged: as if it had never been copied.
    Void,
}

/// See the head of this file. Takes 16 bytes of memory for each record found.
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    written: Vec<(u64, u64)>,
    done: Vec<(u64, u64)>,
}

impl Journal {
    /// Opens the journal of a job in `dir` (made if it is missing), or begins a new one if there is none, or one of a
    /// version or of a job that this is not.
    ///
    /// # Errors
    /// As the file system.
    pub fn open(dir: &Path, job: u64, description: &[u8]) -> io::Result<Journal> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Journal::open_in_boot(dir, job, description, boot())
    }

    fn open_in_boot(
        dir: &Path,
        job: u64,
        description: &[u8],
        boot: (u64, u64),
    ) -> io::Result<Journal> {
        let path = dir.join(format!("{job:016x}"));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        let mut journal = Journal {
            path,
            file: Mutex::new(file.try_clone()?),
            written: Vec::new(),
            done: Vec::new(),
        };
        let header = header(description);
        let mut found = vec![0; header.len()];
        let kept = match file.read_exact(&mut found) {
            Ok(()) if found == header => {
                header.len() as u64 + journal.load(&mut BufReader::new(&file), boot)?
            }
            _ => {
                file.set_len(0)?;
                file.rewind()?;
                file.write_all(&header)?;
                header.len() as u64
            }
        };
        file.set_len(kept)?;
        file.seek(SeekFrom::Start(kept))?;
        file.write_all(&record(BOOT, boot.0, boot.1))?;
        journal.written.sort_unstable();
        journal.done.sort_unstable();
        Ok(journal)
    }

    /// Reads records up to the first that is not whole; gives their length in bytes.
    fn load(&mut self, from: &mut impl Read, boot: (u64, u64)) -> io::Result<u64> {
        let (mut bytes, mut now) = (0, false);
        let mut buffer = [0; RECORD_BYTES];
        loop {
            match from.read_exact(&mut buffer) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(bytes),
                Err(e) => return Err(e),
            }
            let Some((kind, key, stamp)) = parse(&buffer) else {
                return Ok(bytes);
            };
            match kind {
                BOOT => now = (key, stamp) == boot,
                WRITTEN if now => self.written.push((key, stamp)),
                DONE => self.done.push((key, stamp)),
                DONE_UNSYNCED if now => self.done.push((key, stamp)),
                WRITTEN | DONE_UNSYNCED => {}
                VOID => {
                    self.written.retain(|pair| *pair != (key, stamp));
                    self.done.retain(|pair| *pair != (key, stamp));
                }
                _ => return Ok(bytes),
            }
            bytes += RECORD_BYTES as u64;
        }
    }

    /// What an earlier run has said of this key, for a source with this stamp.
    pub fn find(&self, key: u64, stamp: u64) -> Option<TaskProgress> {
        let pair = (key, stamp);
        if self.done.binary_search(&pair).is_ok() {
            Some(TaskProgress::Done { synced: true })
        } else if self.written.binary_search(&pair).is_ok() {
            Some(TaskProgress::Written)
        } else {
            None
        }
    }

    /// Whether an earlier run has left anything.
    pub fn is_fresh(&self) -> bool {
        self.written.is_empty() && self.done.is_empty()
    }

    /// Notes it.
    ///
    /// # Errors
    /// As the file system.
    pub fn add(&self, key: u64, stamp: u64, progress: TaskProgress) -> io::Result<()> {
        let kind = match progress {
            TaskProgress::Written => WRITTEN,
            TaskProgress::Done { synced: true } => DONE,
            TaskProgress::Done { synced: false } => DONE_UNSYNCED,
            TaskProgress::Void => VOID,
        };
        self.file.lock().write_all(&record(kind, key, stamp))
    }

    /// Everything is finished: forgets it.
    ///
    /// # Errors
    /// As the file system.
    pub fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// Forgets what is finished of a job that is done; it must not run. Not to have been there is no error.
///
/// # Errors
/// As the file system.
pub fn forget(dir: &Path, job: u64) -> io::Result<()> {
    match std::fs::remove_file(dir.join(format!("{job:016x}"))) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The jobs in `dir` that were cut off: number and description. What cannot be read is left out.
pub fn unfinished(dir: &Path) -> Vec<(u64, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let job = u64::from_str_radix(entry.file_name().to_str()?, 16).ok()?;
        let mut file = File::open(entry.path()).ok()?;
        let mut head = [0; HEADER_BYTES];
        file.read_exact(&mut head).ok()?;
        let length = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        if length > MAX_DESCRIPTION_BYTES {
            return None;
        }
        let mut description = vec![0; length as usize];
        file.read_exact(&mut description).ok()?;
        (header(&description)[..HEADER_BYTES] == head).then_some((job, description))
    };
    let mut left: Vec<_> = entries.filter_map(one).collect();
    left.sort();
    left
}

fn header(description: &[u8]) -> Vec<u8> {
    let mut covered = VERSION.to_le_bytes().to_vec();
    covered.extend((description.len() as u32).to_le_bytes());
    covered.extend(description);
    let mut header = MAGIC.to_vec();
    header.extend(&covered[..8]);
    header.extend(forebay_checksum::crc32c(&covered).to_le_bytes());
    header.extend(description);
    header
}

fn record(kind: u8, key: u64, stamp: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = kind;
    bytes[8..16].copy_from_slice(&key.to_le_bytes());
    bytes[16..].copy_from_slice(&stamp.to_le_bytes());
    let crc = forebay_checksum::crc32c(&bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<(u8, u64, u64)> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let (kind, key, stamp) = (bytes[0], word(8), word(16));
    (record(kind, key, stamp) == *bytes).then_some((kind, key, stamp))
}

/// The boot of this machine. Where it has no name, every run is taken for one of another boot.
fn boot() -> (u64, u64) {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) => (
            StableHash::new(0).add(&id).finish(),
            StableHash::new(1).add(&id).finish(),
        ),
        Err(_) => {
            let now = forebay_server::Time::now();
            (now.secs as u64, u64::from(now.nanos))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open(dir: &Path, boot: u64) -> Journal {
        Journal::open_in_boot(dir, 7, b"in /a /b", (boot, 0)).unwrap()
    }

    const DONE_SYNCED: TaskProgress = TaskProgress::Done { synced: true };

    #[test]
    fn a_later_run_finds_what_was_noted_and_only_for_the_same_source_and_job() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), 1);
        assert!(first.is_fresh());
        first.add(10, 1, TaskProgress::Written).unwrap();
        first.add(11, 1, DONE_SYNCED).unwrap();
        first
            .add(12, 1, TaskProgress::Done { synced: false })
            .unwrap();
        let second = open(dir.path(), 1);
        assert_eq!(second.find(10, 1), Some(TaskProgress::Written));
        assert_eq!(second.find(11, 1), Some(DONE_SYNCED));
        assert_eq!(second.find(12, 1), Some(DONE_SYNCED));
        assert_eq!(second.find(11, 2), None, "the source has changed");
        assert_eq!(unfinished(dir.path()), [(7, b"in /a /b".to_vec())]);
        second.add(10, 1, TaskProgress::Void).unwrap();
        assert_eq!(
            open(dir.path(), 1).find(10, 1),
            None,
            "it was found damaged"
        );
        let after = open(dir.path(), 2);
        assert_eq!(after.find(11, 1), Some(DONE_SYNCED), "was on disk");
        assert_eq!((after.find(10, 1), after.find(12, 1)), (None, None));
        let other = Journal::open_in_boot(dir.path(), 7, b"in /a /c", (2, 0)).unwrap();
        assert!(other.is_fresh());
        other.remove().unwrap();
        assert!(unfinished(dir.path()).is_empty());
    }

    proptest! {
        #[test]
        fn a_journal_cut_or_damaged_anywhere_gives_a_beginning_of_what_was_noted(
            n in 1u64..20, cut in 0usize..600, flip in any::<bool>()
        ) {
            let dir = tempfile::tempdir().unwrap();
            let journal = open(dir.path(), 1);
            for key in 0..n {
                journal.add(key, key * 3, DONE_SYNCED).unwrap();
            }
            let path = dir.path().join(format!("{:016x}", 7));
            let mut bytes = std::fs::read(&path).unwrap();
            let cut = cut % bytes.len();
            match flip {
                true => bytes[cut] ^= 0x10,
                false => bytes.truncate(cut),
            }
            std::fs::write(&path, &bytes).unwrap();
            let again = open(dir.path(), 1);
            let kept = (0..n).take_while(|k| again.find(*k, k * 3).is_some()).count() as u64;
            prop_assert!((kept..n).all(|k| again.find(k, k * 3).is_none()));
            let whole = cut.saturating_sub(HEADER_BYTES + 8) / RECORD_BYTES;
            prop_assert_eq!(kept, (whole as u64).saturating_sub(1), "all whole records before the damage");
            // What is noted after the cut is found too.
            again.add(100, 100, DONE_SYNCED).unwrap();
            let third = open(dir.path(), 1);
            prop_assert!(third.find(100, 100).is_some());
        }
    }
}
