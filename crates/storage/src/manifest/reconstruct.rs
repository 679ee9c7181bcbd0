//! Reconstructs the manifest from the table files and logs of a directory, to salvage a store of which neither copy can
//! be read.
//!
//! Every table file holds its [`Provenance`]. These rules say which files make up the store, and in which order:
//! - *Merges happen one after the other.* Files made by one merge have the same inputs. If a later merge used one of its files,
//!   or an input is gone, then the edit that named its files was on disk: what is left of the inputs is superseded. Otherwise
//!   all inputs are there and hold the same entries: the merge's files are left out, because some of them may be missing.
//! - *A merged table lists all tables that the manifest named when its merge began.* A table with a lower number that is not in
//!   the list was superseded before, or is a flush that was not named yet, which its batch number tells.
//! - *Of the tables that are left, flushed ones are newer than merged ones*, because a merge takes all of level 0. Among
//!   flushed tables the number gives the order.
//! - *Of two merged tables that overlap*, the one with the higher number lists the level of the other one, and which of them is
//!   newer never changes. The levels themselves need not be known: all placements that keep this order show the same entries.
//!
//! All batches of the log are replayed in order. They are the newest, so it does no harm if tables hold some of them already.
//!
//! A file that a crash left unfinished looks like one whose end was cut off, so what it may have held is reported as lost. If a
//! merge left no output, because its inputs were all deletes, and the store was killed while the inputs were being removed,
//! then what they deleted may show again.
use super::{LEVELS, ManifestState, Provenance, TableMeta};
use crate::damage::{Damage, PossibleLoss};
use crate::io::read_file;
use crate::wal::header;
use crate::wal::record::{RecordStep, Records};
use crate::{Error, Io, names};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// No key is greater.
const GREATEST: [u8; 64] = [0xff; 64];

/// A table file that tells where it belongs.
struct Candidate {
    level: u8,
    meta: TableMeta,
    inputs: Vec<u64>,
    others: HashMap<u64, u8>,
    /// See [`Provenance`].
    batch: u64,
}

/// The state of the store whose files have these numbers, and what cannot be told.
pub fn reconstruct(
    io: &dyn Io,
    dir: &Path,
    tables: &[u64],
    engine_files: &[u64],
    logs: &[u64],
) -> (ManifestState, Vec<Damage>) {
    let mut damage = Vec::new();
    let mut lost = |error: Error, of_engine: bool| {
        let (first, last) = (Bytes::new(), Bytes::from_static(&GREATEST));
        let lost = match of_engine {
            true => PossibleLoss::EngineKeys { first, last },
            false => PossibleLoss::Keys { first, last },
        };
        damage.push(Damage { error, lost });
    };
    let mut candidates = BTreeMap::new();
    for number in tables {
        match Provenance::read(io, &names::table(dir, *number), *number) {
            Ok((provenance, bytes)) => candidates.extend(candidate(provenance, bytes)),
            Err(error) => lost(error, false),
        }
    }
    let mut files = BTreeMap::new();
    for number in engine_files {
        match Provenance::read(io, &names::engine_file(dir, *number), *number) {
            Ok((provenance, _)) => {
                let description = provenance.edit.engine.add.into_iter().next();
                let description = description.map(|(_, description)| description);
                files.insert(
                    *number,
                    (provenance.inputs, description.unwrap_or_default()),
                );
            }
            Err(error) => lost(error, true),
        }
    }
    let merges =
        |(number, c): (&u64, &Candidate)| (c.level > 0).then(|| (*number, c.inputs.clone()));
    let knows = |number: u64, of: &[u64]| {
        let mut later = candidates.range(number + 1..);
        later.any(|(_, c)| {
            of.iter()
                .any(|n| c.others.contains_key(n) || c.inputs.contains(n))
        })
    };
    let merged: Vec<_> = candidates.iter().filter_map(merges).collect();
    let mut gone = superseded(&merged, tables, knows);
    gone.extend(unknown_to_later(&candidates));
    let merged: Vec<_> = files
        .iter()
        .map(|(n, (inputs, _))| (*n, inputs.clone()))
        .collect();
    let gone_files = superseded(&merged, engine_files, |_, _| false);
    candidates.retain(|number, _| !gone.contains(number));
    let flushed = flushed(io, dir, logs);
    let state = ManifestState {
        tables: leveled(candidates.into_values().collect()),
        flushed,
        engine_files: files
            .into_iter()
            .filter(|(number, _)| !gone_files.contains(number))
            .map(|(number, (_, description))| (number, description))
            .collect(),
        engine_flushed: flushed,
        ..ManifestState::default()
    };
    (state, damage)
}

