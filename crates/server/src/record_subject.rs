//! Tells from its key alone what a record of a member's store describes (a file, a directory, a log): for reports of
//! damage, and for tests that damage records.
use crate::escape::escaped_name;
use crate::paths::{self, InodeNames};
use crate::{Fid, keys};
use forebay_data::{container, span};
use forebay_storage::{Damage, Keyspace, PossibleLoss};

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordSubject {
    /// Attributes of an inode.
    Inode(Fid),
    /// A name in a directory.
    Entry {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// Extended attributes.
    Attributes(Fid),
    /// Patterns of a file's content.
    Patterns(Fid),
    /// Where bytes of a log lie.
    Span {
        /// The log.
        log: u64,
        /// The address after its last byte.
        end: u64,
    },
    /// Where chunks lie that spans share, or how often they are named.
    Container(u64),
    /// A commit of a file that is on its way, or what is known of those before.
    Commit(Fid),
    /// An operation on names of several members.
    Intent,
    /// A message to another member.
    Message,
    /// A log that is written.
    OpenLog(u64),
    /// A file without a name.
    Orphan(Fid),
    /// A counter.
    Counter(Vec<u8>),
    /// Bytes that were overwritten without a sync.
    Displaced,
    /// Where bytes of a file are.
    Extent {
        /// The file.
        fid: Fid,
        /// Offset in it, bytes.
        offset: u64,
    },
}

impl RecordSubject {
    /// Of a row with this key. `None`: no row has it.
    pub fn of(keyspace: Keyspace, key: &[u8]) -> Option<RecordSubject> {
        Some(match keyspace {
            keys::INODES => RecordSubject::Inode(keys::fid_of(key)?),
            keys::DENTRIES => RecordSubject::Entry {
                dir: keys::fid_of(key)?,
                // A key made to be just after a name ends in a zero, which no name has.
                name: key[8..].strip_suffix(&[0]).unwrap_or(&key[8..]).to_vec(),
            },
            keys::XATTRS => RecordSubject::Attributes(keys::fid_of(key)?),
            keys::PATTERNS => RecordSubject::Patterns(keys::fid_of(key)?),
            keys::SPANS => {
                // A key made to be just after another is longer.
                let (log, end) = span::split_key(key.get(..16)?)?;
                RecordSubject::Span { log, end }
            }
            keys::CONTAINERS => {
                // The same.
                let record = container::keys::split_key(key.get(..9)?);
                // Of all containers, if of none.
                RecordSubject::Container(record.map_or(0, |(_, id)| id))
            }
            keys::STAGED | keys::DECISIONS => RecordSubject::Commit(keys::fid_of(key.get(1..)?)?),
            keys::INTENTS => RecordSubject::Intent,
            keys::OUTBOX => RecordSubject::Message,
            keys::LOGS => RecordSubject::OpenLog(u64::from_be_bytes(*key.first_chunk()?)),
            keys::ORPHANS => RecordSubject::Orphan(keys::fid_of(key)?),
            keys::COUNTERS => RecordSubject::Counter(key.to_vec()),
            keys::DISPLACED => RecordSubject::Displaced,
            _ => return None,
        })
    }

    /// Of a row with this key as tables have it: its keyspace first.
    pub fn of_table_key(key: &[u8]) -> Option<RecordSubject> {
        let (keyspace, key) = key.split_first()?;
        RecordSubject::of(Keyspace(*keyspace), key)
    }

    /// Of an entry of the index with this key.
    pub fn of_index_key(key: &[u8]) -> Option<RecordSubject> {
        let offset = u64::from_be_bytes(key.get(8..16)?.try_into().ok()?);
        Some(RecordSubject::Extent {
            fid: keys::fid_of(key)?,
            offset,
        })
    }

    /// For people, with the paths that are known.
    pub(crate) fn text(&self, named: &InodeNames) -> String {
        use RecordSubject::*;
        // Keys that no record has are the ends of a range of which nothing else is known.
        let path = |fid: &Fid| match *fid {
            Fid(u64::MAX) => "the last inode".into(),
            fid => paths::path(named, fid),
        };
        match self {
            Inode(fid) => format!("the attributes of {}", path(fid)),
            Entry { dir, name } => {
                format!("the name '{}' in {}", escaped_name(name), path(dir))
            }
            Attributes(fid) => format!("extended attributes of {}", path(fid)),
            Patterns(fid) => format!("patterns of {}", path(fid)),
            Span { log: u64::MAX, .. } => "where the last log has its bytes".into(),
            Span { log, end } => format!("where log {log} has its bytes before {end}"),
            Container(id) => format!("where container {id} has its chunks"),
            Commit(fid) => format!("commits of {}", path(fid)),
            Intent => "changes of names over several members".into(),
            Message => "messages to other members".into(),
            OpenLog(log) => format!("whose log {log} is"),
            Orphan(fid) => format!("that {} has no name", path(fid)),
            Counter(name) => format!("the counter '{}'", escaped_name(name)),
            Displaced => "what was overwritten without a sync".into(),
            Extent { fid, offset } => {
                format!("where {} has its bytes from {offset} on", path(fid))
            }
        }
    }
}

/// What is damaged and what it may have held, for people, without what to do next.
pub(crate) fn text_of(damage: &Damage, named: &InodeNames) -> String {
    let what = damage.error.without_advice();
    let held = |first: Option<RecordSubject>, last: Option<RecordSubject>| match (first, last) {
        (Some(first), Some(last)) if first == last => first.text(named),
        (
            Some(RecordSubject::Entry { dir, name: first }),
            Some(RecordSubject::Entry {
                dir: other,
                name: last,
            }),
        ) if dir == other => format!(
            "the names '{}' to '{}' in {}",
            escaped_name(&first),
            escaped_name(&last),
            paths::path(named, dir)
        ),
        (Some(first), Some(last)) => {
            let (first, last) = (first.text(named), last.text(named));
            format!("everything from {first} to {last}")
        }
        _ => "records that make no sense".into(),
    };
    match &damage.lost {
        PossibleLoss::Nothing => format!("{what} (nothing is lost by it)"),
        PossibleLoss::Corrected { byte } => {
            format!("{what} (one flipped bit, in byte {byte}, is put right: nothing is lost)")
        }
        PossibleLoss::Keys { first, last } => {
            let of = RecordSubject::of_table_key;
            format!("{what}; it may have held {}", held(of(first), of(last)))
        }
        PossibleLoss::EngineKeys { first, last } => {
            let of = RecordSubject::of_index_key;
            format!("{what}; it may have held {}", held(of(first), of(last)))
        }
        PossibleLoss::Batches {
            first,
            last: Some(last),
        } if first == last => format!("{what} (batch {first} is missing)"),
        PossibleLoss::Batches { first, last } => match last {
            Some(last) => format!("{what} (batches {first} to {last} are missing)"),
            None => format!("{what} (batches from {first} on are missing)"),
        },
    }
}
