//! End to end: arrays are written to a store through a disk of a given bandwidth, brought to disk, and read again: the last record,
//! then everything. The store encodes inline, by its own choice or as it is told.
//!
//! Invariants: every byte that is read is compared with the source, outside the measured time; each run has a new store.
use super::array::FloatArray;
use super::disk_model::DiskModel;
use super::subject::FieldsSubject;
use crate::fail::{Context, Failure, Result};
use crate::report::Values;
use forebay_codec::{CodecHint, ElementType};
use forebay_data::{CodecWhen, LogId, LogStore, LogStoreOptions};
use forebay_proto::Fid;
use forebay_storage::{Io, Options, OsIo, Store};
use forebay_testkit::random::Random;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a write, and of a read.
const RECORD: usize = 1 << 20;
/// Bytes of the last record.
const LAST_RECORD: usize = 4096;
/// Bytes that are written before.
const WARM_UP: usize = 48 << 20;
/// Memory of the store's tails.
const BUFFER_BYTES: u64 = 64 << 20;

/// What is done with the arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRun {
    /// MB/s of the disk; `None`: the real one, whatever it can.
    pub disk: Option<u32>,
    /// What is written.
    pub arrays: StoreArrays,
    /// What reads: everything once, or minimum, maximum and average of the numbers.
    pub reads: StoreReads,
}

/// What is written to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreArrays {
    /// The arrays of the folder `fields`; where it is not there, generated ones.
    Fields,
    /// Random bytes.
    Random,
}

/// What is read of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreReads {
    /// The last record, then everything.
    LastThenAll,
    /// All numbers, for minimum, maximum and average; the time of writing does not count.
    MinMaxAverage,
}

/// When a subject encodes, and by which hint. `None`: a store cannot do what it does.
pub(super) fn settings(subject: &FieldsSubject) -> Option<(CodecWhen, &'static str)> {
    Some(match subject.name {
        "forebay" => (CodecWhen::Auto, "auto"),
        "field" => (CodecWhen::Inline, "field"),
        "paper" => (CodecWhen::Inline, "xor"),
        "zstd-3" => (CodecWhen::Inline, "zstd"),
        "lz4" => (CodecWhen::Inline, "lz4"),
        "pco-8" => (CodecWhen::Inline, "pco"),
        "raw" => (CodecWhen::Off, "raw"),
        _ => return None,
    })
}

/// Whether the store can do what the subject does.
pub fn takes(subject: &FieldsSubject) -> bool {
    settings(subject).is_some()
}

impl StoreRun {
    /// Measures a subject. `dir`: where the store lies, on the real disk or in memory.
    ///
    /// # Errors
    /// As the store, or if something else is read than was written.
    pub fn measure(
        &self,
        dir: &Path,
        subject: &FieldsSubject,
        arrays: &[FloatArray],
    ) -> Result<Values> {
        let Some((when, codec)) = settings(subject) else {
            return Err(Failure::new(format!(
                "{} is not a setting of a store",
                subject.name
            )));
        };
        let io: Arc<dyn Io> = match self.disk {
            Some(rate) => DiskModel::over_files(f64::from(rate) * 1e6),
            None => Arc::new(OsIo),
        };
        // Records are few; what they take is not what is measured.
        let records = Store::open(Arc::new(OsIo), &dir.join("kv"), Options::default());
        let records = Arc::new(records.doing("open")?);
        let options = LogStoreOptions {
            member: 0,
            quota: None,
            buffer_bytes: BUFFER_BYTES,
            sync_each_flush: false,
            reserve: Arc::default(),
            settle: None,
            codec_when: when,
            background: true,
        };
        let data = dir.join("data");
        let store = LogStore::open(io, &data, records.clone(), options).doing("open")?;
        warm_up(&store)?;
        let begin = Instant::now();
        let mut logs = Vec::new();
        for (i, array) in arrays.iter().enumerate() {
            let hint = format!("{codec},{}", element_name(array.element));
            let hint = hint.parse().doing("the hint")?;
            let log = store.create_log(Fid(i as u64 + 1), hint).doing("create")?;
            for record in array.bytes.chunks(RECORD) {
                store.append(log, record).doing("write")?;
            }
            logs.push((log, array));
        }
        for (log, _) in &logs {
            store.flush(*log, true).doing("sync")?;
        }
        let write = begin.elapsed().as_secs_f64();
        if self.disk.is_none() {
            drop_cached(&data)?;
        }
        let stats = store.stats();
        let raw: usize = arrays.iter().map(|array| array.bytes.len()).sum();
        let mut values = match self.reads {
            StoreReads::LastThenAll => {
                let (last, all) = read_last_and_all(&store, &logs)?;
                vec![
                    ("io_time_s", "s", write + last + all),
                    (
                        "io_bytes_per_s",
                        "B/s",
                        2.0 * raw as f64 / (write + last + all),
                    ),
                    ("write_s", "s", write),
                    ("last_record_s", "s", last),
                    ("read_s", "s", all),
                ]
            }
            StoreReads::MinMaxAverage => {
                vec![("io_time_s", "s", min_max_average(&store, &logs)?)]
            }
        };
        values.push(("ratio", "ratio", raw as f64 / stats.stored.max(1) as f64));
        store.close().doing("close")?;
        records.close().doing("close")?;
        Ok(values)
    }
}