fn candidate(provenance: Provenance, bytes: u64) -> Option<(u64, Candidate)> {
    let edit = provenance.edit;
    let (level, meta) = edit.add.into_iter().next()?;
    let candidate = Candidate {
        level,
        meta: TableMeta { bytes, ..meta },
        inputs: provenance.inputs,
        others: provenance.others.into_iter().collect(),
        batch: edit.flushed.unwrap_or(0),
    };
    Some((candidate.meta.number, candidate))
}

/// Of files made by merges, with their inputs, and files that are there: which are superseded, or too few. `knows`: whether a file with a
/// number above this one knows any of these.
fn superseded(
    merged: &[(u64, Vec<u64>)],
    there: &[u64],
    knows: impl Fn(u64, &[u64]) -> bool,
) -> BTreeSet<u64> {
    let there: BTreeSet<&u64> = there.iter().collect();
    let mut jobs: BTreeMap<&[u64], Vec<u64>> = BTreeMap::new();
    for (number, inputs) in merged.iter().filter(|(_, inputs)| !inputs.is_empty()) {
        jobs.entry(inputs).or_default().push(*number);
    }
    let mut jobs: Vec<(&[u64], Vec<u64>)> = jobs.into_iter().collect();
    jobs.sort_by_key(|(_, made)| std::cmp::Reverse(made.iter().max().copied()));
    let mut gone = BTreeSet::new();
    for (inputs, made) in jobs {
        let newest = made.iter().max().copied().unwrap_or(0);
        let used = made.iter().any(|n| gone.contains(n)) || knows(newest, &made);
        match !used && inputs.iter().all(|n| there.contains(n)) {
            true => gone.extend(made),
            false => gone.extend(inputs.iter().copied()),
        }
    }
    gone
}

/// Tables that a merged table with a higher number would know if they were still there.
fn unknown_to_later(candidates: &BTreeMap<u64, Candidate>) -> Vec<u64> {
    let is_unknown = |(number, c): &(&u64, &Candidate)| {
        let mut later = candidates.range(*number + 1..);
        later.any(|(_, w)| {
            let told = w.others.contains_key(number) || w.inputs.contains(number);
            let beside = c.level > 0 && c.inputs == w.inputs;
            let unnamed = c.level == 0 && c.batch > w.batch;
            w.level > 0 && !told && !beside && !unnamed
        })
    };
    let unknown = candidates.iter().filter(is_unknown);
    unknown.map(|(number, _)| *number).collect()
}

/// The tables, each on a level below all newer ones that it overlaps.
fn leveled(tables: Vec<Candidate>) -> Vec<(u8, TableMeta)> {
    let mut levels: Vec<u8> = tables.iter().map(|t| u8::from(t.level > 0)).collect();
    // Whether `upper` is newer; both are merged, and overlap.
    let hides = |upper: &Candidate, lower: &Candidate| {
        let (low, high) = match upper.meta.number < lower.meta.number {
            true => (upper, lower),
            false => (lower, upper),
        };
        let known = high.others.get(&low.meta.number);
        let low_is_newer = known.is_some_and(|level| *level < high.level);
        low_is_newer == (low.meta.number == upper.meta.number)
    };
    for _ in 0..LEVELS {
        let before = levels.clone();
        for (i, upper) in tables.iter().enumerate().filter(|(_, t)| t.level > 0) {
            for (j, lower) in tables.iter().enumerate().filter(|(_, t)| t.level > 0) {
                let overlap = i != j && upper.meta.overlaps(&lower.meta.first, &lower.meta.last);
                if overlap && hides(upper, lower) {
                    levels[j] = levels[j].max(levels[i] + 1).min(LEVELS as u8 - 1);
                }
            }
        }
        if levels == before {
            break;
        }
    }
    let metas = tables.into_iter().map(|t| t.meta);
    levels.into_iter().zip(metas).collect()
}

/// The batch before the first one of the log: what came before is in tables. If the log begins with damage, it is not known, and all
/// that is missing is told.
fn flushed(io: &dyn Io, dir: &Path, logs: &[u64]) -> u64 {
    for number in logs {
        let Ok(bytes) = read_file(io, &names::log(dir, *number)) else {
            return 0;
        };
        match Records::new(&bytes, *number, header::LENGTH.min(bytes.len())).next() {
            Some(RecordStep::Record(r)) if r.payload.is_empty() => return r.sequence,
            Some(RecordStep::Record(r)) => return r.sequence.saturating_sub(1),
            Some(RecordStep::Damage { .. }) => return 0,
            // Nothing was written to it.
            None => {}
        }
    }
    0
}
