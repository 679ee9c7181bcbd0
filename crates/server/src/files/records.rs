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
use crate::{Error, Fid, Member, Result};
use bytes::Bytes;
use forebay_index::Change;

const VERSION: u8 = 1;

pub(super) const STAGED_CHANGES: u8 = 0;
pub(super) const STAGED_PUBLISHED: u8 = 1;
pub(super) const DECISION: u8 = 0;
pub(super) const HISTORY: u8 = 1;

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
        let mut r = RecordReader::new("commit record key", key);
        r.skip(1)?;
        let id = CommitId {
            fid: Fid(r.u64()?),
            writer: r.u16()?,
            token: r.u64()?,
        };
        r.end()?;
        Ok(id)
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
    key.len() == 12 && key[0] == HISTORY && key[9] == RECEIPT
}

pub(super) fn participants_key(fid: Fid) -> Bytes {
    history_key(fid, PARTICIPANTS, &[])
}

fn history_key(fid: Fid, kind: u8, rest: &[u8]) -> Bytes {
    [&fid_key(HISTORY, fid)[..], &[kind], rest].concat().into()
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
    let mut r = RecordReader::new("commit record key", key);
    r.skip(1)?;
    r.u64().map(Fid)
}

pub(super) fn changes_value(changes: &[Change]) -> Result<Bytes> {
    let value = postcard::to_extend(changes, vec![VERSION]);
    let value = value.map_err(|e| Error::Refused(format!("changes cannot be recorded: {e}")))?;
    Ok(value.into())
}

pub(super) fn changes_of(value: &[u8]) -> Result<Vec<Change>> {
    let mut r = RecordReader::new("staged changes", value);
    r.version()?;
    postcard::from_bytes(r.bytes).map_err(|e| damaged("staged changes", &e.to_string()))
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
        let mut value = vec![VERSION];
        for n in [self.seq, self.added, self.freed] {
            value.extend(n.to_be_bytes());
        }
        value.into()
    }
    pub(super) fn of(value: &[u8]) -> Result<PublishedRecord> {
        let mut r = RecordReader::new("published sequence", value);
        r.version()?;
        let record = PublishedRecord {
            seq: r.u64()?,
            added: r.u64()?,
            freed: r.u64()?,
        };
        r.end()?;
        Ok(record)
    }
}

pub(super) fn decision_value(seq: u64, members: &[Member]) -> Bytes {
    let mut value = vec![VERSION];
    value.extend(seq.to_be_bytes());
    value.extend(members.iter().flat_map(|m| m.to_be_bytes()));
    value.into()
}

pub(super) fn decision_of(value: &[u8]) -> Result<(u64, Vec<Member>)> {
    let mut r = RecordReader::new("decision", value);
    r.version()?;
    Ok((r.u64()?, r.members()?))
}

pub(super) fn receipt_value(token: u64, seq: u64) -> Bytes {
    let mut value = vec![VERSION];
    value.extend(token.to_be_bytes());
    value.extend(seq.to_be_bytes());
    value.into()
}

/// `(token, seq)`
pub(super) fn receipt_of(value: &[u8]) -> Result<(u64, u64)> {
    let mut r = RecordReader::new("receipt", value);
    r.version()?;
    let receipt = (r.u64()?, r.u64()?);
    r.end()?;
    Ok(receipt)
}

pub(super) fn abort_value() -> Bytes {
    Bytes::from_static(&[VERSION])
}

pub(super) fn participants_value(members: &[Member]) -> Bytes {
    let mut value = vec![VERSION];
    value.extend(members.iter().flat_map(|m| m.to_be_bytes()));
    value.into()
}

pub(super) fn participants_of(value: &[u8]) -> Result<Vec<Member>> {
    let mut r = RecordReader::new("participants", value);
    r.version()?;
    r.members()
}

struct RecordReader<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> RecordReader<'a> {
    fn new(what: &'static str, bytes: &'a [u8]) -> RecordReader<'a> {
        RecordReader { what, bytes }
    }
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let short = || damaged(self.what, "too short");
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(short)?;
        self.bytes = rest;
        Ok(*head)
    }
    fn skip(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.take::<1>().map(|_| ()))
    }
    fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_be_bytes)
    }
    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_be_bytes)
    }
    fn version(&mut self) -> Result<()> {
        match self.take::<1>()? {
            [VERSION] => Ok(()),
            [other] => Err(damaged(
                self.what,
                &format!("version {other}, this program knows {VERSION}"),
            )),
        }
    }
    fn members(&mut self) -> Result<Vec<Member>> {
        let mut members = Vec::with_capacity(self.bytes.len() / 2);
        while !self.bytes.is_empty() {
            members.push(self.u16()?);
        }
        Ok(members)
    }
    fn end(&self) -> Result<()> {
        match self.bytes {
            [] => Ok(()),
            _ => Err(damaged(self.what, "too long")),
        }
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
