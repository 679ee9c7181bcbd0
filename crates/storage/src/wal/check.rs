//! Checking a log file of a store that is open.
use super::record::{RecordStep, Records};
use super::replay::{correct, no_batch};
use super::{KIND, header, payload};
use crate::damage::{Damage, PossibleLoss};
use crate::io::read_file;
use crate::{Error, Io, bit_correction, names};
use std::path::Path;

/// Reads one log file's records up to `end` bytes and reports all damage but that at `harmless` places, for a store
/// that is open.
pub fn check(
    io: &dyn Io,
    dir: &Path,
    number: u64,
    end: u64,
    harmless: &[u64],
    damage: &mut Vec<Damage>,
) {
    let path = names::log(dir, number);
    let mut seen = 0;
    let lost = |seen: u64| PossibleLoss::batches(seen + 1, None);
    let mut report = |error, lost| damage.push(Damage { error, lost });
    let mut bytes = match read_file(io, &path) {
        Ok(bytes) => bytes,
        Err(e) => return report(e, lost(seen)),
    };
    let length = bytes.len() as u64;
    bytes.truncate(end as usize);
    if bytes.iter().all(|b| *b == 0) && end == 0 {
        return;
    }
    if let Err(e) = header::check(KIND, number, &bytes, &path)
        && !harmless.contains(&0)
    {
        report(e, lost(seen));
    }
    let corrupt = |what, offset: usize, expected, found| {
        Error::corrupt(&path, what, offset as u64, expected, found)
    };
    let mut records = Records::new(&bytes, number, header::LENGTH.min(bytes.len()));
    while let Some(step) = records.next() {
        match step {
            RecordStep::Damage { offset, .. } if harmless.contains(&(offset as u64)) => {}
            RecordStep::Damage {
                offset,
                expected,
                found,
            } => {
                let to = records.offset();
                let error = corrupt("log record", offset, expected, found);
                let Some(byte) = correct(
                    &mut bytes,
                    number,
                    offset,
                    bit_correction::MAX_CORRECTED_BYTES,
                ) else {
                    report(error, lost(seen));
                    records = Records::new(&bytes, number, to);
                    continue;
                };
                report(error, PossibleLoss::Corrected { byte });
                records = Records::new(&bytes, number, offset);
            }
            RecordStep::Record(r) => {
                if !r.payload.is_empty() && payload::decode(r.payload).is_none() {
                    report(no_batch(&path, &r), lost(seen));
                }
                seen = r.sequence;
            }
        }
    }
    if length < end {
        report(
            corrupt("log end", length as usize, end as u32, length as u32),
            lost(seen),
        );
    }
}
