//! Collects, from the members that hold a file's committed bytes, how they are stored; and has these members encode them again.
use super::locate::ByteLocator;
use crate::log_ranges::LogRanges;
use crate::{Fid, Member, Result};
use forebay_data::LogId;
use forebay_pattern::LogSource;
use forebay_proto::data::{GetStorage, RecodeRanges, RecodeReport, StorageReport};
use forebay_proto::files::{FileLogRanges, GetLogRanges, MemberSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranges that are looked at, at most.
const MAX_RANGES: usize = 1 << 18;
/// Bytes of one member that are looked at, at most.
const MAX_BYTES: u64 = 64 << 30;
/// Ranges in one request.
const RANGES_PER_REQUEST: usize = 1 << 14;
/// Bytes in one request, which may be many small pieces.
const BYTES_PER_REQUEST: u64 = 1 << 30;
/// Bytes that a member encodes for one request: the slowest codec is done with them long before the deadline of requests.
const RECODE_BYTES: u64 = 16 << 20;

/// How a file is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStorage {
    /// What the members say that answer.
    pub report: StorageReport,
    /// Members that store bytes of it and do not answer.
    pub silent: MemberSet,
    /// Not everything was looked at.
    pub more: bool,
}

/// How far a file is encoded again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecodeCursor {
    /// Owners from this one on are still to be asked.
    owner: Member,
    /// From this offset on.
    from: u64,
    /// But for so many bytes of each member that stores some.
    skip: u64,
}

/// A step of encoding a file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecodeStep {
    /// What it did.
    pub report: RecodeReport,
    /// Where the next one begins; `None`: that was all.
    pub next: Option<RecodeCursor>,
}

/// Log, first address, length.
type AskedRange = (LogId, u64, u64);

impl ByteLocator {
    /// How the committed bytes of a file are stored. If it changes meanwhile, parts of the answer may be of different moments.
    ///
    /// # Errors
    /// As [`ByteLocator::describe`], but for members that store bytes: those are named.
    pub fn storage(&self, fid: Fid) -> Result<FileStorage> {
        let _at = self.ctx.counters.other();
        let attr = self.ctx.ask_file(fid)?;
        let (mut named, mut storage) = (LogRanges::default(), FileStorage::default());
        let mut count = 0;
        for owner in self.reader.extents.extent_members(fid, attr.layout) {
            let mut from = Some(0);
            while let Some(at) = from {
                let page = self.ctx.call(owner, GetLogRanges { fid, from: at })?;
                count += page.ranges.len();
                for (member, log, start, end) in page.ranges {
                    named.add(LogSource { member, log }, start..end);
                }
                from = page.next;
                if count >= MAX_RANGES {
                    storage.more |= from.is_some();
                    from = None;
                }
            }
        }
        let mut by_member = BTreeMap::<Member, Vec<AskedRange>>::new();
        // Those of a pattern may include others: each byte counts once.
        for (source, range) in named.sorted().iter() {
            let ranges = by_member.entry(source.member).or_default();
            ranges.push((source.log, range.start, range.end - range.start));
        }
        let mut silent = Vec::new();
        for (member, ranges) in by_member {
            match self.storage_at(member, &ranges) {
                Ok((report, more)) => {
                    storage.report.add(report);
                    storage.more |= more;
                }
                Err(e) => {
                    tracing::debug!(member, error = %e, "no answer about how a file is stored");
                    silent.push(member);
                }
            }
        }
        storage.silent = MemberSet::of(silent);
        Ok(storage)
    }

    /// Also whether that is not all of it.
    fn storage_at(&self, member: Member, ranges: &[AskedRange]) -> Result<(StorageReport, bool)> {
        let (mut report, mut asked) = (StorageReport::default(), 0);
        for ranges in ranges.chunks(RANGES_PER_REQUEST) {
            let mut skip = 0;
            loop {
                let ranges = window_of(ranges.iter().copied(), skip, BYTES_PER_REQUEST);
                if ranges.is_empty() {
                    break;
                }
                if asked >= MAX_BYTES {
                    return Ok((report, true));
                }
                report.add(self.ctx.call(member, GetStorage { ranges })?);
                skip += BYTES_PER_REQUEST;
                asked += BYTES_PER_REQUEST;
            }
        }
        Ok((report, false))
    }

