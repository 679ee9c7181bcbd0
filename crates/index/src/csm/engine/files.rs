//! The engine's entries in the store's log and manifest.
//!
//! ```text
//!  log:       the records of a batch, in its order, as columns like those of a `block`, whose records would be in key order
//!  manifest:  version, 1 byte: 1 | `TableRecord` of the table file, postcard
//! ```
use super::super::block::{decode_columns, encode_columns};
use super::super::record::{Key, Record};
use super::super::sorted::SortedRun;
use super::super::table::{Table, TableContext, TableMeta};
use super::view::AgedRun;
use bytes::Bytes;
use forebay_storage::{EngineEntry, EngineHost, Error, IoContext, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const VERSION: u8 = 1;

/// What the manifest tells of a table file: the age of its run (younger runs have a greater one), bytes, records, the least key
/// and the greatest, whether some are deletes.
type TableRecord = (u64, u64, u64, Key, Key, bool);

/// What the manifest is to tell of the table in the file `path`, of the run of this age.
///
/// # Errors
/// `Format`: it cannot be written so.
pub fn table_record(age: u64, meta: &TableMeta, path: &Path) -> Result<Bytes> {
    let (first, last) = (meta.first, meta.last);
    let record: TableRecord = (age, meta.bytes, meta.records, first, last, meta.deletes);
    let encoded = postcard::to_extend(&record, vec![VERSION]);
    encoded.map(Bytes::from).map_err(|e| {
        Error::format(
            path,
            format!("the manifest cannot tell of it ({e}); report this"),
        )
    })
}

/// What the manifest is to tell of these tables of a run of this age, by number.
///
/// # Errors
/// As [`table_record`].
pub fn table_records<'a>(
    age: u64,
    tables: impl Iterator<Item = &'a Arc<Table>>,
) -> Result<Vec<(u64, Bytes)>> {
    let record = |t: &Arc<Table>| Ok((t.meta().number, table_record(age, t.meta(), t.path())?));
    tables.map(record).collect()
}

/// The table and the age of its run, from what the manifest tells; or what is the matter.
pub fn read(number: u64, bytes: &[u8]) -> Result<(u64, TableMeta), &'static str> {
    let (&version, rest) = bytes
        .split_first()
        .ok_or("the manifest tells nothing of it; run `forebay fsck`")?;
    if version != VERSION {
        return Err("the manifest tells of it in a newer way; use a newer Forebay");
    }
    let (age, bytes, records, first, last, deletes): TableRecord = postcard::from_bytes(rest)
        .map_err(|_| "what the manifest tells of it is damaged; run `forebay fsck`")?;
    let meta = TableMeta {
        number,
        bytes,
        records,
        first,
        last,
        deletes,
    };
    Ok((age, meta))
}

/// The runs that the manifest tells of, oldest first.
pub fn runs(host: &EngineHost, shared: &Arc<TableContext>) -> Result<Vec<AgedRun>> {
    let mut runs: BTreeMap<u64, Vec<TableMeta>> = BTreeMap::new();
    for (number, bytes) in host.files() {
        let format = |reason: &str| Error::format(&host.path(number), reason);
        let (age, mut meta) = read(number, &bytes).map_err(format)?;
        if meta.bytes == 0 {
            // The file told it of itself, see `Provenance`.
            meta.bytes = length(host, number)?;
        }
        runs.entry(age).or_default().push(meta);
    }
    if host.is_salvaged() {
        runs.values_mut().for_each(drop_older_of_overlapping);
    }
    let run = |(age, mut metas): (u64, Vec<TableMeta>)| {
        metas.sort_by_key(|meta| meta.first);
        let table = |meta: TableMeta| {
            let path = host.path(meta.number);
            Arc::new(Table::new(shared.clone(), path, meta))
        };
        AgedRun {
            age,
            run: SortedRun::new(metas.into_iter().map(table).collect()),
        }
    };
    Ok(runs.into_iter().map(run).collect())
}

/// The length of a file, bytes.
fn length(host: &EngineHost, number: u64) -> Result<u64> {
    let path = host.path(number);
    let length = host.io.open_to_read(&path).and_then(|file| file.len());
    length.state_unknown_context("measure", &path)
}

/// Of tables of one run that overlap, as a killed store may have left them beside those that took their place, the newest stay.
fn drop_older_of_overlapping(metas: &mut Vec<TableMeta>) {
    metas.sort_by_key(|meta| std::cmp::Reverse(meta.number));
    let mut kept: Vec<TableMeta> = Vec::new();
    for meta in metas.drain(..) {
        if kept
            .iter()
            .all(|k| k.last < meta.first || meta.last < k.first)
        {
            kept.push(meta);
        }
    }
    *metas = kept;
}

/// Records of an entry, at most.
const MAX_ENTRY_RECORDS: usize = 64 << 10;

/// The entries of these records, in the order of the changes; and whether one adds an extent.
pub fn entries(records: Vec<Record>) -> impl Iterator<Item = (EngineEntry, bool)> {
    let pieces: Vec<Vec<Record>> = match records.len() {
        0 => Vec::new(),
        1..=MAX_ENTRY_RECORDS => vec![records],
        _ => records
            .chunks(MAX_ENTRY_RECORDS)
            .map(<[Record]>::to_vec)
            .collect(),
    };
    pieces.into_iter().map(|records| {
        let mut out = Vec::new();
        encode_columns(&records, &mut out);
        let adds = records.iter().any(|r| r.len > 0);
        let entry = EngineEntry {
            bytes: out.into(),
            form: Some(Arc::new(records)),
        };
        (entry, adds)
    })
}

/// The records of an entry. `None` if it is none.
pub fn records(entry: &EngineEntry) -> Option<Arc<Vec<Record>>> {
    let form = entry.form.clone().and_then(|form| form.downcast().ok());
    form.or_else(|| {
        let mut out = Vec::new();
        decode_columns(&entry.bytes, &mut out)?;
        Some(Arc::new(out))
    })
}
