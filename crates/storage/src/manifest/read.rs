//! Reading the two copies of a manifest: what both say together, what a crash tore, and what is damaged.
use super::KIND;
use super::edit::{Edit, ManifestState};
use crate::damage::{Damage, PossibleLoss};
use crate::io::read_file;
use crate::names;
use crate::wal::header;
use crate::wal::record::{RecordStep, Records};
use crate::wal::torn::{self, TornRange};
use crate::{Error, Io, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The names of the copies.
pub const COPIES: [&str; 2] = [names::MANIFEST, names::MANIFEST_COPY];

/// What is found in both copies.
pub struct ReadManifest {
    /// The sum of the whole edits.
    pub state: ManifestState,
    /// How many they are.
    pub edits: u64,
    /// The generation of the files.
    pub generation: u64,
    /// Where the last edit ends, and how long the files are, if both are whole and say the same: they may be written on.
    pub whole: Option<(u64, u64)>,
    /// A copy that has all edits in itself: its place, and its bytes through the last one.
    pub source: Option<(usize, Vec<u8>)>,
    /// What is damaged.
    pub damage: Vec<Damage>,
}

/// One copy's file.
struct CopyBytes {
    path: PathBuf,
    bytes: Vec<u8>,
    /// From its header, if that is whole.
    generation: Option<u64>,
    /// What is wrong with it and not explained by a crash.
    error: Option<Error>,
}

/// What a copy's records say.
#[derive(Default)]
struct WholeRecords {
    edits: BTreeMap<u64, Edit>,
    /// This many edits were on disk.
    synced: u64,
    /// Where the last whole edit ends.
    end: u64,
    /// There are bytes that are no record.
    torn: bool,
    /// A record follows them.
    holed: bool,
    /// The first of them that no crash explains.
    error: Option<Error>,
}

impl CopyBytes {
    fn read(io: &dyn Io, path: PathBuf) -> Result<CopyBytes> {
        let mut copy = CopyBytes {
            path,
            bytes: Vec::new(),
            generation: None,
            error: None,
        };
        let read = read_file(io, &copy.path).and_then(|bytes| {
            copy.bytes = bytes;
            header::read(KIND, &copy.bytes, &copy.path)
        });
        match read {
            Ok(generation) => copy.generation = Some(generation),
            Err(e @ Error::Format { .. }) => return Err(e),
            Err(e) => copy.error = Some(e),
        }
        Ok(copy)
    }

    /// The records that are whole in a file of this generation.
    fn records(&self, generation: u64) -> WholeRecords {
        let mut out = WholeRecords {
            end: header::LENGTH as u64,
            ..WholeRecords::default()
        };
        let from = header::LENGTH.min(self.bytes.len());
        let mut records = Records::new(&self.bytes, generation, from);
        let corrupt = |what, offset: usize, expected, found| {
            Error::corrupt(&self.path, what, offset as u64, expected, found)
        };
        while let Some(step) = records.next() {
            match step {
                RecordStep::Damage {
                    offset,
                    expected,
                    found,
                } => {
                    out.torn = true;
                    let torn = TornRange::new(&self.bytes, offset..records.offset());
                    let last = out.edits.last_key_value().map_or(0, |(n, _)| *n);
                    if !torn::by_crash(&torn, generation, last) {
                        out.error
                            .get_or_insert(corrupt("manifest edit", offset, expected, found));
                    }
                }
                RecordStep::Record(r) => {
                    out.synced = out.synced.max(r.synced);
                    out.holed |= out.torn;
                    if r.payload.is_empty() {
                        continue;
                    }
                    match Edit::decode(r.payload) {
                        Some(edit) => drop(out.edits.insert(r.sequence, edit)),
                        None => {
                            out.error
                                .get_or_insert(corrupt("manifest edit", r.offset, 0, 0));
                        }
                    }
                    out.end = records.offset() as u64;
                }
            }
        }
        out
    }
}

/// Reads both copies, and what their whole edits say together.
///
/// # Errors
/// [`Error::Format`] for a store of another version; [`Error::Corrupt`] if an edit that was on disk is damaged in both.
pub fn read(io: &dyn Io, dir: &Path) -> Result<ReadManifest> {
    let [one, other] = COPIES.map(|name| CopyBytes::read(io, dir.join(name)));
    let copies = [one?, other?];
    let newest = copies.iter().filter_map(|c| c.generation).max();
    let oldest = copies.iter().filter_map(|c| c.generation).min();
    let mut result = Err(missing(&copies[0]));
    // While both were being replaced, one may be older, and says the same.
    for generation in [newest, oldest].into_iter().flatten() {
        result = of_generation(&copies, generation);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn missing(copy: &CopyBytes) -> Error {
    Error::corrupt(
        &copy.path,
        "manifest (no edit), and its copy,",
        header::LENGTH as u64,
        0,
        0,
    )
}

fn of_generation(copies: &[CopyBytes; 2], generation: u64) -> Result<ReadManifest> {
    // A damaged header does not hide records, which carry the number of their file too.
    let held = copies.each_ref().map(|c| c.records(generation));
    let synced = held[0].synced.max(held[1].synced);
    let mut state = ManifestState::default();
    let mut edits = 0;
    while let Some(edit) = held.iter().find_map(|h| h.edits.get(&(edits + 1))) {
        state.apply(edit.clone());
        edits += 1;
    }
    let error = held
        .iter()
        .zip(copies)
        .find_map(|(h, c)| h.error.as_ref().or(c.error.as_ref()));
    if edits == 0 || edits < synced {
        return Err(error.map_or_else(|| missing(&copies[0]), Error::clone));
    }
    let mut damage = Vec::new();
    let mut whole = true;
    let mut source = None;
    for (at, (copy, held)) in copies.iter().zip(&held).enumerate() {
        let complete = held.edits.len() as u64 == edits && copy.generation == Some(generation);
        if complete && source.is_none() && !held.holed {
            source = Some((at, copy.bytes[..held.end as usize].to_vec()));
        }
        whole &= complete && !held.torn && held.error.is_none() && copy.error.is_none();
        // An older one is left while both are replaced, and none while they are made.
        let replaced = copy.generation.is_some_and(|g| g < generation) && edits == 1;
        let made = copy.bytes.is_empty() && edits == 1;
        let behind = (held.edits.len() as u64) + 1 < edits;
        let error = held.error.as_ref().or(copy.error.as_ref()).cloned();
        let error = error.or_else(|| behind.then(|| cut(copy, held, edits)));
        if let Some(error) = error.filter(|_| !replaced && !made) {
            let lost = PossibleLoss::Nothing;
            damage.push(Damage { error, lost });
        }
    }
    whole &= held[0].end == held[1].end;
    let length = copies[0].bytes.len().min(copies[1].bytes.len()) as u64;
    Ok(ReadManifest {
        state,
        edits,
        generation,
        whole: whole.then_some((held[0].end, length)),
        source,
        damage,
    })
}

/// The error for a copy that lacks edits at its end.
fn cut(copy: &CopyBytes, held: &WholeRecords, edits: u64) -> Error {
    Error::corrupt(
        &copy.path,
        "manifest end (edits are missing)",
        held.end,
        edits as u32,
        held.edits.len() as u32,
    )
}
