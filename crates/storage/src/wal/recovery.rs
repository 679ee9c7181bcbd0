//! Replaying the log files at open: apply what is whole, cut what a crash tore, refuse what is damaged, or salvage around it.
//! The rule and its argument stand in the [module above](super).
use super::payload;
use super::record::{self, RecordStep, Records};
use super::torn::{self, TornRange};
use super::{KIND, OldLog, header};
use crate::damage::{Damage, LogCut, Lost};
use crate::{Batch, Error, Io, IoContext, Result};
use crate::{bit_correction, names, sectors};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The longest batch, in bytes, that is corrected where a crash can have torn it, in a store that goes on: some part of it is zeros, but most
/// batches end in a sector that holds little of them, and that may be zeros.
const LONGEST_TORN: usize = 4096;

/// What the log held.
pub struct Recovered {
    /// The last batch, flushed ones included.
    pub last: u64,
    /// Through this batch the log is known to have been on disk.
    pub synced: u64,
    /// The files that stay, in order.
    pub files: Vec<OldLog>,
    /// What is damaged, or had to be cut although it is whole.
    pub damage: Vec<Damage>,
    /// Where it was cut, if a crash had torn it. A salvage cuts nothing.
    pub cut: Option<LogCut>,
}

/// What is done about damage that no crash explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryMode {
    /// The store goes on: it is an error if it costs a batch.
    GoOn,
    /// Whatever is whole is applied, and nothing is changed on disk.
    Salvage,
}

/// What the manifest tells of the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExpectedLog {
    /// Batches through this one are in the files of all engines.
    pub flushed: u64,
    /// Batches through this one are in files of one engine: the log had them on disk before, for the other.
    pub synced: u64,
    /// The last batch, if the store was closed.
    pub last: Option<u64>,
    /// A log file that there is.
    pub file: Option<u64>,
}

/// Where the log ends although bytes follow.
#[derive(Debug)]
struct CutPoint {
    path: PathBuf,
    file: usize,
    offset: u64,
    expected: u32,
    found: u32,
    what: &'static str,
    /// Whether a crash can have left it so.
    torn: bool,
    /// The last whole batch after it.
    behind: u64,
}

impl CutPoint {
    fn error(&self) -> Error {
        Error::corrupt(
            &self.path,
            self.what,
            self.offset,
            self.expected,
            self.found,
        )
    }

    fn damage(&self, first: u64, last: Option<u64>) -> Damage {
        Damage {
            error: self.error(),
            lost: Lost::Batches { first, last },
        }
    }
}

