//! The data plane of one member (sketch): logs packed into segment files, checksums, freeing, quota.
pub mod proto;
use crate::{Fid, Result};
use bytes::Bytes;
use forebay_storage::{Io, Store};
use proto::{DataReply, DataRequest, Piece};
use std::path::Path;
use std::sync::Arc;

pub type LogId = u64;

/// A part of a log: `[addr, addr + len)`, bytes.
pub type LogRange = (LogId, std::ops::Range<u64>);

/// Settings of the data plane; bytes.
#[derive(Debug, Clone)]
pub struct DataOptions { pub member: u16, pub quota: Option<u64>, pub buffer_bytes: u64, pub sync_each_flush: bool }

pub struct Data { _p: () }

impl Data {
    pub fn open(_io: Arc<dyn Io>, _dir: &Path, _store: Arc<Store>, _options: DataOptions) -> Result<Data> { todo!() }
    /// A new log for the file. Nothing is on disk until the first flush.
    pub fn create_log(&self, _fid: Fid) -> Result<LogId> { todo!() }
    /// Appends; returns the address of the first byte. Buffered: at most the buffer budget, then written out. `ENOSPC` by quota.
    pub fn append(&self, _log: LogId, _bytes: &[u8]) -> Result<u64> { todo!() }
    /// All appended bytes of the log are in a segment file and found again after a crash of the process;
    /// with `sync` also after a crash of the machine.
    pub fn flush(&self, _log: LogId, _sync: bool) -> Result<()> { todo!() }
    /// No more appends; what is not flushed is dropped.
    pub fn seal(&self, _log: LogId) -> Result<()> { todo!() }
    /// Fills `buf` from one log, verified; sees buffered bytes. `Gone` if any byte was freed, `Corrupt` if damaged.
    pub fn read(&self, _log: LogId, _addr: u64, _buf: &mut [u8]) -> Result<()> { todo!() }
    /// Gives bytes back (idempotent).
    pub fn free(&self, _ranges: &[LogRange]) -> Result<()> { todo!() }
    /// Logs that a crash left unsealed, with their files: the service keeps what extents name and frees the rest.
    pub fn unsealed(&self) -> Result<Vec<(LogId, Fid)>> { todo!() }
    /// Frees every byte of an unsealed log outside `keep` and seals it.
    pub fn retain(&self, _log: LogId, _keep: &[std::ops::Range<u64>]) -> Result<()> { todo!() }
    /// `(live bytes, quota or disk total, free)`.
    pub fn space(&self) -> Result<(u64, u64, u64)> { todo!() }
    pub fn handle(&self, _request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> { todo!() }
    pub fn close(&self) -> Result<()> { todo!() }
    #[doc(hidden)]
    pub fn _pieces(_: &[Piece]) {}
}
