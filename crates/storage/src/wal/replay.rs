//! Replays log files: finds the records that are whole and follow each other, applies them, and decides what all other bytes
//! are: a torn end, or damage.
//!
//! Invariant: batches are applied in the order of their numbers, each once; only a salvage leaves any out.
use super::record::{self, Record, RecordStep, Records};
use super::recovered::{RecoveredLog, RecoveryMode};
use super::torn::{self, TornRange};
use super::{KIND, OldLog, header, payload};
use crate::damage::{Damage, PossibleLoss};
use crate::io::read_file;
use crate::{Batch, Error, Io, IoContext, Result, bit_correction, sectors};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The longest batch, in bytes, that is corrected where a crash can have torn it, in a store that goes on: some part of it is zeros, but most
/// batches end in a sector that holds little of them, and that may be zeros.
const MAX_TORN_CORRECTED_BYTES: usize = 4096;

/// What a checksum (or number) should be, and what it is, of this structure.
type Mismatch = (&'static str, u32, u32);

/// Where the log ends although bytes follow.
#[derive(Debug)]
pub struct CutPoint {
    /// The file.
    pub path: PathBuf,
    /// Its place among all.
    pub file: usize,
    /// Where in it, bytes.
    pub offset: u64,
    mismatch: Mismatch,
    /// Whether a crash can have left it so.
    pub torn: bool,
    /// The last whole batch after it.
    pub behind: u64,
}

impl CutPoint {
    /// What is wrong there.
    pub fn error(&self) -> Error {
        let (what, expected, found) = self.mismatch;
        Error::corrupt(&self.path, what, self.offset, expected, found)
    }

    /// The same, with the batches that are lost.
    pub fn damage(&self, first: u64, last: Option<u64>) -> Damage {
        Damage {
            error: self.error(),
            lost: PossibleLoss::batches(first, last),
        }
    }
}

/// The whole file, with zeros where the disk cannot read it.
fn read_around(io: &dyn Io, path: &Path) -> Result<Vec<u8>> {
    let file = io.open(path).context("open", path)?;
    let length = file.len().context("measure", path)?;
    sectors::read(&*file, path, 0, length as usize).context("read", path)
}

/// Where whole records stand that are out of order: a disk has written them to a wrong place. The others are the most that ascend.
fn misplaced(records: Records<'_>) -> HashSet<usize> {
    let batches: Vec<(u64, usize)> = records
        .filter_map(|step| match step {
            RecordStep::Record(r) if !r.payload.is_empty() => Some((r.sequence, r.offset)),
            _ => None,
        })
        .collect();
    if batches.is_sorted_by(|a, b| a.0 < b.0) {
        return HashSet::new();
    }
    // The longest ascending subsequence, by patience sorting: of each length, the end of the one that ends lowest, and what came before each.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(batches.len());
    for (i, (sequence, _)) in batches.iter().enumerate() {
        let length = ends.partition_point(|end| batches[*end].0 < *sequence);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = i,
            None => ends.push(i),
        }
    }
    let mut misplaced: HashSet<usize> = batches.iter().map(|(_, offset)| *offset).collect();
    let mut at = ends.last().copied();
    while let Some(i) = at {
        misplaced.remove(&batches[i].1);
        at = before[i];
    }
    misplaced
}

/// The log as far as it is read.
pub struct Replay {
    mode: RecoveryMode,
    /// What it held.
    pub found: RecoveredLog,
    /// Where it ends, unless a whole batch follows that is the next.
    pub cut: Option<CutPoint>,
    /// Damage since the last batch that follows the one before it: file, offset, and the error if no crash explains it.
    places: Vec<(usize, u64, Option<Error>)>,
}

/// The file at hand.
struct LogFile<'a> {
    /// Its place among all.
    index: usize,
    number: u64,
    path: &'a Path,
}

impl LogFile<'_> {
    fn cut(&self, offset: usize, mismatch: Mismatch, torn: bool) -> CutPoint {
        CutPoint {
            path: self.path.to_path_buf(),
            file: self.index,
            offset: offset as u64,
            mismatch,
            torn,
            behind: 0,
        }
    }
}

