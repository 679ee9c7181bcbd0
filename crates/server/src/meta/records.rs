//! The durable records of operations that span members (keyspace `INTENTS`).
//!
//! ```text
//! key    0     1             3          11
//!        +-----+-------------+-----------+
//!        | tag | coordinator | number    |      big-endian; both zero where the tag needs none
//!        +-----+-------------+-----------+
//! value  0         1
//!        +---------+--------------------+
//!        | version | postcard           |      version 3
//!        +---------+--------------------+
//! ```
//!
//! Version 2 is the same but for the inodes in `I` and `P`, which have no codec hint there. Those two are refused: they are operations
//! that an earlier Forebay did not finish. A clean stop of it leaves none.
//!
//! | tag | at | value | from | until |
//! |---|---|---|---|---|
//! | `I` intent | coordinator | `Intent` | the commit point | every member has its steps on disk |
//! | `P` prepared | participant | `Vec<Precondition>` | `PrepareIntent` | `FinishIntent` or `AbortIntent` |
//! | `A` applied | participant | nothing | `FinishIntent` | the watermark passes it |
//! | `W` watermark | participant | `u64` | | moves up only; intents below it are over |
//! | `G` directory moves | member 0 | `IntentId` | a directory move starts | it is over |
use crate::{Error, Member, Result, keys};
pub use forebay_proto::intents::{IntentId, IntentPart};
use forebay_storage::{Batch, Store};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordTag {
    Intent = b'I' as isize,
    Prepared = b'P' as isize,
    Applied = b'A' as isize,
    Watermark = b'W' as isize,
    DirectoryMoveLock = b'G' as isize,
}

/// A decided operation: what remains to be done at other members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// Every other member that takes part, and what is left to do there.
    pub parts: Vec<(Member, IntentPart)>,
    /// The operation holds the lock of directory moves.
    pub moves_directory: bool,
}

const VERSION: u8 = 3;
/// Inodes in it have no codec hint.
const VERSION_2: u8 = 2;

/// The id of records that there is one of.
pub(crate) const SINGLE: IntentId = IntentId::new(0, 0);

fn key(tag: RecordTag, id: IntentId) -> Vec<u8> {
    let mut key = Vec::with_capacity(11);
    key.push(tag as u8);
    key.extend_from_slice(&id.coordinator.to_be_bytes());
    key.extend_from_slice(&id.number.to_be_bytes());
    key
}

#[expect(clippy::expect_used, reason = "proved beside the call")]
pub(crate) fn put<T: Serialize>(batch: &mut Batch, tag: RecordTag, id: IntentId, value: &T) {
    // postcard fails only for sequences of unknown length and full fixed buffers: no record has either.
    let value = postcard::to_extend(value, vec![VERSION])
        .expect("no record has a type that postcard refuses");
    batch.put(keys::INTENTS, key(tag, id), value);
}

pub(crate) fn delete(batch: &mut Batch, tag: RecordTag, id: IntentId) {
    batch.delete(keys::INTENTS, key(tag, id));
}

pub(crate) fn get<T: DeserializeOwned>(
    store: &Store,
    tag: RecordTag,
    id: IntentId,
) -> Result<Option<T>> {
    let key = key(tag, id);
    store
        .get(keys::INTENTS, &key)?
        .map(|value| decode(&key, &value))
        .transpose()
}

/// All records of a kind, by id.
pub(crate) fn all<T: DeserializeOwned>(
    store: &Store,
    tag: RecordTag,
) -> Result<Vec<(IntentId, T)>> {
    records(store, tag).collect()
}

/// All records of a kind that can be read, by id.
pub(crate) fn readable<T: DeserializeOwned>(store: &Store, tag: RecordTag) -> Vec<(IntentId, T)> {
    records(store, tag).filter_map(Result::ok).collect()
}

fn records<T: DeserializeOwned>(
    store: &Store,
    tag: RecordTag,
) -> impl Iterator<Item = Result<(IntentId, T)>> {
    keys::with_prefix(store, keys::INTENTS, &[tag as u8]).map(|item| {
        let (key, value) = item?;
        let id = id_of(&key).ok_or_else(|| damaged(&key, "the key is not 11 bytes"))?;
        Ok((id, decode(&key, &value)?))
    })
}

fn id_of(key: &[u8]) -> Option<IntentId> {
    let (coordinator, number) = key.get(1..)?.split_first_chunk()?;
    Some(IntentId::new(
        Member::from_be_bytes(*coordinator),
        u64::from_be_bytes(number.try_into().ok()?),
    ))
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T> {
    match value.split_first() {
        Some((&VERSION_2, _)) if has_inodes(key) => Err(Error::Refused(
            "an operation on names of an earlier Forebay is not finished; start that version once on this store, stop it cleanly, then use this one".into(),
        )),
        Some((&(VERSION | VERSION_2), fields)) => {
            postcard::from_bytes(fields).map_err(|e| damaged(key, &e.to_string()))
        }
        _ => Err(damaged(key, "unknown version")),
    }
}

/// Whether records of this kind may hold inodes.
fn has_inodes(key: &[u8]) -> bool {
    let tags = [RecordTag::Intent, RecordTag::Prepared];
    tags.iter().any(|tag| key.first() == Some(&(*tag as u8)))
}

fn damaged(key: &[u8], why: &str) -> Error {
    Error::Corrupt(format!(
        "intent record {key:02x?}: {why}; run `forebay fsck`"
    ))
}
