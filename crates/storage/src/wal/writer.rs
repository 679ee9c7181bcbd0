//! Appending to one log file.
//!
//! Invariant: `end` is the end of the last whole record; a failed append leaves the file cut back to
//! it (full disk), or the caller poisons the store.
use super::{KIND, header, record};
use crate::names;
use crate::{Error, File, Io, IoContext, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open log file, written at its end.
pub struct WalWriter {
    /// The file, for syncing outside the writer's lock.
    pub file: Arc<dyn File>,
    /// Where it is.
    pub path: PathBuf,
    /// The number in its name.
    pub number: u64,
    end: u64,
    capacity: u64,
}

impl WalWriter {
    /// Creates log file `number`, still empty: its header goes with the first record.
    pub fn create(io: &dyn Io, dir: &Path, number: u64) -> Result<WalWriter> {
        let path = names::log(dir, number);
        let file = io.create(&path).context("create", &path)?;
        Ok(WalWriter::adopt(file, path, number, u64::MAX))
    }

    /// Takes over a file that is empty, or `capacity` bytes of allocated zeros, already named as log `number`.
    pub fn adopt(file: Arc<dyn File>, path: PathBuf, number: u64, capacity: u64) -> WalWriter {
        WalWriter {
            file,
            path,
            number,
            end: 0,
            capacity,
        }
    }

    /// End of the last whole record, in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether `bytes` more fit (only the reserve has a limit).
    pub fn fits(&self, bytes: usize) -> bool {
        self.end + bytes as u64 + header::LENGTH as u64 <= self.capacity
    }

    /// Whether the file is the reserve, limited to blocks it already owns.
    pub fn is_reserve(&self) -> bool {
        self.capacity != u64::MAX
    }

    /// Appends whole records with one write.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the disk is full: the file is as before. Any other error: its end is
    /// unknown, and nothing more may be appended.
    pub fn append(&mut self, records: &[u8]) -> Result<()> {
        let result = if self.end == 0 {
            let mut first = header::encode(KIND, self.number).to_vec();
            first.extend_from_slice(records);
            self.write(&first)
        } else {
            self.write(records)
        };
        if let Ok(written) = result {
            self.end += written;
        }
        result.map(|_| ())
    }

    fn write(&self, bytes: &[u8]) -> Result<u64> {
        match self.file.write_at(bytes, self.end) {
            Ok(()) => Ok(bytes.len() as u64),
            Err(e) => {
                let error = Error::io("write", &self.path, e);
                if error.is_no_space() {
                    // Synced, so that no whole record of the failed append can come back after
                    // its number went to another batch.
                    self.file
                        .set_len(self.end)
                        .state_unknown_context("roll back", &self.path)?;
                    self.sync()?;
                }
                Err(error)
            }
        }
    }

    /// Brings all appended records to disk.
    ///
    /// # Errors
    /// After a failure it is unknown what is on disk: the caller poisons the store.
    pub fn sync(&self) -> Result<()> {
        self.file.sync().state_unknown_context("sync", &self.path)
    }

    /// Writes a seal after the last record: "everything up to `synced` is on disk". The next
    /// append overwrites it, so it costs no room; a full disk goes without.
    pub fn seal(&mut self, synced: u64) -> Result<()> {
        if self.end == 0 || !self.fits(record::SEAL_BYTES) {
            return Ok(());
        }
        let mut seal = Vec::with_capacity(record::SEAL_BYTES);
        record::write(&mut seal, self.number, synced, synced, |_| {});
        match self.write(&seal) {
            Err(e) if !e.is_no_space() => Err(e),
            _ => Ok(()),
        }
    }
}
