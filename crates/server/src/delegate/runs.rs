//! Runs: the pieces of a read that follow each other in one log, fetched as one.
//!
//! A file written strided by many writers has small pieces from many logs, but what one writer wrote lies together in
//! its log. So a read asks each log once for a long run, and deals the run's bytes out to their places in the file.
//!
//! Invariants: every byte of the read that is in a log is in exactly one part of one run; holes are in none.
use super::intervals::ByteSource;
use crate::Member;
use forebay_data::LogId;
use std::ops::Range;

/// Bytes that lie together in one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRun {
    /// Whose log.
    pub member: Member,
    /// Which one.
    pub log: LogId,
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes, all parts together.
    pub len: usize,
    /// Where they go in the reader's buffer, in log order; each begins where the part before it ends in the log.
    pub parts: Vec<Range<usize>>,
}

impl LogRun {
    /// Its parts: where each goes, and the log and the address where it is.
    pub fn places(&self) -> impl Iterator<Item = (Range<usize>, LogId, u64)> {
        let place = |addr: &mut u64, part: &Range<usize>| {
            let from = *addr;
            *addr = from.saturating_add(part.len() as u64);
            Some((part.clone(), self.log, from))
        };
        self.parts.iter().scan(self.addr, place)
    }

    /// Copies the run's bytes to their places in `buffer`.
    pub fn scatter(&self, bytes: &[u8], buffer: &mut [u8]) {
        let mut rest = bytes;
        for part in &self.parts {
            let (bytes, behind) = rest.split_at(part.len().min(rest.len()));
            buffer[part.start..part.start + bytes.len()].copy_from_slice(bytes);
            rest = behind;
        }
    }
}

/// The runs of a read of `range`, whose pieces lie inside it; by member, log and address.
pub fn runs(pieces: &[(Range<u64>, ByteSource)], range: &Range<u64>) -> Vec<LogRun> {
    let mut parts: Vec<(Member, LogId, u64, Range<usize>)> = pieces
        .iter()
        .filter_map(|(part, source)| match *source {
            ByteSource::Hole => None,
            ByteSource::Log { member, log, addr } => {
                let place = |at: u64| (at - range.start) as usize;
                Some((member, log, addr, place(part.start)..place(part.end)))
            }
        })
        .collect();
    parts.sort_unstable_by_key(|(member, log, addr, _)| (*member, *log, *addr));
    let mut runs: Vec<LogRun> = Vec::new();
    for (member, log, addr, part) in parts {
        match runs.last_mut() {
            Some(run)
                if (run.member, run.log) == (member, log) && addr == run.addr + run.len as u64 =>
            {
                run.len += part.len();
                match run.parts.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => run.parts.push(part),
                }
            }
            _ => runs.push(LogRun {
                member,
                log,
                addr,
                len: part.len(),
                parts: vec![part],
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(member: Member, log: LogId, addr: u64) -> ByteSource {
        ByteSource::Log { member, log, addr }
    }

    #[test]
    fn what_one_writer_wrote_is_one_run_however_the_file_deals_it() {
        let pieces = [
            (10..14, log(0, 7, 100)),
            (14..18, log(1, 7, 100)),
            (18..20, ByteSource::Hole),
            (20..24, log(0, 7, 104)),
            (24..28, log(1, 7, 96)),
            (28..30, log(0, 8, 108)),
        ];
        let found = runs(&pieces, &(10..30));
        let shape: Vec<_> = found
            .iter()
            .map(|r| (r.member, r.log, r.addr, r.len))
            .collect();
        assert_eq!(
            shape,
            [(0, 7, 100, 8), (0, 8, 108, 2), (1, 7, 96, 8)],
            "a log's pieces join across the file, also backwards; members and logs stay apart"
        );
        let places: Vec<_> = found[2].parts.iter().map(|p| (p.start, p.len())).collect();
        assert_eq!(places, [(14, 4), (4, 4)]);
    }

    proptest! {
        #[test]
        fn every_byte_comes_from_its_own_address(
            lens in prop::collection::vec((1u64..9, 0u16..2, 0u64..3, 0u64..40), 0..40)
        ) {
            let mut at = 5;
            let mut pieces = Vec::new();
            for (len, member, id, addr) in lens {
                let source = if id == 2 { ByteSource::Hole } else { log(member, id, addr) };
                pieces.push((at..at + len, source));
                at += len;
            }
            let range = 5..at;
            // A byte of a log says where it is.
            let byte = |member: Member, log: LogId, addr: u64| (1 + addr * 4 + log * 2 + u64::from(member)) as u8;
            let mut buffer = vec![0; (range.end - range.start) as usize];
            for run in runs(&pieces, &range) {
                let bytes: Vec<u8> = (run.addr..run.addr + run.len as u64).map(|a| byte(run.member, run.log, a)).collect();
                run.scatter(&bytes, &mut buffer);
                for (place, log, addr) in run.places() {
                    let want: Vec<u8> = (0..place.len() as u64).map(|i| byte(run.member, log, addr + i)).collect();
                    prop_assert_eq!(&buffer[place], &want[..]);
                }
            }
            for (part, source) in &pieces {
                for offset in part.clone() {
                    let want = match *source {
                        ByteSource::Hole => 0,
                        ByteSource::Log { member, log, addr } => byte(member, log, addr + (offset - part.start)),
                    };
                    prop_assert_eq!(buffer[(offset - range.start) as usize], want);
                }
            }
        }
    }
}
