//! Replaying the log files at open: apply what is whole, cut what a crash tore, refuse what is damaged.
//! The rule and its argument stand in the [module above](super).
use super::payload::{self, Payload};
use super::record::{Records, Step};
use super::{KIND, header};
use crate::names;
use crate::{Error, Io, Result};
use std::path::{Path, PathBuf};

/// A log file that stays until its batches are flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The number in its name.
    pub number: u64,
    /// The last batch in it.
    pub last: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it is damaged and nothing is lost: torn seals, and batches that a table file holds.
    pub harmless: Vec<u64>,
}

/// What the log held.
#[derive(Debug)]
pub struct Recovered {
    /// The last batch, flushed ones included.
    pub last: u64,
    /// The files that stay, in order.
    pub files: Vec<Replayed>,
}

/// Where the log ends although bytes follow.
#[derive(Debug)]
struct Cut {
    path: PathBuf,
    file: usize,
    offset: u64,
    expected: u32,
    found: u32,
    what: &'static str,
}

impl Cut {
    fn error(&self) -> Error {
        Error::Corrupt {
            path: self.path.clone(),
            what: self.what,
            offset: self.offset,
            expected: self.expected,
            found: self.found,
        }
    }
}

/// Reads the whole file.
pub fn read_file(io: &dyn Io, path: &Path) -> Result<Vec<u8>> {
    let file = io.open(path).map_err(|e| Error::io("open", path, e))?;
    let length = file.len().map_err(|e| Error::io("measure", path, e))?;
    let mut bytes = vec![0; length as usize];
    let n = file
        .read_at(&mut bytes, 0)
        .map_err(|e| Error::io("read", path, e))?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Replays log files `numbers` (ascending) into `apply`, batches after `flushed` only, each batch once and in
/// order. Cuts a torn end on disk too, so that nothing behind it can come back. The files that stay are synced.
///
/// # Errors
/// [`Error::Corrupt`] if a batch that was once on disk is damaged; [`Error::Format`] for a newer
/// version; or what `apply` returns.
pub fn recover(
    io: &dyn Io,
    dir: &Path,
    numbers: &[u64],
    flushed: u64,
    apply: &mut dyn FnMut(u64, Payload) -> Result<()>,
) -> Result<Recovered> {
    let mut last = flushed;
    let mut files = Vec::new();
    let mut cut: Option<Cut> = None;
    // Damage since the last batch that follows the one before it: (file, offset).
    let mut damage: Vec<(usize, u64)> = Vec::new();
    let mut harmless: Vec<(usize, u64)> = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        let path = names::log(dir, *number);
        let bytes = read_file(io, &path)?;
        let mut file_last = 0;
        let from = match head(*number, &bytes, &path)? {
            Head::Whole => header::LENGTH,
            Head::Empty => bytes.len(),
            Head::Torn(expected, found) => {
                damage.push((index, 0));
                cut.get_or_insert(Cut {
                    path: path.clone(),
                    file: index,
                    offset: 0,
                    expected,
                    found,
                    what: "log header",
                });
                header::LENGTH
            }
        };
        for step in Records::new(&bytes, *number, from) {
            let record = match step {
                Step::Damage {
                    offset,
                    expected,
                    found,
                } => {
                    damage.push((index, offset as u64));
                    cut.get_or_insert(Cut {
                        path: path.clone(),
                        file: index,
                        offset: offset as u64,
                        expected,
                        found,
                        what: "log record",
                    });
                    continue;
                }
                Step::Record(record) => record,
            };
            let batch = !record.payload.is_empty();
            let next = last + 1;
            if record.synced >= next || (batch && record.sequence > next) {
                // Batch `next` should have come before this record.
                let gap = Cut {
                    path: path.clone(),
                    file: index,
                    offset: record.offset as u64,
                    expected: next as u32,
                    found: record.sequence as u32,
                    what: "log order (a batch is missing), record",
                };
                let cut = cut.get_or_insert(gap);
                if record.synced >= next {
                    return Err(cut.error());
                }
                continue;
            }
            // Whatever was damaged before is flushed already, or was a seal.
            if batch {
                file_last = record.sequence;
                if let Some(cut) = cut.take() {
                    tracing::warn!(file = %cut.path.display(), offset = cut.offset, "damaged log record skipped: it was a seal, or its batch is in a table file already");
                }
                harmless.append(&mut damage);
                if record.sequence == next {
                    let payload =
                        payload::decode(record.payload).ok_or_else(|| Error::Corrupt {
                            path: path.clone(),
                            what: "batch in log record",
                            offset: record.offset as u64,
                            expected: 0,
                            found: 0,
                        })?;
                    apply(next, payload)?;
                    last = next;
                }
            }
        }
        files.push(Replayed {
            number: *number,
            last: file_last,
            bytes: bytes.len() as u64,
            harmless: Vec::new(),
        });
    }
    for (file, offset) in harmless {
        files[file].harmless.push(offset);
    }
    if let Some(cut) = cut {
        cut_log(io, dir, numbers, &cut)?;
        tracing::warn!(
            file = %cut.path.display(), offset = cut.offset, last_batch = last,
            "log cut at its last whole record: what followed was torn by a crash"
        );
        files.truncate(cut.file + usize::from(cut.offset > 0));
        if let Some(file) = files.last_mut().filter(|_| cut.offset > 0) {
            file.bytes = cut.offset;
        }
    }
    for file in &files {
        let path = names::log(dir, file.number);
        let handle = io.open(&path).map_err(|e| Error::io("open", &path, e))?;
        handle.sync().map_err(|e| Error::hard("sync", &path, e))?;
    }
    io.sync_dir(dir).map_err(|e| Error::hard("sync", dir, e))?;
    Ok(Recovered { last, files })
}

