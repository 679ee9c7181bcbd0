//! Reading a manifest's file: what of it is whole, and what a crash tore.
use super::KIND;
use super::edit::{Edit, State};
use crate::wal::header;
use crate::wal::record::{Records, Step};
use crate::{Error, Result};
use std::path::Path;

/// What is found in a manifest's file.
pub struct Read {
    /// The sum of the whole edits.
    pub state: State,
    /// How many they are.
    pub edits: u64,
    /// Where the last one ends.
    pub end: u64,
    /// Where a torn edit begins.
    pub torn: Option<u64>,
}

/// Reads all edits; a torn one at the end is told, not taken.
///
/// # Errors
/// [`Error::Format`] for a newer store; [`Error::Corrupt`] if an edit that was on disk is damaged.
pub fn read(bytes: &[u8], path: &Path) -> Result<Read> {
    header::check(KIND, 0, bytes, path)?;
    let mut records = Records::new(bytes, 0, header::LENGTH);
    let mut out = Read {
        state: State::default(),
        edits: 0,
        end: header::LENGTH as u64,
        torn: None,
    };
    let mut damage: Option<Error> = None;
    let corrupt = |what, offset: usize, expected, found| Error::Corrupt {
        path: path.to_path_buf(),
        what,
        offset: offset as u64,
        expected,
        found,
    };
    while let Some(step) = records.next() {
        match step {
            Step::Damage {
                offset,
                expected,
                found,
            } => {
                damage.get_or_insert(corrupt("manifest edit", offset, expected, found));
                out.torn.get_or_insert(offset as u64);
            }
            // It says that an edit was on disk which we did not see.
            Step::Record(r) if r.synced > out.edits => {
                return Err(damage.unwrap_or_else(|| {
                    corrupt(
                        "manifest order (an edit is missing), record",
                        r.offset,
                        out.edits as u32,
                        r.synced as u32,
                    )
                }));
            }
            Step::Record(r)
                if damage.is_none() && !r.payload.is_empty() && r.sequence == out.edits + 1 =>
            {
                let edit = Edit::decode(r.payload)
                    .ok_or_else(|| corrupt("manifest edit", r.offset, 0, 0))?;
                out.state.apply(edit);
                out.edits += 1;
                out.end = records.offset() as u64;
            }
            Step::Record(r) if r.payload.is_empty() => {}
            Step::Record(r) => {
                damage.get_or_insert(corrupt(
                    "manifest order (an edit is missing), record",
                    r.offset,
                    out.edits as u32 + 1,
                    r.sequence as u32,
                ));
                out.torn.get_or_insert(r.offset as u64);
            }
        }
    }
    if out.edits == 0 {
        return Err(damage.unwrap_or_else(|| corrupt("manifest (no edit)", header::LENGTH, 0, 0)));
    }
    Ok(out)
}