/// Writes bytes that no codec shortens, so that the store knows how fast the disk is, as one does that has run for a while.
fn warm_up(store: &LogStore) -> Result<()> {
    let log = store
        .create_log(Fid(u64::MAX), CodecHint::default())
        .doing("create")?;
    let mut random = Random::new(1);
    let bytes: Vec<u8> = (0..WARM_UP / 8)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    for record in bytes.chunks(RECORD) {
        store.append(log, record).doing("write")?;
    }
    store.flush(log, true).doing("sync")?;
    store.free(&[(log, 0..u64::MAX)]).doing("free")?;
    store.seal(log).doing("seal")
}

const fn element_name(element: ElementType) -> &'static str {
    forebay_codec::hint::element_name(element)
}

/// Seconds of reading the last record, and everything.
fn read_last_and_all(store: &LogStore, logs: &[(LogId, &FloatArray)]) -> Result<(f64, f64)> {
    let (log, array) = logs
        .last()
        .ok_or_else(|| Failure::new("there is no array"))?;
    let at = array.bytes.len().saturating_sub(LAST_RECORD);
    let mut record = vec![0; array.bytes.len() - at];
    let begin = Instant::now();
    store.read(*log, at as u64, &mut record).doing("read")?;
    let last = begin.elapsed().as_secs_f64();
    compare(&record, &array.bytes[at..])?;
    let mut all = 0.0;
    let mut record = vec![0; RECORD];
    for (log, array) in logs {
        for (i, source) in array.bytes.chunks(RECORD).enumerate() {
            let record = &mut record[..source.len()];
            let begin = Instant::now();
            store
                .read(*log, (i * RECORD) as u64, record)
                .doing("read")?;
            all += begin.elapsed().as_secs_f64();
            compare(record, source)?;
        }
    }
    Ok((last, all))
}

fn compare(found: &[u8], source: &[u8]) -> Result<()> {
    match found == source {
        true => Ok(()),
        false => Err(Failure::new("something else was read than was written")),
    }
}

/// Seconds of minimum, maximum and average of all numbers of each array (binary32 and binary64; of others the bytes are read).
fn min_max_average(store: &LogStore, logs: &[(LogId, &FloatArray)]) -> Result<f64> {
    let summaries = logs.iter().map(|(_, array)| {
        let mut expected = ValueSummary::default();
        for source in array.bytes.chunks(RECORD) {
            expected.add(array.element, source);
        }
        expected
    });
    let summaries: Vec<ValueSummary> = summaries.collect();
    let mut record = vec![0; RECORD];
    let begin = Instant::now();
    for ((log, array), expected) in logs.iter().zip(summaries) {
        let mut found = ValueSummary::default();
        for (i, source) in array.bytes.chunks(RECORD).enumerate() {
            let record = &mut record[..source.len()];
            store
                .read(*log, (i * RECORD) as u64, record)
                .doing("read")?;
            found.add(array.element, record);
        }
        if found != expected {
            return Err(Failure::new(
                "minimum, maximum or average are of other numbers",
            ));
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Minimum, maximum and sum of numbers; NaNs are passed over.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ValueSummary {
    min: f64,
    max: f64,
    sum: f64,
}

impl Default for ValueSummary {
    fn default() -> ValueSummary {
        ValueSummary {
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: 0.0,
        }
    }
}

impl ValueSummary {
    fn add(&mut self, element: ElementType, bytes: &[u8]) {
        match element {
            ElementType::F64 => {
                let values = bytes.as_chunks().0.iter();
                values.for_each(|value| self.add_value(f64::from_le_bytes(*value)));
            }
            _ => {
                let values = bytes.as_chunks().0.iter();
                values.for_each(|value| self.add_value(f32::from_le_bytes(*value).into()));
            }
        }
    }

    fn add_value(&mut self, value: f64) {
        if !value.is_nan() {
            self.min = self.min.min(value);
            self.max = self.max.max(value);
            self.sum += value;
        }
    }
}

/// Has the kernel forget what it has in memory of the store's files, which are on disk.
fn drop_cached(data: &Path) -> Result<()> {
    for entry in std::fs::read_dir(data).doing(data.display())? {
        let path = entry.doing(data.display())?.path();
        let file = std::fs::File::open(&path).doing(path.display())?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).doing(path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cases::GeneratedArray;
    use super::super::{generate, subject::SUBJECTS};
    use super::*;

    #[test]
    fn every_setting_of_a_store_reads_what_was_written() {
        let arrays = [
            generate::generate(GeneratedArray::Noisy, 5 << 18, 1),
            generate::generate(GeneratedArray::Random, 1_100_000, 2),
        ];
        for reads in [StoreReads::LastThenAll, StoreReads::MinMaxAverage] {
            let run = StoreRun {
                disk: Some(100),
                arrays: StoreArrays::Fields,
                reads,
            };
            for subject in SUBJECTS.iter().filter(|subject| takes(subject)) {
                let dir = tempfile::tempdir().unwrap();
                let values = run.measure(dir.path(), subject, &arrays).unwrap();
                let value = |metric| values.iter().find(|v| v.0 == metric).map(|v| v.2).unwrap();
                assert!(value("io_time_s") > 0.0);
                let is_shorter = value("ratio") > 1.05;
                assert_eq!(is_shorter, subject.name != "raw", "{}", subject.name);
            }
        }
    }
}