enum Head {
    Whole,
    Empty,
    Torn(u32, u32),
}

fn head(number: u64, bytes: &[u8], path: &Path) -> Result<Head> {
    match header::check(KIND, number, bytes, path) {
        Ok(()) => Ok(Head::Whole),
        Err(Error::Corrupt { .. }) if bytes.iter().all(|b| *b == 0) => Ok(Head::Empty),
        Err(Error::Corrupt {
            expected, found, ..
        }) => Ok(Head::Torn(expected, found)),
        Err(e) => Err(e),
    }
}

/// Removes everything behind the cut, last file first.
fn cut_log(io: &dyn Io, dir: &Path, numbers: &[u64], cut: &Cut) -> Result<()> {
    let keep = cut.file + usize::from(cut.offset > 0);
    for number in numbers[keep..].iter().rev() {
        let path = names::log(dir, *number);
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
        io.sync_dir(dir).map_err(|e| Error::hard("sync", dir, e))?;
    }
    if cut.offset > 0 {
        let file = io
            .open(&cut.path)
            .map_err(|e| Error::io("open", &cut.path, e))?;
        file.set_len(cut.offset)
            .map_err(|e| Error::io("cut", &cut.path, e))?;
        file.sync().map_err(|e| Error::hard("sync", &cut.path, e))?;
    }
    Ok(())
}

/// Reads one log file's records up to `end` bytes and reports all damage but that at `harmless` places, for a store
/// that is open.
pub fn check(
    io: &dyn Io,
    dir: &Path,
    number: u64,
    end: u64,
    harmless: &[u64],
    errors: &mut Vec<Error>,
) {
    let path = names::log(dir, number);
    let mut bytes = match read_file(io, &path) {
        Ok(bytes) => bytes,
        Err(e) => return errors.push(e),
    };
    if (bytes.len() as u64) < end {
        errors.push(Error::Corrupt {
            path: path.clone(),
            what: "log end",
            offset: bytes.len() as u64,
            expected: end as u32,
            found: bytes.len() as u32,
        });
    }
    bytes.truncate(end as usize);
    if bytes.iter().all(|b| *b == 0) && end == 0 {
        return;
    }
    if let Err(e) = header::check(KIND, number, &bytes, &path)
        && !harmless.contains(&0)
    {
        errors.push(e);
    }
    for step in Records::new(&bytes, number, header::LENGTH) {
        match step {
            Step::Damage { offset, .. } if harmless.contains(&(offset as u64)) => {}
            Step::Damage {
                offset,
                expected,
                found,
            } => {
                errors.push(Error::Corrupt {
                    path: path.clone(),
                    what: "log record",
                    offset: offset as u64,
                    expected,
                    found,
                });
            }
            Step::Record(r) if !r.payload.is_empty() && payload::decode(r.payload).is_none() => {
                errors.push(Error::Corrupt {
                    path: path.clone(),
                    what: "batch in log record",
                    offset: r.offset as u64,
                    expected: 0,
                    found: 0,
                });
            }
            Step::Record(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{record, writer::LogWriter};
    use super::*;
    use crate::fault::FaultIo;
    use crate::{Batch, Keyspace};

    fn batch(sequence: u64, log: u64) -> Vec<u8> {
        let mut batch = Batch::new();
        batch.put(Keyspace(0), vec![sequence as u8], "value");
        let mut bytes = Vec::new();
        record::write(&mut bytes, log, sequence, sequence - 1, |out| {
            payload::encode(out, &batch.ops, &batch.side)
        });
        bytes
    }

    #[test]
    fn a_seal_torn_before_the_next_file_began_is_no_damage() {
        let (io, dir) = (FaultIo::new(1), Path::new("/node"));
        io.create_dir_all(dir).unwrap();
        let mut first = LogWriter::create(&io, dir, 1).unwrap();
        first.append(&batch(1, 1)).unwrap();
        let seal = first.end();
        first.file().write_at(&[9; record::SEAL], seal).unwrap();
        let mut second = LogWriter::create(&io, dir, 2).unwrap();
        second.append(&batch(2, 2)).unwrap();
        let mut found = Vec::new();
        let recovered = recover(&io, dir, &[1, 2], 0, &mut |sequence, _| {
            found.push(sequence);
            Ok(())
        });
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
}
