//! Which request of another member is answered by which call of the log store.
use crate::Result;
use bytes::Bytes;
use forebay_data::{LogRange, LogStore};
use forebay_proto::data::{DataReply, DataRequest};

/// Answers another member. The bulk of a read: one buffer a piece, in order.
///
/// # Errors
/// As the calls of [`LogStore`].
pub fn answer(logs: &LogStore, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
    let reply = match request {
        DataRequest::Read { pieces } => {
            return Ok((DataReply::Read, logs.read_pieces(&pieces)?));
        }
        DataRequest::Free { ranges } => {
            let ranges: Vec<LogRange> = ranges
                .into_iter()
                .map(|(log, addr, len)| (log, addr..addr.saturating_add(len)))
                .collect();
            logs.free(&ranges)?;
            DataReply::Done
        }
        DataRequest::Sync => {
            logs.sync_all()?;
            DataReply::Done
        }
        DataRequest::Verify { ranges } => DataReply::Readable(
            ranges
                .into_iter()
                .map(|(log, addr, len)| logs.is_readable(log, addr, len))
                .collect(),
        ),
        DataRequest::Space => {
            let (live, total, free) = logs.space()?;
            DataReply::Space { live, total, free }
        }
    };
    Ok((reply, Vec::new()))
}
