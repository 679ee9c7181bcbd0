//! The provenance of a table file: the tables it was made from, and the other tables of the store at that time. It is stored in the
//! file itself, for a store that has lost its manifest.
//!
//! ```text
//!  ... | payload, n bytes | n u32 | crc u32 | footer, 64 bytes |
//!
//!  payload:  length | the edit that adds this file to the manifest, with a batch number
//!            count  | count times: gap | length - 1         inputs: numbers of the tables it was made from, ascending, as ranges
//!            count  | count times: number | level u8        the other tables of the store when that flush or merge began
//! ```
//! Integers are varints where nothing else is said. `crc`: CRC32C of the file's number (u64), n and the payload.
//!
//! The batch number is, for a flushed table (level 0), its last batch; for a merged one, the batch up to which the log was flushed
//! when the merge began. So for every older table a merged table says whether it existed then;
//! [`reconstruct`](crate::manifest::reconstruct) uses this. Files of the attached engine list only their inputs; the description in
//! their edit gives the order of that engine's runs.
//!
//! Invariant: only `reconstruct` reads it, so damage here costs nothing while there is a manifest.
use super::{Edit, EngineEdit};
use crate::encoding::{Cursor, put_sized, put_varint, u32_at};
use crate::{Error, Io, IoContext, Result, TableFooter, sectors};
use bytes::Bytes;
use std::path::Path;

/// Bytes of a table's footer, whichever engine's.
const FOOTER: usize = TableFooter::LENGTH;
/// Bytes between payload and footer.
const TAIL: usize = 8;
/// Inputs of a file, at most: more are treated as damage.
const MOST_INPUTS: u64 = 1 << 24;

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    pub(crate) edit: Edit,
    /// Ascending.
    pub(crate) inputs: Vec<u64>,
    pub(crate) others: Vec<(u64, u8)>,
}

impl Provenance {
    /// The provenance of a file of the attached engine: its description in the manifest, and the files it was made from.
    pub fn of_engine_file(number: u64, description: Bytes, inputs: &[u64]) -> Provenance {
        let engine = EngineEdit {
            add: vec![(number, description)],
            ..EngineEdit::default()
        };
        let edit = Edit {
            engine,
            ..Edit::default()
        };
        let mut inputs = inputs.to_vec();
        inputs.sort_unstable();
        Provenance {
            edit,
            inputs,
            others: Vec::new(),
        }
    }

    /// The bytes before the footer of file `number`.
    pub fn encode(&self, number: u64) -> Vec<u8> {
        let (mut out, mut edit) = (Vec::new(), Vec::new());
        self.edit.encode(&mut edit);
        put_sized(&mut out, &edit);
        // Files that were made together have consecutive numbers.
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in &self.inputs {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        put_varint(&mut out, ranges.len() as u64);
        let mut before = 0;
        for (first, last) in ranges {
            put_varint(&mut out, first - before);
            put_varint(&mut out, last - first);
            before = last;
        }
        put_varint(&mut out, self.others.len() as u64);
        for (number, level) in &self.others {
            put_varint(&mut out, *number);
            out.push(*level);
        }
        let length = out.len() as u32;
        let sum = sum(number, &out);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(payload: &[u8]) -> Option<Provenance> {
        let mut cursor = Cursor::new(payload);
        let edit = Edit::decode(cursor.sized()?)?;
        let (mut inputs, mut before) = (Vec::new(), 0u64);
        for _ in 0..cursor.varint()? {
            let first = before.checked_add(cursor.varint()?)?;
            before = first.checked_add(cursor.varint()?.min(MOST_INPUTS))?;
            inputs.extend(first..=before);
            if inputs.len() as u64 > MOST_INPUTS {
                return None;
            }
        }
        let mut others = Vec::new();
        for _ in 0..cursor.varint()? {
            others.push((cursor.varint()?, cursor.u8()?));
        }
        let provenance = Provenance {
            edit,
            inputs,
            others,
        };
        cursor.is_empty().then_some(provenance)
    }

    /// Reads it from a file. Also returns the file's length, bytes.
    ///
    /// # Errors
    /// `Corrupt`: it is damaged, or not there. `Io`.
    pub fn read(io: &dyn Io, path: &Path, number: u64) -> Result<(Provenance, u64)> {
        let file = io.open_to_read(path).context("open", path)?;
        let length = file.len().context("measure", path)?;
        let read = |offset: u64, bytes: usize| {
            sectors::read(&*file, path, offset, bytes).context("read", path)
        };
        let corrupt = |expected, found| {
            let what = "place among the other tables, before the footer";
            let offset = length.saturating_sub((FOOTER + TAIL) as u64);
            Error::corrupt(path, what, offset, expected, found)
        };
        let Some(at) = length.checked_sub((FOOTER + TAIL) as u64) else {
            return Err(corrupt(0, 0));
        };
        let tail = read(at, TAIL)?;
        if tail.len() < TAIL {
            return Err(corrupt(0, 0));
        }
        let (bytes, expected) = (u32_at(&tail, 0), u32_at(&tail, 4));
        let Some(from) = at.checked_sub(bytes.into()) else {
            return Err(corrupt(expected, 0));
        };
        let payload = read(from, bytes as usize)?;
        let found = sum(number, &payload);
        let is_right = found == expected;
        let provenance = is_right.then(|| Provenance::decode(&payload)).flatten();
        Ok((provenance.ok_or_else(|| corrupt(expected, found))?, length))
    }
}

fn sum(number: u64, payload: &[u8]) -> u32 {
    let head = forebay_checksum::crc32c(&number.to_le_bytes());
    let head = forebay_checksum::crc32c_append(head, &(payload.len() as u32).to_le_bytes());
    forebay_checksum::crc32c_append(head, payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsIo;

    #[test]
    fn it_is_read_back_and_any_flipped_bit_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let provenance = Provenance {
            others: vec![(3, 0), (700, 6)],
            ..Provenance::of_engine_file(9, Bytes::from_static(b"told"), &[8, 1, 2, 3, 7])
        };
        let mut bytes = vec![7; 100];
        bytes.extend(provenance.encode(9));
        let end = bytes.len();
        bytes.extend([0; FOOTER]);
        std::fs::write(&path, &bytes).unwrap();
        let length = bytes.len() as u64;
        assert_eq!(
            Provenance::read(&OsIo, &path, 9).unwrap(),
            (provenance.clone(), length)
        );
        assert!(
            Provenance::read(&OsIo, &path, 8).is_err(),
            "of another file"
        );
        for bit in 100 * 8..end * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bad).unwrap();
            assert!(Provenance::read(&OsIo, &path, 9).is_err(), "bit {bit}");
        }
        std::fs::write(&path, &bytes[..50]).unwrap();
        assert!(Provenance::read(&OsIo, &path, 9).is_err());
    }
}
