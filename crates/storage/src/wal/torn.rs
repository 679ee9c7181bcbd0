//! Tells a record of the log that a crash tore from one that was whole and was damaged later.
//!
//! A log is only appended to; a record may also overwrite the seal before it. A killed process leaves a prefix of what it was
//! writing, followed by the old bytes. A power failure leaves each sector either as written or as it was before: zeros, the seal,
//! or beyond the end of the file. So in a record that a crash tore, at least one sector, or the end of the file, is as it was
//! before. If none is, the whole record was written, and it was damaged later.
//!
//! The seal that a record overwrites may end with a sector. Then it may be whole, and what follows it the rest of the torn record: no
//! record ever follows a seal.
//!
//! Every batch is longer than a seal, so a shorter remainder at the end of a file was never a whole batch.
use super::record;
use std::ops::Range;

/// What a disk writes whole, bytes.
const SECTOR: usize = 512;
/// Bytes in which a damaged seal may differ from what was written.
const FLIPPED: usize = 4;

/// Bytes of a log file that are no record.
pub struct TornRange<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// Where they begin.
    pub from: usize,
    /// Where the next whole record begins, or the file ends.
    pub to: usize,
}

impl<'a> TornRange<'a> {
    /// These bytes of the file.
    pub fn new(bytes: &'a [u8], range: Range<usize>) -> TornRange<'a> {
        TornRange {
            bytes,
            from: range.start,
            to: range.end,
        }
    }
}

/// The seal that was written after batch `last`.
fn seal(log: u64, last: u64) -> Vec<u8> {
    let mut seal = Vec::with_capacity(record::SEAL_BYTES);
    record::write(&mut seal, log, last, last, |_| {});
    seal
}

/// Whether a crash can have left the range after batch `last`.
pub fn by_crash(torn: &TornRange<'_>, log: u64, last: u64) -> bool {
    let (bytes, from) = (torn.bytes, torn.from);
    let at_end = torn.to == bytes.len();
    let mut to = torn.to;
    if at_end {
        let held = bytes[from..].iter().rposition(|b| *b != 0);
        to = held.map_or(from, |at| from + at + 1);
        if to - from <= record::SEAL_BYTES {
            return true;
        }
    }
    if let Some(end) = record::end(bytes, log, from) {
        // Cut short, by the end of the file or by allocated zeros.
        if end > bytes.len() || at_end && to + 8 <= end {
            return true;
        }
        to = end;
    }
    let seal = seal(log, last);
    let in_front = from
        .checked_sub(seal.len())
        .map(|start| &bytes[start..from]);
    if from.is_multiple_of(SECTOR) && in_front == Some(&seal[..]) {
        return true;
    }
    let before = |at: usize| seal.get(at - from).copied().unwrap_or(0);
    let mut start = from;
    while start < to {
        let end = ((start / SECTOR + 1) * SECTOR).min(to);
        let zeros = bytes[start..end].iter().all(|b| *b == 0);
        if zeros || (start..end).all(|at| bytes[at] == before(at)) {
            return true;
        }
        start = end;
    }
    false
}

/// Whether a bit of the seal at `from`, put right in `byte`, is all that a sector holds of it: then the sector may never have been written.
pub fn lacked_sector(bytes: &[u8], from: usize, byte: usize) -> bool {
    let sector = byte / SECTOR * SECTOR;
    let held = sector.max(from)..(sector + SECTOR).min(from + record::SEAL_BYTES);
    let ones = |held: &[u8]| held.iter().map(|b| b.count_ones()).sum::<u32>();
    sector > from && bytes.get(held).is_some_and(|held| ones(held) == 1)
}

/// Whether the range is but the seal after batch `last`, torn or damaged: it held no batch.
pub fn is_seal(torn: &TornRange<'_>, log: u64, last: u64) -> bool {
    let held = &torn.bytes[torn.from..torn.to];
    let seal = seal(log, last);
    let (held, rest) = held.split_at(held.len().min(seal.len()));
    let differ = held.iter().zip(&seal).filter(|(a, b)| a != b).count();
    rest.iter().all(|b| *b == 0) && differ <= FLIPPED
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: u64 = 3;

    /// A log file with a record of `first` bytes and after it one of `second`, and where the second begins.
    fn two(first: usize, second: usize) -> (Vec<u8>, usize) {
        let mut bytes = vec![7; 32];
        record::write(&mut bytes, LOG, 1, 0, |out| {
            out.resize(out.len() + first, 1)
        });
        let from = bytes.len();
        record::write(&mut bytes, LOG, 2, 1, |out| {
            out.extend((0..second).map(|i| (i % 250) as u8 + 1));
        });
        (bytes, from)
    }

    proptest! {
        #[test]
        fn a_sector_that_was_never_written_is_told_from_a_flipped_bit(
            first in 1usize..1500, second in 5usize..3000, sealed in any::<bool>(), pick in any::<proptest::sample::Index>(), bit in 0u8..8,
        ) {
            let (whole, from) = two(first, second);
            let mut before = whole[..from].to_vec();
            if sealed {
                before.extend(seal(LOG, 1));
            }
            before.resize(whole.len(), 0);
            // Any one sector as it was.
            let sectors: Vec<usize> = (from / SECTOR..whole.len().div_ceil(SECTOR)).collect();
            let sector = *pick.get(&sectors);
            let mut torn = whole.clone();
            let end = ((sector + 1) * SECTOR).min(whole.len());
            torn[sector * SECTOR..end].copy_from_slice(&before[sector * SECTOR..end]);
            let torn = TornRange::new(&torn, from..torn.len());
            prop_assert!(by_crash(&torn, LOG, 1), "sector {sector}");
            // Cut anywhere.
            let cut = from + pick.index(whole.len() - from).max(1);
            let torn = TornRange::new(&whole[..cut], from..cut);
            if cut < from + record::HEADER + second {
                prop_assert!(by_crash(&torn, LOG, 1), "cut at {cut}");
            }
            // One bit.
            let at = from + pick.index(record::HEADER + second);
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            let torn = TornRange::new(&flipped, from..flipped.len());
            // The last bytes may be alone in their sector, and one of them zero then.
            let alone = flipped.len() - flipped.len() / SECTOR * SECTOR;
            prop_assume!(alone > 8 || at + 8 < flipped.len());
            prop_assert!(!by_crash(&torn, LOG, 1), "bit {bit} of byte {at}");
            prop_assert!(!is_seal(&torn, LOG, 1));
        }

        #[test]
        fn what_follows_a_whole_seal_at_the_end_of_a_sector_is_a_torn_record(sectors in 1usize..4, second in 40usize..3000) {
            // The seal begins 32 bytes before the end of a sector, and so does the record that overwrites it.
            let first = sectors * SECTOR - record::SEAL_BYTES - 32 - record::HEADER;
            let (whole, from) = two(first, second);
            let behind = from + record::SEAL_BYTES;
            prop_assert_eq!(behind % SECTOR, 0);
            let mut torn = whole.clone();
            torn[from..behind].copy_from_slice(&seal(LOG, 1));
            let range = TornRange::new(&torn, behind..torn.len());
            prop_assert!(by_crash(&range, LOG, 1));
            // Behind anything else it is not.
            torn[from] ^= 1;
            let range = TornRange::new(&torn, behind..torn.len());
            let alone = torn.len() - torn.len() / SECTOR * SECTOR;
            prop_assume!(alone > 8 || alone == 0);
            prop_assert!(!by_crash(&range, LOG, 1));
        }

        #[test]
        fn a_damaged_seal_is_known(first in 1usize..1500, at in 0..record::SEAL_BYTES, bit in 0u8..8, zeros in 0usize..50) {
            let (whole, from) = two(first, 1);
            let mut bytes = whole[..from].to_vec();
            bytes.extend(seal(LOG, 1));
            bytes[from + at] ^= 1 << bit;
            bytes.resize(bytes.len() + zeros, 0);
            let torn = TornRange::new(&bytes, from..bytes.len());
            prop_assert!(is_seal(&torn, LOG, 1));
        }
    }
}