    /// Has the members that store committed bytes of a file encode the next of them by the codec hint that it has now.
    ///
    /// # Errors
    /// `EISDIR` or `EINVAL` for what is no file, `ESTALE` if it was removed; as a write of the bytes; `EIO` if a member cannot answer.
    pub fn recode_step(&self, fid: Fid, place: RecodeCursor) -> Result<RecodeStep> {
        let _at = self.ctx.counters.other();
        let attr = self.ctx.ask_file(fid)?;
        let owners = self.reader.extents.extent_members(fid, attr.layout);
        let mut place = RecodeCursor {
            owner: place.owner.max(owners.start),
            ..place
        };
        while place.owner < owners.end {
            let request = GetLogRanges {
                fid,
                from: place.from,
            };
            let page = self.ctx.call(place.owner, request)?;
            let batches = recode_batches(&page, place.skip);
            if !batches.is_empty() {
                let asked = batches.into_iter().map(|(member, ranges)| {
                    let hint = attr.codec;
                    (member, RecodeRanges { ranges, hint })
                });
                place.skip += RECODE_BYTES;
                return Ok(RecodeStep {
                    report: self.recode_at(asked.collect())?,
                    next: Some(place),
                });
            }
            place = match page.next {
                Some(from) => RecodeCursor {
                    from,
                    skip: 0,
                    ..place
                },
                None => RecodeCursor {
                    owner: place.owner + 1,
                    ..RecodeCursor::default()
                },
            };
        }
        Ok(RecodeStep {
            report: RecodeReport::default(),
            next: None,
        })
    }

    /// Asks all of them at once: each works on its own disk.
    fn recode_at(&self, asked: Vec<(Member, RecodeRanges)>) -> Result<RecodeReport> {
        let one = |(member, request)| self.ctx.call(member, request);
        let done: Vec<Result<RecodeReport>> = std::thread::scope(|scope| {
            let spawn = |ask| {
                let thread = std::thread::Builder::new().name("forebay-recode".into());
                thread.spawn_scoped(scope, move || one(ask))
            };
            let threads: Vec<_> = asked.into_iter().map(spawn).collect();
            let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<_>>| match thread
                .map(|thread| thread.join())
            {
                Ok(Ok(done)) => done,
                // It has said why itself; or there was no thread for it.
                Ok(Err(_)) | Err(_) => Err(rustix::io::Errno::AGAIN.into()),
            };
            threads.into_iter().map(join).collect()
        });
        let mut report = RecodeReport::default();
        for done in done {
            report.add(done?);
        }
        Ok(report)
    }
}

/// Of each member's ranges of a page the next [`RECODE_BYTES`] behind the first `skip` bytes.
fn recode_batches(page: &FileLogRanges, skip: u64) -> BTreeMap<Member, Vec<AskedRange>> {
    let mut by_member = BTreeMap::<Member, Vec<AskedRange>>::new();
    for &(member, log, start, end) in &page.ranges {
        let ranges = by_member.entry(member).or_default();
        ranges.push((log, start, end.saturating_sub(start)));
    }
    let batches = by_member
        .into_iter()
        .map(|(member, ranges)| (member, window_of(ranges.into_iter(), skip, RECODE_BYTES)));
    batches.filter(|(_, batch)| !batch.is_empty()).collect()
}

/// The `len` bytes of ranges behind their first `skip` bytes.
fn window_of(ranges: impl Iterator<Item = AskedRange>, skip: u64, len: u64) -> Vec<AskedRange> {
    let end = skip.saturating_add(len);
    let mut passed = 0u64;
    let mut window = Vec::new();
    for (log, addr, len) in ranges {
        let from = skip.saturating_sub(passed).min(len);
        let until = end.saturating_sub(passed).min(len);
        passed = passed.saturating_add(len);
        if from < until {
            window.push((log, addr + from, until - from));
        }
    }
    window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_every_byte_once_and_no_more_than_their_share() {
        const MIB: u64 = 1 << 20;
        let ranges = vec![
            (0, 1, 0, 40 * MIB),
            (0, 2, 5, 6),
            (0, 2, 100, 100 + 20 * MIB),
            (3, 1, 7, 8),
        ];
        let page = FileLogRanges {
            ranges: ranges.clone(),
            next: None,
        };
        let (mut taken, mut skip) = (LogRanges::default(), 0);
        loop {
            let batches = recode_batches(&page, skip);
            if batches.is_empty() {
                break;
            }
            for (member, batch) in batches {
                let bytes: u64 = batch.iter().map(|(_, _, len)| len).sum();
                assert!(bytes <= RECODE_BYTES);
                for (log, addr, len) in batch {
                    taken.add(LogSource { member, log }, addr..addr + len);
                }
            }
            skip += RECODE_BYTES;
        }
        assert_eq!(skip, 4 * RECODE_BYTES);
        let mut wanted = LogRanges::default();
        for (member, log, start, end) in ranges {
            wanted.add(LogSource { member, log }, start..end);
        }
        let all = |of: &LogRanges| -> Vec<_> { of.iter().map(|(s, r)| (s, r.clone())).collect() };
        assert_eq!(all(&taken), all(&wanted));
    }
}
