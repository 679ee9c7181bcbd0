//! Which request of a member is answered by what.
use super::proto::{DataReply, DataRequest, Piece};
use super::{Data, LogRange, READ_BYTES};
use crate::{Error, Result};
use bytes::Bytes;

/// Bytes that are verified at once.
const VERIFIED: u64 = 1 << 20;

impl Data {
    /// Answers another member. The bulk of a read: one buffer a piece, in order.
    ///
    /// # Errors
    /// As the calls above; `EINVAL` for a read of more than `READ_BYTES`.
    pub fn handle(&self, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
        match request {
            DataRequest::Read { pieces } => Ok((DataReply::Read, self.read_pieces(&pieces)?)),
            DataRequest::Free { ranges } => {
                let ranges: Vec<LogRange> = ranges
                    .into_iter()
                    .map(|(log, addr, len)| (log, addr..addr.saturating_add(len)))
                    .collect();
                self.free(&ranges)?;
                Ok((DataReply::Done, Vec::new()))
            }
            DataRequest::Sync => {
                self.sync_all()?;
                Ok((DataReply::Done, Vec::new()))
            }
            DataRequest::Verify { ranges } => {
                let readable = ranges.into_iter().map(|(log, addr, len)| {
                    let mut at = addr;
                    let end = addr.saturating_add(len);
                    let mut buffer = vec![0; len.min(VERIFIED) as usize];
                    while at < end {
                        let some = (end - at).min(VERIFIED);
                        if self.read(log, at, &mut buffer[..some as usize]).is_err() {
                            return false;
                        }
                        at += some;
                    }
                    true
                });
                Ok((DataReply::Readable(readable.collect()), Vec::new()))
            }
            DataRequest::Space => {
                let (live, total, free) = self.space()?;
                Ok((DataReply::Space { live, total, free }, Vec::new()))
            }
        }
    }

    /// Reads pieces into one buffer; neighbours in a log become one read.
    ///
    /// # Errors
    /// As `read`; `EINVAL` for more than `READ_BYTES`.
    pub fn read_pieces(&self, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        let total: u64 = pieces.iter().map(|p| u64::from(p.len)).sum();
        if total > READ_BYTES {
            return Err(Error::Posix(rustix::io::Errno::INVAL));
        }
        let mut buffer = self.inner.read_buffers.take(total as usize);
        let (mut i, mut at) = (0, 0);
        while i < pieces.len() {
            let (first, mut len) = (pieces[i], 0);
            while let Some(p) = pieces.get(i)
                && p.log == first.log
                && Some(p.addr) == first.addr.checked_add(len as u64)
            {
                len += p.len as usize;
                i += 1;
            }
            self.read(first.log, first.addr, &mut buffer[at..at + len])?;
            at += len;
        }
        let mut rest = buffer.freeze();
        Ok(pieces
            .iter()
            .map(|p| rest.split_to(p.len as usize))
            .collect())
    }
}