impl Replay {
    /// Of a log whose batches through `flushed` are in files of all engines.
    pub fn new(mode: RecoveryMode, flushed: u64) -> Replay {
        Replay {
            mode,
            found: RecoveredLog {
                last: flushed,
                synced: flushed,
                ..RecoveredLog::default()
            },
            cut: None,
            places: Vec::new(),
        }
    }

    /// Replays the next file.
    ///
    /// # Errors
    /// As [`recover`](super::recovery::recover).
    pub fn file(
        &mut self,
        number: u64,
        path: &Path,
        io: &dyn Io,
        apply: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<()> {
        let read = match self.mode {
            RecoveryMode::GoOn => read_file(io, path),
            RecoveryMode::Salvage => read_around(io, path),
        };
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if self.mode == RecoveryMode::Salvage => {
                let lost = PossibleLoss::batches(self.found.last + 1, None);
                self.found.damage.push(Damage { error, lost });
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let index = self.found.files.len();
        let length = bytes.len();
        self.found.files.push(OldLog::new(number, length as u64));
        let file = LogFile {
            index,
            number,
            path,
        };
        let mut records = Records::new(&bytes, number, header::LENGTH.min(length));
        match head(number, &bytes, path)? {
            FileHead::Whole => {}
            FileHead::Empty => records = Records::new(&bytes, number, length),
            FileHead::Damaged(expected, found) => {
                let mut ahead = records.clone();
                let to = match ahead.next() {
                    Some(RecordStep::Record(_)) => header::LENGTH,
                    _ => ahead.offset(),
                };
                let torn = TornRange::new(&bytes, 0..to);
                self.torn(&file, &torn, ("log header", expected, found));
            }
        }
        let misplaced = match self.mode {
            RecoveryMode::GoOn => HashSet::new(),
            RecoveryMode::Salvage => misplaced(records.clone()),
        };
        while let Some(step) = records.next() {
            let record = match step {
                RecordStep::Record(record) if misplaced.contains(&record.offset) => {
                    let torn = TornRange::new(&bytes, record.offset..records.offset());
                    let what = "log record (it belongs to another place)";
                    let next = self.found.last as u32 + 1;
                    self.torn(&file, &torn, (what, next, record.sequence as u32));
                    continue;
                }
                RecordStep::Damage {
                    offset,
                    expected,
                    found,
                } => {
                    let (to, mismatch) = (records.offset(), ("log record", expected, found));
                    let range = TornRange::new(&bytes, offset..to);
                    let by_crash = torn::by_crash(&range, number, self.found.last);
                    let longest = match self.mode == RecoveryMode::GoOn && by_crash {
                        true => MAX_TORN_CORRECTED_BYTES,
                        false => bit_correction::MAX_CORRECTED_BYTES,
                    };
                    if let Some(byte) = correct(&mut bytes, number, offset, longest) {
                        records = Records::new(&bytes, number, offset);
                        let lacked = torn::lacked_sector(&bytes, offset, byte as usize);
                        if lacked && is_seal(records.clone()) {
                            self.without_loss(index, offset as u64, None);
                            continue;
                        }
                        let error = file.cut(offset, mismatch, false).error();
                        let lost = PossibleLoss::Corrected { byte };
                        self.found.damage.push(Damage { error, lost });
                        continue;
                    }
                    records = Records::new(&bytes, number, to);
                    self.torn(&file, &TornRange::new(&bytes, offset..to), mismatch);
                    continue;
                }
                RecordStep::Record(record) => record,
            };
            let batch = !record.payload.is_empty();
            let next = self.found.last + 1;
            if record.synced >= next || (batch && record.sequence > next) {
                // Batch `next` should have come before this record.
                let what = "log order (a batch is missing), record";
                let mismatch = (what, next as u32, record.sequence as u32);
                let cut = self
                    .cut
                    .get_or_insert_with(|| file.cut(record.offset, mismatch, true));
                // It once was on disk: no crash lost it.
                cut.torn &= record.synced < next;
                let last_missing = match batch {
                    true => record.sequence - 1,
                    false => record.synced,
                };
                if self.mode == RecoveryMode::GoOn {
                    if !cut.torn {
                        return Err(cut.error());
                    }
                    cut.behind = cut.behind.max(record.sequence);
                    continue;
                }
                let damage = cut.damage(next, Some(last_missing));
                self.found.damage.push(damage);
                self.cut = None;
                self.places.clear();
                self.found.last = last_missing;
            }
            self.found.synced = self.found.synced.max(record.synced);
            if batch {
                self.batch(&record, path, apply)?;
                self.found.files[index].last = record.sequence;
            }
        }
        Ok(())
    }

    /// Notes bytes that are no record.
    fn torn(&mut self, file: &LogFile<'_>, range: &TornRange<'_>, mismatch: Mismatch) {
        let last = self.found.last;
        let by_crash = torn::by_crash(range, file.number, last);
        let cut = file.cut(range.from, mismatch, by_crash);
        let error = (!by_crash).then(|| cut.error());
        if torn::is_seal(range, file.number, last) {
            self.without_loss(file.index, cut.offset, error);
            return;
        }
        self.places.push((file.index, cut.offset, error));
        self.cut.get_or_insert(cut);
    }

    /// Damage in this file that costs nothing.
    fn without_loss(&mut self, file: usize, offset: u64, error: Option<Error>) {
        self.found.files[file].harmless.push(offset);
        self.found.damage.extend(error.map(Damage::without_loss));
    }

    /// A whole batch that follows the one before it, or is flushed.
    fn batch(
        &mut self,
        record: &Record<'_>,
        path: &Path,
        apply: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<()> {
        // Whatever was damaged before is flushed already, or was no batch.
        if let Some(cut) = self.cut.take() {
            tracing::warn!(file = %cut.path.display(), offset = cut.offset, "damaged log record skipped: it was a seal or a header, or its batch is in a table file already");
        }
        for (file, offset, error) in std::mem::take(&mut self.places) {
            self.without_loss(file, offset, error);
        }
        if record.sequence != self.found.last + 1 {
            return Ok(());
        }
        match payload::decode(record.payload) {
            Some(batch) => apply(record.sequence, batch)?,
            None => {
                let error = no_batch(path, record);
                if self.mode == RecoveryMode::GoOn {
                    return Err(error);
                }
                let lost = PossibleLoss::batches(record.sequence, Some(record.sequence));
                self.found.damage.push(Damage { error, lost });
            }
        }
        self.found.last = record.sequence;
        Ok(())
    }
}

/// The error for a whole record that holds no batch.
pub fn no_batch(path: &Path, record: &Record<'_>) -> Error {
    Error::corrupt(path, "batch in log record", record.offset as u64, 0, 0)
}

/// Whether the next record holds no batch.
fn is_seal(mut records: Records<'_>) -> bool {
    matches!(records.next(), Some(RecordStep::Record(r)) if r.payload.is_empty())
}

/// Puts one flipped bit of the record at `at` right, if it is a batch of at most `longest` bytes or a seal then; which byte that is.
pub fn correct(bytes: &mut [u8], log: u64, at: usize, longest: usize) -> Option<u64> {
    let (byte, mask) = record::correct(bytes, log, at)?;
    let fits = match Records::new(bytes, log, at).next() {
        Some(RecordStep::Record(r)) => {
            let batch = || payload::decode(r.payload).is_some() && r.payload.len() <= longest;
            r.synced <= r.sequence && (r.payload.is_empty() || batch())
        }
        _ => false,
    };
    if !fits {
        bytes[byte] ^= mask;
    }
    fits.then_some(byte as u64)
}

enum FileHead {
    Whole,
    Empty,
    Damaged(u32, u32),
}

fn head(number: u64, bytes: &[u8], path: &Path) -> Result<FileHead> {
    match header::check(KIND, number, bytes, path) {
        Ok(()) => Ok(FileHead::Whole),
        Err(Error::Corrupt { .. }) if bytes.iter().all(|b| *b == 0) => Ok(FileHead::Empty),
        Err(Error::Corrupt {
            expected, found, ..
        }) => Ok(FileHead::Damaged(expected, found)),
        Err(e) => Err(e),
    }
}
