//! Recovering the log at an open: its files are replayed ([`super::replay`]), the end that a crash tore is cut, and what is damaged or
//! missing is refused, or salvaged around. The rule and its argument stand in the [module above](super).
use super::OldLog;
use super::recovered::{RecoveredLog, RecoveryMode};
use super::replay::{CutPoint, Replay};
use crate::damage::{Damage, LogCut, PossibleLoss};
use crate::{Batch, Error, Io, IoContext, Result, names};
use std::path::Path;

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
) -> Result<RecoveredLog> {
    let mut replay = Replay::new(mode, expected.flushed);
    for number in numbers {
        replay.file(*number, &names::log(dir, *number), io, apply)?;
    }
    let Replay { mut found, cut, .. } = replay;
    let last = found.last;
    let missing = missing(dir, numbers, expected, last);
    if mode == RecoveryMode::Salvage {
        // Nothing whole follows: how much it was is not known.
        found
            .damage
            .extend(cut.map(|cut| cut.damage(last + 1, None)));
        found.damage.extend(missing);
        return Ok(found);
    }
    if let Some(missing) = missing {
        return Err(cut.map_or(missing.error, |cut| cut.error()));
    }
    if let Some(cut) = cut {
        if !cut.torn {
            return Err(cut.error());
        }
        cut_log(io, dir, numbers, &cut, expected.file)?;
        found.cut = numbers.get(cut.file).map(|number| LogCut {
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
            found.damage.push(behind);
        }
        let keep = cut.file + usize::from(cut.offset > 0);
        if let Some(file) = found.files[..keep].last_mut().filter(|_| cut.offset > 0) {
            file.bytes = cut.offset;
        }
        // What is left of the file that the manifest names is an empty one.
        let behind = found.files.split_off(keep);
        let named = behind
            .into_iter()
            .filter(|f| Some(f.number) == expected.file);
        found
            .files
            .extend(named.map(|file| OldLog::new(file.number, 0)));
    }
    for file in &found.files {
        let path = names::log(dir, file.number);
        let handle = io.open(&path).context("open", &path)?;
        handle.sync().state_unknown_context("sync", &path)?;
    }
    io.sync_dir(dir).state_unknown_context("sync", dir)?;
    Ok(found)
}

/// What is missing at the end of the log although the manifest tells of it.
fn missing(dir: &Path, numbers: &[u64], expected: ExpectedLog, last: u64) -> Option<Damage> {
    let damage = |file: u64, what, (expected, found): (u64, u64), end: Option<u64>| Damage {
        error: Error::corrupt(
            &names::log(dir, file),
            what,
            0,
            expected as u32,
            found as u32,
        ),
        lost: PossibleLoss::batches(last + 1, end),
    };
    let newest = numbers.last().copied();
    if let Some(end) = expected.last.filter(|end| last < *end) {
        let what = "log end (the store was closed after more batches), file";
        return Some(damage(newest.unwrap_or(0), what, (end, last), Some(end)));
    }
    let file = expected.file?;
    if !numbers.contains(&file) {
        return Some(damage(file, "log (the file is missing)", (file, 0), None));
    }
    let end = Some(expected.synced).filter(|synced| last < *synced)?;
    let what = "log end (tables hold a part of later batches), file";
    Some(damage(newest.unwrap_or(file), what, (end, last), Some(end)))
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
        file.sync().state_unknown_context("sync", path)
    };
    let keep = cut.file + usize::from(cut.offset > 0);
    for number in numbers[keep..].iter().rev() {
        let path = names::log(dir, *number);
        if Some(*number) == named {
            shorten(&path, 0)?;
            continue;
        }
        io.remove(&path).context("remove", &path)?;
        io.sync_dir(dir).state_unknown_context("sync", dir)?;
    }
    match cut.offset {
        0 => Ok(()),
        offset => shorten(&cut.path, offset),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::writer::WalWriter;
    use super::super::{payload, record};
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
        log.file.write_at(&batch(6, 1), places[0]).unwrap();
        let mut found = Vec::new();
        let apply = &mut |sequence, _| {
            found.push(sequence);
            Ok(())
        };
        let expected = ExpectedLog::default();
        let recovered = recover(&io, dir, &[1], expected, RecoveryMode::Salvage, apply).unwrap();
        assert_eq!((found, recovered.last), (vec![1, 3, 4, 5, 6], 6));
        let lost: Vec<&PossibleLoss> = recovered.damage.iter().map(|d| &d.lost).collect();
        let second = PossibleLoss::batches(2, Some(2));
        assert_eq!(lost, [&second]);
    }

    #[test]
    fn a_record_whose_first_sector_did_not_reach_the_disk_is_cut_also_where_a_seal_fills_that_sector()
     {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut log = WalWriter::create(&io, dir, 1).unwrap();
        let record = |sequence: u64, value: usize| {
            let mut batch = Batch::new();
            batch.put(Keyspace(0), vec![sequence as u8], vec![7; value]);
            let mut bytes = Vec::new();
            record::write(&mut bytes, 1, sequence, sequence - 1, |out| {
                payload::encode(out, &batch.ops, &batch.entries)
            });
            bytes
        };
        // Until a seal would end with a sector.
        let mut written = 0;
        while written == 0 || !(log.end() + record::SEAL_BYTES as u64).is_multiple_of(512) {
            written += 1;
            log.append(&record(written, 1 + written as usize % 40))
                .unwrap();
        }
        let seal = log.end();
        log.seal(written).unwrap();
        // Only what lies in the sectors behind the seal.
        let torn = record(written + 1, 300);
        let behind = seal + record::SEAL_BYTES as u64;
        log.file
            .write_at(&torn[record::SEAL_BYTES..], behind)
            .unwrap();
        let apply = &mut |_, _| Ok(());
        let expected = ExpectedLog::default();
        let recovered = recover(&io, dir, &[1], expected, RecoveryMode::GoOn, apply).unwrap();
        assert_eq!(recovered.last, written);
        assert_eq!(recovered.cut.map(|cut| cut.offset), Some(behind));
    }

    #[test]
    fn a_seal_torn_before_the_next_file_began_is_no_damage() {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut first = WalWriter::create(&io, dir, 1).unwrap();
        first.append(&batch(1, 1)).unwrap();
        let seal = first.end();
        first.file.write_at(&[9; record::SEAL_BYTES], seal).unwrap();
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

    #[test]
    fn a_seal_that_lacks_one_bit_because_a_sector_was_never_written_is_no_damage() {
        let mut tried = 0;
        for length in 1..600 {
            let mut batch = Batch::new();
            batch.put(Keyspace(0), "key", vec![b'v'; length]);
            let mut bytes = Vec::new();
            record::write(&mut bytes, 1, 1, 0, |out| {
                payload::encode(out, &batch.ops, &batch.entries)
            });
            let mut seal = Vec::new();
            record::write(&mut seal, 1, 1, 1, |_| {});
            let (io, dir) = (FaultIo::new(1), Path::new("/node"));
            io.create_dir_all(dir).unwrap();
            let mut log = WalWriter::create(&io, dir, 1).unwrap();
            log.append(&bytes).unwrap();
            let end = log.end() as usize;
            let written = (512 - end % 512).min(seal.len());
            let ones: u32 = seal[written..].iter().map(|b| b.count_ones()).sum();
            seal[written..].fill(0);
            if ones != 1 {
                continue;
            }
            tried += 1;
            log.file.write_at(&seal, end as u64).unwrap();
            let apply = &mut |_, _| Ok(());
            let expected = ExpectedLog::default();
            let recovered = recover(&io, dir, &[1], expected, RecoveryMode::GoOn, apply).unwrap();
            assert_eq!((recovered.last, recovered.damage.len()), (1, 0), "{length}");
            let mut errors = Vec::new();
            let file = &recovered.files[0];
            check(&io, dir, 1, file.bytes, &file.harmless, &mut errors);
            assert!(errors.is_empty(), "{length}: {errors:?}");
        }
        assert!(tried > 0);
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
            let told = |d: &Damage| matches!(d.lost, PossibleLoss::Corrected { .. });
            assert!(damage.len() == 1 && told(&damage[0]), "{damage:?}");
            // Only a part of it was written.
            let mut torn = whole;
            torn[record::HEADER + 3..].fill(0);
            assert_eq!(last_of(&torn).0, 1, "{length}");
        }
    }
}
