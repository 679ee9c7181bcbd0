//! The requests about log bytes that this member answers.
use crate::{LogRange, LogStore};
use forebay_proto::data::{
    DataService, FreeRanges, GetStorage, GetUsage, PiecesRead, ReadPieces, RecodeRanges,
    RecodeReport, StorageReport, StoreUsage, SyncLogs, VerifyRanges,
};
use forebay_proto::{LogId, Member, Result};

impl DataService for LogStore {
    fn read_pieces(&self, _: Member, request: ReadPieces) -> Result<PiecesRead> {
        self.reader.read_pieces(&request.pieces)
    }

    fn free_ranges(&self, _: Member, request: FreeRanges) -> Result<()> {
        self.free(&log_ranges(request.ranges))
    }

    fn sync_logs(&self, _: Member, _: SyncLogs) -> Result<()> {
        self.sync_all()
    }

    fn verify_ranges(&self, _: Member, request: VerifyRanges) -> Result<Vec<bool>> {
        let ranges = request.ranges.into_iter();
        let readable = |(log, addr, len)| self.reader.is_readable(log, addr, len);
        Ok(ranges.map(readable).collect())
    }

    fn get_storage(&self, _: Member, request: GetStorage) -> Result<StorageReport> {
        self.storage_of(&log_ranges(request.ranges))
    }

    fn recode_ranges(&self, _: Member, request: RecodeRanges) -> Result<RecodeReport> {
        self.recode(
            &log_ranges(request.ranges),
            request.hint.unwrap_or_default(),
        )
    }

    fn get_usage(&self, _: Member, _: GetUsage) -> Result<StoreUsage> {
        let (live, total, free) = self.space()?;
        Ok(StoreUsage { live, total, free })
    }
}

/// Ranges as they travel: log, first address, length.
fn log_ranges(ranges: Vec<(LogId, u64, u64)>) -> Vec<LogRange> {
    let ranges = ranges.into_iter();
    ranges
        .map(|(log, addr, len)| (log, addr..addr.saturating_add(len)))
        .collect()
}
