//! Writing a table file.
use super::footer::{self, Footer};
use super::region::{self, BlockLocation};
use crate::csm::block::Block;
use crate::csm::record::Key;
use forebay_storage::{File, Io, IoContext, Result, remove_unnamed};
use std::path::PathBuf;
use std::sync::Arc;

/// What names a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMeta {
    /// The number in its name.
    pub number: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// Number of records, deletes included.
    pub records: u64,
    /// The least key.
    pub first: Key,
    /// The greatest key.
    pub last: Key,
    /// Whether some records are deletes.
    pub deletes: bool,
}

/// A table file being written. Until `finish` has returned it is an orphan.
pub struct Writer {
    io: Arc<dyn Io>,
    /// Where it is.
    pub path: PathBuf,
    number: u64,
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    places: Vec<BlockLocation>,
}

impl Writer {
    /// Creates the file `path`, whose number is `number`.
    ///
    /// # Errors
    /// Those of creating it.
    pub fn create(io: Arc<dyn Io>, path: PathBuf, number: u64) -> Result<Writer> {
        let file = io.create(&path).context("create", &path)?;
        Ok(Writer {
            io,
            path,
            number,
            file,
            bytes: Vec::new(),
            places: Vec::new(),
        })
    }

    /// Adds a block, whose keys are above those before.
    pub fn add(&mut self, block: &Block) {
        // Where it is in the file is known once all are there; the region needs only its length.
        self.places
            .push(BlockLocation::of(block, self.bytes.len() as u64));
        self.bytes.extend_from_slice(&block.bytes);
    }

    /// Number of blocks so far.
    pub fn blocks(&self) -> usize {
        self.places.len()
    }

    /// Writes the file, with these bytes about it before the footer at the end. Neither it nor its directory entry is synced yet.
    ///
    /// # Errors
    /// That of `provenance`, or of writing; the file is removed then.
    ///
    /// # Panics
    /// If no block was added.
    pub fn finish(
        self,
        provenance: impl FnOnce(&TableMeta) -> Result<Vec<u8>>,
    ) -> Result<(TableMeta, Arc<dyn File>)> {
        let mut region = Vec::new();
        region::encode(&self.places, &mut region);
        let first = Footer {
            blocks: self.places.len() as u32,
            records: self.places.iter().map(|p| u64::from(p.records)).sum(),
            region_at: footer::LENGTH as u64,
            region_len: region.len() as u32,
            region_crc: forebay_checksum::crc32c(&region),
        };
        let last = Footer {
            region_at: (footer::LENGTH + region.len() + self.bytes.len()) as u64,
            ..first
        };
        let mut meta = TableMeta {
            number: self.number,
            bytes: 0,
            records: first.records,
            first: self.places[0].first,
            last: self.places[self.places.len() - 1].last,
            deletes: self.places.iter().any(|p| p.deletes),
        };
        let written = provenance(&meta).and_then(|provenance| {
            let parts = [
                &first.encode()[..],
                &region,
                &self.bytes,
                &region,
                &provenance,
                &last.encode(),
            ];
            let bytes = parts.concat();
            meta.bytes = bytes.len() as u64;
            self.file.write_at(&bytes, 0).context("write", &self.path)
        });
        match written {
            Ok(()) => Ok((meta, self.file)),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Removes the file.
    pub fn abandon(self) {
        remove_unnamed(&*self.io, &self.path);
    }
}
