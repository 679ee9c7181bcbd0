//! The durable records of commits in flight, byte by byte. Numbers are big-endian, so that keys of one file lie together
//! in order. The store checksums every record; the first byte of a value is the version of its form (1).
//!
//! ```text
//! STAGED     key  | 0 | fid 8 | writer 2 | token 8 |    changes of a commit that is not published yet
//!            val  | 1 | postcard: Vec<Change>      |
//!            key  | 1 | fid 8 |                         what was last published here for a file owned elsewhere
//!            val  | 1 | seq 8 | added 8 | freed 8  |    bytes added and freed by it: a retried Publish answers the same
//! DECISIONS  key  | 0 | fid 8 | writer 2 | token 8 |    commit decided, not yet published by `members`
//!            val  | 1 | seq 8 | members 2 each ... |
//!            key  | 1 | fid 8 | 0 | writer 2 |          receipt: the last commit of this writer (another member)
//!            val  | 1 | token 8 | seq 8 |
//!            key  | 1 | fid 8 | 1 | writer 2 | token 8 | abort: this commit never happens; a slice owner was promised so
//!            val  | 1 |
//!            key  | 1 | fid 8 | 2 |                     participants: members that ever got a part of this file
//!            val  | 1 | members 2 each ... |
//! ```
//!
//! The tag comes first, so that all decisions, which every start reads, lie together. The rest of a file's records lie
//! together too: a removal finds them (usually none) with one look.
use crate::{Error, Fid, Member, Result, keys};
use bytes::Bytes;
use forebay_index::Change;

const VERSION: u8 = 1;

pub(super) const STAGED_CHANGES: u8 = 0;
pub(super) const STAGED_PUBLISHED: u8 = 1;
pub(super) const DECISION: u8 = 0;
pub(super) const FILE_COMMIT_RECORDS: u8 = 1;

const RECEIPT: u8 = 0;
const ABORT: u8 = 1;
const PARTICIPANTS: u8 = 2;

/// Names one commit: its file, the member that wrote it, and that member's token for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CommitId {
    pub fid: Fid,
    pub writer: Member,
    pub token: u64,
}

impl CommitId {
    pub(super) fn key(self, tag: u8) -> Bytes {
        let mut key = Vec::with_capacity(19);
        key.push(tag);
        key.extend(self.fid.0.to_be_bytes());
        key.extend(self.writer.to_be_bytes());
        key.extend(self.token.to_be_bytes());
        key.into()
    }
    /// From a key of 19 bytes.
    pub(super) fn from_key(key: &[u8]) -> Result<CommitId> {
        let id = || {
            let (fid, rest) = key.get(1..)?.split_first_chunk()?;
            let (writer, token) = rest.split_first_chunk()?;
            Some(CommitId {
                fid: Fid(u64::from_be_bytes(*fid)),
                writer: u16::from_be_bytes(*writer),
                token: u64::from_be_bytes(token.try_into().ok()?),
            })
        };
        let why = if key.len() < 19 {
            "too short"
        } else {
            "too long"
        };
        id().ok_or_else(|| damaged("commit record key", why))
    }
    pub(super) fn abort_key(self) -> Bytes {
        let rest = [&self.writer.to_be_bytes()[..], &self.token.to_be_bytes()].concat();
        history_key(self.fid, ABORT, &rest)
    }
    pub(super) fn receipt_key(self) -> Bytes {
        receipt_key(self.fid, self.writer)
    }
}

pub(super) fn receipt_key(fid: Fid, writer: Member) -> Bytes {
    history_key(fid, RECEIPT, &writer.to_be_bytes())
}

/// Whether a key of `DECISIONS` is that of a receipt.
pub(super) fn is_receipt(key: &[u8]) -> bool {
    key.len() == 12 && key[0] == FILE_COMMIT_RECORDS && key[9] == RECEIPT
}

pub(super) fn participants_key(fid: Fid) -> Bytes {
    history_key(fid, PARTICIPANTS, &[])
}

fn history_key(fid: Fid, kind: u8, rest: &[u8]) -> Bytes {
    [&fid_key(FILE_COMMIT_RECORDS, fid)[..], &[kind], rest]
        .concat()
        .into()
}

/// The key of a record there is once a file, and the prefix of the others.
pub(super) fn fid_key(tag: u8, fid: Fid) -> Bytes {
    let mut key = Vec::with_capacity(11);
    key.push(tag);
    key.extend(fid.0.to_be_bytes());
    key.into()
}

/// The file of any key of these records.
pub(super) fn fid_of_key(key: &[u8]) -> Result<Fid> {
    let fid = key.get(1..).and_then(keys::fid_of);
    fid.ok_or_else(|| damaged("commit record key", "too short"))
}

pub(super) fn changes_value(changes: &[Change]) -> Result<Bytes> {
    let value = postcard::to_extend(changes, vec![VERSION]);
    let value = value.map_err(|e| Error::Refused(format!("changes cannot be recorded: {e}")))?;
    Ok(value.into())
}

