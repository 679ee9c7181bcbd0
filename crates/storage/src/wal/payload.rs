//! A batch as the payload of a log record.
//!
//! ```text
//!  count varint | count times: tag u8 | key length varint | key | [value length varint | value]
//!               |           or: 16    | length varint | an entry for the attached engine
//! ```
//! `tag` is the keyspace (0..=15), with bit 7 set for a delete, which has no value.
use crate::encoding::{Cursor, put_sized, put_varint};
use crate::{Batch, EngineEntry, Keyspace, Op};
use bytes::Bytes;

const DELETE: u8 = 0x80;
const ENTRY: u8 = 16;

/// Appends a batch's changes.
pub fn encode(out: &mut Vec<u8>, ops: &[Op], entries: &[EngineEntry]) {
    put_varint(out, (ops.len() + entries.len()) as u64);
    for entry in entries {
        out.push(ENTRY);
        put_sized(out, &entry.bytes);
    }
    for op in ops {
        let delete = if op.value.is_none() { DELETE } else { 0 };
        out.push(op.keyspace.0 | delete);
        put_sized(out, &op.key);
        if let Some(value) = &op.value {
            put_sized(out, value);
        }
    }
}

/// An upper bound of the encoded length, in bytes.
pub fn bound(ops: &[Op], entries: &[EngineEntry]) -> usize {
    let entries: usize = entries.iter().map(|entry| 11 + entry.bytes.len()).sum();
    10 + entries
        + ops
            .iter()
            .map(|op| 21 + op.key.len() + op.value.as_ref().map_or(0, Bytes::len))
            .sum::<usize>()
}

/// Reads the changes back; `None` if the payload is no batch.
pub fn decode(payload: &[u8]) -> Option<Batch> {
    let mut cursor = Cursor::new(payload);
    let count = cursor.varint()?;
    let mut ops = Vec::with_capacity(count.min(payload.len() as u64) as usize);
    let mut entries = Vec::new();
    for _ in 0..count {
        let tag = cursor.u8()?;
        if tag == ENTRY {
            entries.push(Bytes::copy_from_slice(cursor.sized()?).into());
            continue;
        }
        let keyspace = Keyspace(tag & !DELETE);
        if usize::from(keyspace.0) >= Keyspace::COUNT {
            return None;
        }
        let key = Bytes::copy_from_slice(cursor.sized()?);
        let value = if tag & DELETE != 0 {
            None
        } else {
            Some(Bytes::copy_from_slice(cursor.sized()?))
        };
        ops.push(Op {
            keyspace,
            key,
            value,
        });
    }
    cursor.is_empty().then(|| Batch::of(ops, entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_come_back(raw in proptest::collection::vec(
            (0u8..16, proptest::collection::vec(any::<u8>(), 0..20), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300))), 0..10,
        ), entries in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4)) {
            let entries: Vec<EngineEntry> = entries.into_iter().map(|entry| Bytes::from(entry).into()).collect();
            let ops: Vec<Op> = raw.into_iter()
                .map(|(k, key, value)| Op { keyspace: Keyspace(k), key: key.into(), value: value.map(Bytes::from) }).collect();
            let mut out = Vec::new();
            encode(&mut out, &ops, &entries);
            prop_assert!(out.len() <= bound(&ops, &entries));
            prop_assert_eq!(decode(&out), Some(Batch::of(ops, entries)));
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
