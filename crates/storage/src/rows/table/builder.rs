//! Writes a table file: blocks in key order, filter, metadata region, footer, sync. Beside it, it writes the copy of mirrored
//! entries: those of keyspaces from `Keyspace::FIRST_MIRRORED` on.
//!
//! Invariant: no manifest names a table before `finish` has returned. Until then the file is an orphan that the next open removes.
use super::{filter, footer::Footer, frame, index};
use crate::manifest::{Provenance, TableMeta};
use crate::names;
use crate::rows::block::{self, Entry};
use crate::{Error, File, Io, IoContext, Keyspace, Result, remove_unnamed};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes collected before a write call.
const WRITE: usize = 256 << 10;

/// Writes one table file.
pub struct TableBuilder<'a> {
    io: &'a dyn Io,
    file: Arc<dyn File>,
    path: PathBuf,
    number: u64,
    block_bytes: usize,
    /// Keys and values of the block being filled.
    pending: Vec<u8>,
    spans: Vec<(usize, usize, Option<usize>)>,
    buffer: Vec<u8>,
    written: u64,
    region: Vec<u8>,
    hashes: Vec<u64>,
    deletes: u64,
    first: Vec<u8>,
    last: Vec<u8>,
    /// The copy, once there is an entry for it.
    copy: Option<Box<TableBuilder<'a>>>,
    is_copy: bool,
}

impl<'a> TableBuilder<'a> {
    /// Creates table file `number` at this path, with blocks of about `block_bytes` before encoding.
    pub fn create(
        io: &'a dyn Io,
        path: PathBuf,
        number: u64,
        block_bytes: usize,
    ) -> Result<TableBuilder<'a>> {
        let file = io.create(&path).context("create", &path)?;
        Ok(TableBuilder {
            io,
            file,
            path,
            number,
            block_bytes,
            pending: Vec::new(),
            spans: Vec::new(),
            buffer: Vec::with_capacity(WRITE + block_bytes),
            written: 0,
            region: Vec::new(),
            hashes: Vec::new(),
            deletes: 0,
            first: Vec::new(),
            last: Vec::new(),
            copy: None,
            is_copy: false,
        })
    }

    /// The copy, for an entry that is mirrored. No block has entries of both kinds.
    fn copy(&mut self) -> Result<&mut TableBuilder<'a>> {
        if self.copy.is_none() {
            self.cut_block()?;
            let dir = self.path.parent().unwrap_or(Path::new("."));
            let path = names::table_copy(dir, self.number);
            let mut copy = TableBuilder::create(self.io, path, self.number, self.block_bytes)?;
            copy.is_copy = true;
            self.copy = Some(Box::new(copy));
        }
        let missing = || Error::invalid(&self.path, "the copy of a table was not made");
        self.copy.as_deref_mut().ok_or_else(missing)
    }

    /// Adds an entry: the keyspace byte, the key, and the value (`None` for a delete). Keys ascend strictly.
    pub fn add(&mut self, keyspace: u8, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if keyspace >= Keyspace::FIRST_MIRRORED.0 && !self.is_copy {
            self.copy()?.add(keyspace, key, value)?;
        }
        let start = self.pending.len();
        self.pending.push(keyspace);
        self.pending.extend_from_slice(key);
        let middle = self.pending.len();
        if self.hashes.is_empty() {
            self.first = self.pending[start..middle].to_vec();
        }
        self.hashes.push(filter::hash(&self.pending[start..middle]));
        self.deletes += u64::from(value.is_none());
        self.pending.extend_from_slice(value.unwrap_or_default());
        self.spans.push((start, middle, value.map(<[u8]>::len)));
        if self.pending.len() + self.spans.len() * 3 >= self.block_bytes {
            self.cut_block()?;
        }
        Ok(())
    }

    /// Bytes of blocks so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.hashes.len() as u64
    }

    fn cut_block(&mut self) -> Result<()> {
        let entries: Vec<Entry<'_>> = self
            .spans
            .iter()
            .map(|(start, middle, len)| {
                (
                    &self.pending[*start..*middle],
                    len.map(|n| &self.pending[*middle..middle + n]),
                )
            })
            .collect();
        let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else {
            return Ok(());
        };
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; frame::LENGTH]);
        block::encode(&entries, &mut self.buffer);
        let offset = self.written + at as u64;
        frame::fill(&mut self.buffer[at..], self.number, offset);
        let block = &self.buffer[at + frame::LENGTH..];
        index::push(
            &mut self.region,
            offset + frame::LENGTH as u64,
            block.len() as u32,
            forebay_checksum::crc32c(block),
            first,
            last,
        );
        self.last.clear();
        self.last.extend_from_slice(last);
        drop(entries);
        self.pending.clear();
        self.spans.clear();
        if self.buffer.len() >= WRITE {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        self.file
            .write_at(&self.buffer, self.written)
            .context("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Finishes a table of this level and syncs it with its directory entry. Its provenance is `provenance` with the table's own edit.
    pub fn finish(&mut self, dir: &Path, level: u8, provenance: &Provenance) -> Result<TableMeta> {
        if let Some(copy) = &mut self.copy {
            copy.end(&[])?;
        }
        self.cut_block()?;
        let mut provenance = provenance.clone();
        let own = TableMeta {
            number: self.number,
            // The file says it itself.
            bytes: 0,
            entries: self.entries(),
            deletes: self.deletes,
            first: std::mem::take(&mut self.first).into(),
            last: std::mem::take(&mut self.last).into(),
        };
        provenance.edit.add = vec![(level, own.clone())];
        self.end(&provenance.encode(self.number))?;
        self.io.sync_dir(dir).context("sync", dir)?;
        let bytes = self.written;
        Ok(TableMeta { bytes, ..own })
    }

    /// Writes filter, region, provenance (`told`) and footer, and syncs the file, without its directory entry.
    fn end(&mut self, told: &[u8]) -> Result<()> {
        self.cut_block()?;
        let filter = filter::build(&self.hashes);
        let filter_at = self.bytes();
        self.buffer.extend_from_slice(&filter);
        let index_at = self.bytes();
        let region = std::mem::take(&mut self.region);
        self.buffer.extend_from_slice(&region);
        let too_long = || Error::invalid(&self.path, "table too large: lower the MemTable size");
        let footer = Footer {
            format: block::FORMAT,
            entries: self.entries(),
            filter_at,
            index_at,
            filter_len: u32::try_from(filter.len()).map_err(|_| too_long())?,
            index_len: u32::try_from(region.len()).map_err(|_| too_long())?,
            filter_crc: forebay_checksum::crc32c(&filter),
            index_crc: forebay_checksum::crc32c(&region),
            deletes: u32::try_from(self.deletes).unwrap_or(u32::MAX),
        };
        self.buffer.extend_from_slice(told);
        self.buffer.extend_from_slice(&footer.encode());
        self.write_out()?;
        self.file.sync().context("sync", &self.path)
    }

    /// Removes the unfinished files. Failure leaves an orphan for the next open.
    pub fn abandon(self) {
        if let Some(copy) = self.copy {
            copy.abandon();
        }
        remove_unnamed(self.io, &self.path);
    }
}