/// Reads the whole file.
pub fn read_file(io: &dyn Io, path: &Path) -> Result<Vec<u8>> {
    let file = io.open(path).context("open", path)?;
    let length = file.len().context("measure", path)?;
    let mut bytes = vec![0; length as usize];
    let n = file.read_at(&mut bytes, 0).context("read", path)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The same, with zeros where the disk cannot read it.
fn read_around(io: &dyn Io, path: &Path) -> Result<Vec<u8>> {
    let file = io.open(path).context("open", path)?;
    let length = file.len().context("measure", path)?;
    sectors::read(&*file, path, 0, length as usize).context("read", path)
}

/// Replays log files `numbers` (ascending) into `apply`, batches that are not flushed only, each batch once and in
/// order. A store that goes on: cuts a torn end on disk too, so that nothing after it can come back, and syncs the files that stay.
///
/// # Errors
/// [`Error::Corrupt`] if the store is to go on and a batch is damaged or missing that no crash can have torn; [`Error::Format`] for a newer
/// version; or what `apply` returns.
pub fn recover(
    io: &dyn Io,
    dir: &Path,
    numbers: &[u64],
    expected: ExpectedLog,
    mode: RecoveryMode,
    apply: &mut dyn FnMut(u64, Batch) -> Result<()>,
) -> Result<Recovered> {
    let mut replay = Replay {
        mode,
        last: expected.flushed,
        synced: expected.flushed,
        files: Vec::new(),
        damage: Vec::new(),
        cut: None,
        places: Vec::new(),
        harmless: Vec::new(),
    };
    for (index, number) in numbers.iter().enumerate() {
        replay.file(index, *number, names::log(dir, *number), io, apply)?;
    }
    let Replay {
        last,
        synced,
        mut files,
        mut damage,
        cut,
        harmless,
        ..
    } = replay;
    for (file, offset) in harmless {
        files[file].harmless.push(offset);
    }
    let missing = missing(dir, numbers, expected, last);
    if mode == RecoveryMode::Salvage {
        // Nothing whole follows: how much it was is not known.
        damage.extend(cut.map(|cut| cut.damage(last + 1, None)));
        damage.extend(missing);
        return Ok(Recovered {
            last,
            synced,
            files,
            damage,
            cut: None,
        });
    }
    if let Some(missing) = missing {
        return Err(cut.map_or(missing.error, |cut| cut.error()));
    }
    let mut cut_at = None;
    if let Some(cut) = cut {
        if !cut.torn {
            return Err(cut.error());
        }
        cut_log(io, dir, numbers, &cut, expected.file)?;
        cut_at = numbers.get(cut.file).map(|number| LogCut {
            file: *number,
            offset: cut.offset,
        });
        tracing::warn!(
            file = %cut.path.display(), offset = cut.offset, last_batch = last,
            "log cut at its last whole record: what followed was torn by a crash"
        );
        if cut.behind > last {
            let behind = cut.damage(last + 1, Some(cut.behind));
            tracing::warn!(
                "{behind}; a crash tore the first of them, so that those behind it were cut too"
            );
            damage.push(behind);
        }
        let keep = cut.file + usize::from(cut.offset > 0);
        if let Some(file) = files[..keep].last_mut().filter(|_| cut.offset > 0) {
            file.bytes = cut.offset;
        }
        // What is left of the file that the manifest names is an empty one.
        let behind = files.split_off(keep);
        let named = behind
            .into_iter()
            .filter(|f| Some(f.number) == expected.file);
        files.extend(named.map(|file| OldLog {
            last: 0,
            bytes: 0,
            harmless: Vec::new(),
            ..file
        }));
    }
    for file in &files {
        let path = names::log(dir, file.number);
        let handle = io.open(&path).context("open", &path)?;
        handle.sync().hard_context("sync", &path)?;
    }
    io.sync_dir(dir).hard_context("sync", dir)?;
    Ok(Recovered {
        last,
        synced,
        files,
        damage,
        cut: cut_at,
    })
}

/// What is missing at the end of the log although the manifest tells of it.
fn missing(dir: &Path, numbers: &[u64], expected: ExpectedLog, last: u64) -> Option<Damage> {
    let error = |path: PathBuf, what, expected: u64, found: u64| {
        Error::corrupt(&path, what, 0, expected as u32, found as u32)
    };
    if let Some(end) = expected.last.filter(|end| last < *end) {
        let path = names::log(dir, numbers.last().copied().unwrap_or(0));
        let what = "log end (the store was closed after more batches), file";
        return Some(Damage {
            error: error(path, what, end, last),
            lost: Lost::Batches {
                first: last + 1,
                last: Some(end),
            },
        });
    }
    let file = expected.file?;
    if !numbers.contains(&file) {
        let what = "log (the file is missing)";
        return Some(Damage {
            error: error(names::log(dir, file), what, file, 0),
            lost: Lost::Batches {
                first: last + 1,
                last: None,
            },
        });
    }
    (last < expected.synced).then(|| {
        let path = names::log(dir, numbers.last().copied().unwrap_or(file));
        let what = "log end (tables hold a part of later batches), file";
        Damage {
            error: error(path, what, expected.synced, last),
            lost: Lost::Batches {
                first: last + 1,
                last: Some(expected.synced),
            },
        }
    })
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
struct Replay {
    mode: RecoveryMode,
    last: u64,
    synced: u64,
    files: Vec<OldLog>,
    damage: Vec<Damage>,
    cut: Option<CutPoint>,
    /// Damage since the last batch that follows the one before it: file, offset, and the error if no crash explains it.
    places: Vec<(usize, u64, Option<Error>)>,
    /// The same, once it is known that it costs nothing.
    harmless: Vec<(usize, u64)>,
}

impl Replay {
    fn file(
        &mut self,
        index: usize,
        number: u64,
        path: PathBuf,
        io: &dyn Io,
        apply: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<()> {
        let read = match self.mode {
            RecoveryMode::GoOn => read_file(io, &path),
            RecoveryMode::Salvage => read_around(io, &path),
        };
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if self.mode == RecoveryMode::Salvage => {
                let lost = Lost::Batches {
                    first: self.last + 1,
                    last: None,
                };
                self.damage.push(Damage { error, lost });
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let mut file_last = 0;
        let mut records = Records::new(&bytes, number, header::LENGTH.min(bytes.len()));
        match head(number, &bytes, &path)? {
            FileHead::Whole => {}
            FileHead::Empty => records = Records::new(&bytes, number, bytes.len()),
            FileHead::Damaged(expected, found) => {
                let mut ahead = Records::new(&bytes, number, header::LENGTH.min(bytes.len()));
                let to = match ahead.next() {
                    Some(RecordStep::Record(_)) => header::LENGTH,
                    _ => ahead.offset(),
                };
                let hole = TornRange {
                    bytes: &bytes,
                    from: 0,
                    to,
                };
                self.hole(index, number, &path, &hole, ("log header", expected, found));
            }
        }
        let misplaced = match self.mode {
            RecoveryMode::GoOn => HashSet::new(),
            RecoveryMode::Salvage => misplaced(records.clone()),
        };
        while let Some(step) = records.next() {
            let record = match step {
                RecordStep::Record(record) if misplaced.contains(&record.offset) => {
                    let hole = TornRange {
                        bytes: &bytes,
                        from: record.offset,
                        to: records.offset(),
                    };
                    let what = "log record (it belongs to another place)";
                    let (next, found) = (self.last as u32 + 1, record.sequence as u32);
                    self.hole(index, number, &path, &hole, (what, next, found));
                    continue;
                }
                RecordStep::Damage {
                    offset,
                    expected,
                    found,
                } => {
                    let to = records.offset();
                    if let Some(damage) =
                        self.corrected(&mut bytes, number, &path, offset, to, (expected, found))
                    {
                        self.damage.push(damage);
                        records = Records::new(&bytes, number, offset);
                        continue;
                    }
                    records = Records::new(&bytes, number, to);
                    let hole = TornRange {
                        bytes: &bytes,
                        from: offset,
                        to,
                    };
                    self.hole(index, number, &path, &hole, ("log record", expected, found));
                    continue;
                }
                RecordStep::Record(record) => record,
            };
            let batch = !record.payload.is_empty();
            let next = self.last + 1;
            if record.synced >= next || (batch && record.sequence > next) {
                // Batch `next` should have come before this record.
                let cut = self.cut.get_or_insert_with(|| CutPoint {
                    path: path.clone(),
                    file: index,
                    offset: record.offset as u64,
                    expected: next as u32,
                    found: record.sequence as u32,
                    what: "log order (a batch is missing), record",
                    torn: true,
                    behind: 0,
                });
                // It once was on disk: no crash lost it.
                cut.torn &= record.synced < next;
                let first_missing = next;
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
                let damage = cut.damage(first_missing, Some(last_missing));
                self.damage.push(damage);
                self.cut = None;
                self.places.clear();
                self.last = last_missing;
            }
            self.synced = self.synced.max(record.synced);
            if batch {
                self.batch(&record, &path, apply)?;
                file_last = record.sequence;
            }
        }
        self.files.push(OldLog {
            number,
            last: file_last,
            bytes: bytes.len() as u64,
            harmless: Vec::new(),
            unsynced: None,
        });
        Ok(())
    }

    /// Puts the record at `offset`, before the next one at `to`, right if one bit of it was flipped.
    fn corrected(
        &self,
        bytes: &mut [u8],
        number: u64,
        path: &Path,
        offset: usize,
        to: usize,
        (expected, found): (u32, u32),
    ) -> Option<Damage> {
        let hole = TornRange {
            bytes: &*bytes,
            from: offset,
            to,
        };
        let longest =
            match self.mode == RecoveryMode::GoOn && torn::by_crash(&hole, number, self.last) {
                true => LONGEST_TORN,
                false => bit_correction::LONGEST,
            };
        let byte = correct(bytes, number, offset, longest)?;
        let error = Error::corrupt(path, "log record", offset as u64, expected, found);
        let lost = Lost::Corrected { byte };
        Some(Damage { error, lost })
    }

    /// Notes bytes that are no record.
    fn hole(
        &mut self,
        file: usize,
        number: u64,
        path: &Path,
        hole: &TornRange<'_>,
        (what, expected, found): (&'static str, u32, u32),
    ) {
        let cut = CutPoint {
            path: path.to_path_buf(),
            file,
            offset: hole.from as u64,
            expected,
            found,
            what,
            torn: torn::by_crash(hole, number, self.last),
            behind: 0,
        };
        let error = (!cut.torn).then(|| cut.error());
        if torn::is_seal(hole, number, self.last) {
            self.harmless.push((file, cut.offset));
            self.damage.extend(error.map(Damage::harmless));
            return;
        }
        self.places.push((file, cut.offset, error));
        self.cut.get_or_insert(cut);
    }

    /// A whole batch that follows the one before it, or is flushed.
    fn batch(
        &mut self,
        record: &super::record::Record<'_>,
        path: &Path,
        apply: &mut dyn FnMut(u64, Batch) -> Result<()>,
    ) -> Result<()> {
        // Whatever was damaged before is flushed already, or was no batch.
        if let Some(cut) = self.cut.take() {
            tracing::warn!(file = %cut.path.display(), offset = cut.offset, "damaged log record skipped: it was a seal or a header, or its batch is in a table file already");
        }
        for (file, offset, error) in self.places.drain(..) {
            self.harmless.push((file, offset));
            self.damage.extend(error.map(Damage::harmless));
        }
        if record.sequence != self.last + 1 {
            return Ok(());
        }
        let batch = payload::decode(record.payload)
            .ok_or_else(|| Error::corrupt(path, "batch in log record", record.offset as u64, 0, 0));
        match batch {
            Ok(batch) => apply(record.sequence, batch)?,
            Err(error) if self.mode == RecoveryMode::Salvage => {
                let lost = Lost::Batches {
                    first: record.sequence,
                    last: Some(record.sequence),
                };
                self.damage.push(Damage { error, lost });
            }
            Err(error) => return Err(error),
        }
        self.last = record.sequence;
        Ok(())
    }
}

/// Puts one flipped bit of the record at `at` right, if it is a batch of at most `longest` bytes or a seal then; which byte that is.
fn correct(bytes: &mut [u8], log: u64, at: usize, longest: usize) -> Option<u64> {
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

/// Removes everything after the cut, last file first. Of the file that the manifest names, `named`, the bytes go only: after another crash it
/// would be missed.
fn cut_log(
    io: &dyn Io,
    dir: &Path,
    numbers: &[u64],
    cut: &CutPoint,
    named: Option<u64>,
) -> Result<()> {
    let shorten = |path: &Path, length| {
        let file = io.open(path).context("open", path)?;
        file.set_len(length).context("cut", path)?;
        file.sync().hard_context("sync", path)
    };
    let keep = cut.file + usize::from(cut.offset > 0);
    for number in numbers[keep..].iter().rev() {
        let path = names::log(dir, *number);
        if Some(*number) == named {
            shorten(&path, 0)?;
            continue;
        }
        io.remove(&path).context("remove", &path)?;
        io.sync_dir(dir).hard_context("sync", dir)?;
    }
    match cut.offset {
        0 => Ok(()),
        offset => shorten(&cut.path, offset),
    }
}

/// Reads one log file's records up to `end` bytes and reports all damage but that at `harmless` places, for a store
/// that is open.
pub fn check(
    io: &dyn Io,
    dir: &Path,
    number: u64,
    end: u64,
    harmless: &[u64],
    damage: &mut Vec<Damage>,
) {
    let path = names::log(dir, number);
    let mut seen = 0;
    let lost = |seen: u64| Lost::Batches {
        first: seen + 1,
        last: None,
    };
    let mut report = |error, lost| damage.push(Damage { error, lost });
    let mut bytes = match read_file(io, &path) {
        Ok(bytes) => bytes,
        Err(e) => return report(e, lost(seen)),
    };
    let length = bytes.len() as u64;
    bytes.truncate(end as usize);
    if bytes.iter().all(|b| *b == 0) && end == 0 {
        return;
    }
    if let Err(e) = header::check(KIND, number, &bytes, &path)
        && !harmless.contains(&0)
    {
        report(e, lost(seen));
    }
    let corrupt = |what, offset: usize, expected, found| {
        Error::corrupt(&path, what, offset as u64, expected, found)
    };
    let mut records = Records::new(&bytes, number, header::LENGTH.min(bytes.len()));
    while let Some(step) = records.next() {
        match step {
            RecordStep::Damage { offset, .. } if harmless.contains(&(offset as u64)) => {}
            RecordStep::Damage {
                offset,
                expected,
                found,
            } => {
                let to = records.offset();
                let error = corrupt("log record", offset, expected, found);
                let Some(byte) = correct(&mut bytes, number, offset, bit_correction::LONGEST)
                else {
                    report(error, lost(seen));
                    records = Records::new(&bytes, number, to);
                    continue;
                };
                report(error, Lost::Corrected { byte });
                records = Records::new(&bytes, number, offset);
            }
            RecordStep::Record(r) => {
                if !r.payload.is_empty() && payload::decode(r.payload).is_none() {
                    let error = corrupt("batch in log record", r.offset, 0, 0);
                    report(error, lost(seen));
                }
                seen = r.sequence;
            }
        }
    }
    if length < end {
        report(
            corrupt("log end", length as usize, end as u32, length as u32),
            lost(seen),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::WalWriter;
    use super::*;
    use crate::Keyspace;
    use crate::fault::FaultIo;

    fn batch(sequence: u64, log: u64) -> Vec<u8> {
        let mut batch = Batch::new();
        batch.put(Keyspace(0), vec![sequence as u8], "value");
        let mut bytes = Vec::new();
        record::write(&mut bytes, log, sequence, sequence - 1, |out| {
            payload::encode(out, &batch.ops, &batch.entries)
        });
        bytes
    }

    #[test]
    fn a_record_written_to_a_wrong_place_hides_none_of_those_behind_it() {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut log = WalWriter::create(&io, dir, 1).unwrap();
        let mut places = Vec::new();
        for sequence in 1..=6 {
            log.append(&batch(sequence, 1)).unwrap();
            places.push(log.end());
        }
        log.file().write_at(&batch(6, 1), places[0]).unwrap();
        let mut found = Vec::new();
        let apply = &mut |sequence, _| {
            found.push(sequence);
            Ok(())
        };
        let expected = ExpectedLog::default();
        let recovered = recover(&io, dir, &[1], expected, RecoveryMode::Salvage, apply).unwrap();
        assert_eq!((found, recovered.last), (vec![1, 3, 4, 5, 6], 6));
        let lost: Vec<&Lost> = recovered.damage.iter().map(|d| &d.lost).collect();
        let second = Lost::Batches {
            first: 2,
            last: Some(2),
        };
        assert_eq!(lost, [&second]);
    }

    #[test]
    fn a_seal_torn_before_the_next_file_began_is_no_damage() {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut first = WalWriter::create(&io, dir, 1).unwrap();
        first.append(&batch(1, 1)).unwrap();
        let seal = first.end();
        first.file().write_at(&[9; record::SEAL], seal).unwrap();
        let mut second = WalWriter::create(&io, dir, 2).unwrap();
        second.append(&batch(2, 2)).unwrap();
        let mut found = Vec::new();
        let recovered = recover(
            &io,
            dir,
            &[1, 2],
            ExpectedLog::default(),
            RecoveryMode::GoOn,
            &mut |sequence, _| {
                found.push(sequence);
                Ok(())
            },
        );
        let recovered = recovered.unwrap();
        assert_eq!((found, recovered.last), (vec![1, 2], 2));
        assert_eq!(recovered.files[0].harmless, [seal]);
        let damage = |number, bytes, harmless: &[u64]| {
            let mut errors = Vec::new();
            check(&io, dir, number, bytes, harmless, &mut errors);
            errors.len()
        };
        for file in &recovered.files {
            assert_eq!(damage(file.number, file.bytes, &file.harmless), 0);
        }
        assert_eq!(damage(1, recovered.files[0].bytes, &[]), 1);
    }

    /// Recovers one log file of two batches; the last batch that is there.
    fn last_of(bytes: &[u8]) -> (u64, Vec<Damage>) {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut log = WalWriter::create(&io, dir, 1).unwrap();
        log.append(&batch(1, 1)).unwrap();
        log.append(bytes).unwrap();
        let apply = &mut |_, _| Ok(());
        let recovered = recover(
            &io,
            dir,
            &[1],
            ExpectedLog::default(),
            RecoveryMode::GoOn,
            apply,
        );
        let recovered = recovered.unwrap();
        (recovered.last, recovered.damage)
    }

    #[test]
    fn a_flipped_bit_is_put_right_also_where_the_end_of_a_batch_may_be_a_sector_that_was_never_written()
     {
        for length in 1..600 {
            let mut value = vec![b'v'; length];
            value.extend([0; 7]);
            let mut whole = Vec::new();
            let mut batch = Batch::new();
            batch.put(Keyspace(0), "key", value);
            record::write(&mut whole, 1, 2, 1, |out| {
                payload::encode(out, &batch.ops, &batch.entries)
            });
            let mut flipped = whole.clone();
            flipped[record::HEADER + 3] ^= 1;
            let (last, damage) = last_of(&flipped);
            assert_eq!(last, 2, "{length}");
            let told = |d: &Damage| matches!(d.lost, Lost::Corrected { .. });
            assert!(damage.len() == 1 && told(&damage[0]), "{damage:?}");
            // Only a part of it was written.
            let mut torn = whole;
            torn[record::HEADER + 3..].fill(0);
            assert_eq!(last_of(&torn).0, 1, "{length}");
        }
    }
}