pub(super) fn changes_of(value: &[u8]) -> Result<Vec<Change>> {
    let what = "staged changes";
    let ([], changes) = numbers(what, value)?;
    postcard::from_bytes(changes).map_err(|e| damaged(what, &e.to_string()))
}

/// What a slice owner last published for a file. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PublishedRecord {
    pub seq: u64,
    pub added: u64,
    pub freed: u64,
}

impl PublishedRecord {
    pub(super) fn value(self) -> Bytes {
        value(&[self.seq, self.added, self.freed], &[])
    }
    pub(super) fn of(value: &[u8]) -> Result<PublishedRecord> {
        let [seq, added, freed] = all_numbers("published sequence", value)?;
        Ok(PublishedRecord { seq, added, freed })
    }
}

pub(super) fn decision_value(seq: u64, members: &[Member]) -> Bytes {
    value(&[seq], members)
}

pub(super) fn decision_of(value: &[u8]) -> Result<(u64, Vec<Member>)> {
    let ([seq], rest) = numbers("decision", value)?;
    Ok((seq, members("decision", rest)?))
}

pub(super) fn receipt_value(token: u64, seq: u64) -> Bytes {
    value(&[token, seq], &[])
}

/// `(token, seq)`
pub(super) fn receipt_of(value: &[u8]) -> Result<(u64, u64)> {
    all_numbers("receipt", value).map(|[token, seq]| (token, seq))
}

pub(super) fn abort_value() -> Bytes {
    Bytes::from_static(&[VERSION])
}

pub(super) fn participants_value(members: &[Member]) -> Bytes {
    value(&[], members)
}

pub(super) fn participants_of(value: &[u8]) -> Result<Vec<Member>> {
    let ([], rest) = numbers("participants", value)?;
    members("participants", rest)
}

fn value(numbers: &[u64], members: &[Member]) -> Bytes {
    let mut value = vec![VERSION];
    value.extend(numbers.iter().flat_map(|n| n.to_be_bytes()));
    value.extend(members.iter().flat_map(|m| m.to_be_bytes()));
    value.into()
}

/// The first numbers of a value, and what is after them.
fn numbers<'a, const N: usize>(what: &str, value: &'a [u8]) -> Result<([u64; N], &'a [u8])> {
    let short = || damaged(what, "too short");
    let (version, rest) = value.split_first().ok_or_else(short)?;
    if *version != VERSION {
        let why = format!("version {version}, this program knows {VERSION}");
        return Err(damaged(what, &why));
    }
    let (bytes, rest) = rest.split_at_checked(8 * N).ok_or_else(short)?;
    let mut numbers = [0; N];
    for (n, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *n = u64::from_be_bytes(*bytes);
    }
    Ok((numbers, rest))
}

/// Those of a value that has nothing else.
fn all_numbers<const N: usize>(what: &str, value: &[u8]) -> Result<[u64; N]> {
    match numbers(what, value)? {
        (numbers, []) => Ok(numbers),
        _ => Err(damaged(what, "too long")),
    }
}

fn members(what: &str, rest: &[u8]) -> Result<Vec<Member>> {
    match rest.as_chunks() {
        (members, []) => Ok(members.iter().map(|m| Member::from_be_bytes(*m)).collect()),
        _ => Err(damaged(what, "too short")),
    }
}

fn damaged(what: &str, why: &str) -> Error {
    Error::Corrupt(format!("{what}: {why}; run `forebay fsck`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(fid: u64, writer: u16, token: u64, seq: u64, added: u64, freed: u64, members: Vec<u16>) {
            let id = CommitId { fid: Fid(fid), writer, token };
            prop_assert!(is_receipt(&id.receipt_key()) && !is_receipt(&id.abort_key()));
            prop_assert!(!is_receipt(&participants_key(id.fid)) && !is_receipt(&id.key(DECISION)));
            prop_assert_eq!(CommitId::from_key(&id.key(DECISION)).unwrap(), id);
            for key in [id.key(STAGED_CHANGES), id.abort_key(), id.receipt_key(), participants_key(id.fid)] {
                prop_assert_eq!(fid_of_key(&key).unwrap(), id.fid);
            }
            prop_assert_eq!(decision_of(&decision_value(seq, &members)).unwrap(), (seq, members.clone()));
            prop_assert_eq!(participants_of(&participants_value(&members)).unwrap(), members);
            prop_assert_eq!(receipt_of(&receipt_value(token, seq)).unwrap(), (token, seq));
            let published = PublishedRecord { seq, added, freed };
            prop_assert_eq!(PublishedRecord::of(&published.value()).unwrap(), published);
            let changes = vec![Change::Cut { start: added, end: freed }];
            prop_assert_eq!(changes_of(&changes_value(&changes).unwrap()).unwrap(), changes);
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
            let _ = CommitId::from_key(&bytes);
            let _ = decision_of(&bytes);
            let _ = participants_of(&bytes);
            let _ = receipt_of(&bytes);
            let _ = PublishedRecord::of(&bytes);
            let _ = changes_of(&bytes);
        }
    }
}
