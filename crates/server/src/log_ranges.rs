//! Sets of log addresses: what a change frees or names anew, and what a check finds stored or named.
use forebay_data::ranges::{merge, subtract, without};
use forebay_index::Extent;
use forebay_pattern::LogSource;
use std::collections::BTreeMap;
use std::ops::Range;

/// Log addresses by log. Neighbours that come one after the other are one range at once, so that displacing a strided row
/// keeps one range a log, not one a record.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogRanges(BTreeMap<LogSource, Vec<Range<u64>>>);

impl LogRanges {
    pub(crate) fn add(&mut self, source: LogSource, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let ranges = self.0.entry(source).or_default();
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }

    /// Adds the log bytes of an extent.
    pub(crate) fn add_extent(&mut self, extent: &Extent) {
        let (source, addresses) = addresses(extent);
        self.add(source, addresses);
    }

    /// Those of one log.
    pub(crate) fn of(&self, source: LogSource) -> &[Range<u64>] {
        self.0.get(&source).map_or(&[], Vec::as_slice)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LogSource, &Range<u64>)> {
        let logs = self.0.iter();
        logs.flat_map(|(source, ranges)| ranges.iter().map(|r| (*source, r)))
    }

    /// Whether all log bytes of the extent are here. Sorted.
    pub(crate) fn covers(&self, extent: &Extent) -> bool {
        let (source, addresses) = addresses(extent);
        subtract(addresses, self.of(source)).is_empty()
    }

    /// Sorts and joins; the other methods want that.
    pub(crate) fn sorted(mut self) -> LogRanges {
        for ranges in self.0.values_mut() {
            *ranges = merge(std::mem::take(ranges));
        }
        self
    }

    /// Whether none of these addresses is here. Both sorted.
    pub(crate) fn is_disjoint(&self, source: LogSource, ranges: &[Range<u64>]) -> bool {
        let own = self.of(source);
        ranges.iter().all(|range| {
            let at = own.partition_point(|r| r.end <= range.start);
            own.get(at).is_none_or(|r| r.start >= range.end)
        })
    }

    /// What is here and not in `kept`. Both sorted.
    pub(crate) fn without(&self, kept: &LogRanges) -> LogRanges {
        let left = (self.0.iter()).map(|(source, own)| (*source, without(own, kept.of(*source))));
        LogRanges(left.collect())
    }

    /// As extents, for the outbox. Their offsets say nothing.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        let extent = |(source, range): (LogSource, &Range<u64>)| Extent {
            offset: 0,
            len: range.end - range.start,
            member: source.member,
            log: source.log,
            addr: range.start,
            seq: 0,
        };
        self.iter().map(extent).collect()
    }
}

/// The log bytes of an extent.
pub(crate) fn addresses(extent: &Extent) -> (LogSource, Range<u64>) {
    let source = LogSource {
        member: extent.member,
        log: extent.log,
    };
    (source, extent.addr..extent.addr.saturating_add(extent.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Ranges = Vec<(u64, Range<u64>)>;

    fn ranges() -> impl Strategy<Value = Ranges> {
        let range = (0u64..2, 0u64..60, 0u64..12);
        prop::collection::vec(range.prop_map(|(log, at, len)| (log, at..at + len)), 0..12)
    }

    fn source(log: u64) -> LogSource {
        LogSource { member: 1, log }
    }

    fn made(ranges: &Ranges) -> (LogRanges, BTreeSet<(u64, u64)>) {
        let mut made = LogRanges::default();
        for (log, range) in ranges {
            made.add(source(*log), range.clone());
        }
        let bytes = ranges
            .iter()
            .flat_map(|(log, r)| r.clone().map(|at| (*log, at)));
        (made.sorted(), bytes.collect())
    }

    proptest! {
        #[test]
        fn agrees_with_sets_of_bytes(a in ranges(), b in ranges()) {
            let ((a, in_a), (b, in_b)) = (made(&a), made(&b));
            let left = a.without(&b).extents();
            let found: Vec<(u64, u64)> = left.iter().flat_map(|e| (e.addr..e.addr + e.len).map(|at| (e.log, at))).collect();
            let wanted: Vec<(u64, u64)> = in_a.difference(&in_b).copied().collect();
            prop_assert_eq!(found, wanted);
            for log in 0..2 {
                let shared = in_a.intersection(&in_b).any(|x| x.0 == log);
                prop_assert_eq!(a.is_disjoint(source(log), b.of(source(log))), !shared);
            }
        }
    }
}
