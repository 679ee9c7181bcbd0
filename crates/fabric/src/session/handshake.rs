//! The handshake: who the processes of a job are, exchanged once, before anything else.
//!
//! Each process gives one record of fixed size, so that every release can read every other's:
//!
//! ```text
//!  0        8          12         16       20        24         40             72         136        140
//! | magic  | frames' v | service's v | member | of how many | service id | secret's hash | host name | checksum |
//! ```
//!
//! - versions: of the frames and of what they carry. Both must be equal everywhere.
//! - member: the permanent number of this process's store, and how many the service has.
//! - service id: which service the store belongs to.
//! - secret's hash: SHA-256 of the job secret; the secret itself is not sent.
//! - host name: for messages to people.
//! - checksum: CRC32C of all before it.
//!
//! **Invariant:** this layout never changes; what differs between releases is refused by its versions.
//!
//! All processes look at the same records in the same order, so all refuse with the same words, or all go on.

use crate::Rank;
use bytes::Buf;
use sha2::{Digest, Sha256};

const MAGIC: [u8; 8] = *b"Forebay\0";
const RECORD_LEN: usize = 140;
const HOST_LEN: usize = 64;

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Version of the messages that the fabric's user exchanges.
    pub version: u32,
    /// Proves that this process belongs to the job. Any bytes; none is a secret too.
    pub secret: Vec<u8>,
    /// The member that runs here: 0..`members`.
    pub member: Rank,
    /// How many members the service has.
    pub members: u32,
    /// Which service the member belongs to.
    pub service: [u8; 16],
}

/// Why the processes of a job do not make a service. The same on every process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Servers of different releases.
    #[error("{0} and {1} run different releases of the server: install the same one on all nodes")]
    Version(String, String),
    /// Servers of different jobs.
    #[error(
        "{0} and {1} were started with different job secrets: give all servers of a job the same"
    )]
    Secret(String, String),
    /// Stores of different services.
    #[error(
        "{0} and {1} have stores of different services: start each service with its own stores only"
    )]
    Service(String, String),
    /// Not as many servers as members.
    #[error(
        "{found} servers were started for a service of {members} members: start one for each store"
    )]
    Count {
        /// Processes of the job.
        found: usize,
        /// Members that the stores know of.
        members: u32,
    },
    /// The stores disagree on the number of members.
    #[error(
        "the stores of {0} and {1} know different numbers of members: use the stores of one service"
    )]
    Members(String, String),
    /// One store twice.
    #[error(
        "{first} and {second} both run member {member}: give each server its own store; no server runs member {missing}"
    )]
    Twice {
        /// The member.
        member: Rank,
        /// One place.
        first: String,
        /// The other.
        second: String,
        /// A member that no process runs.
        missing: Rank,
    },
    /// A number that no member has.
    #[error("{place} runs member {member}, but the service's members are 0 to {last}")]
    NoSuchMember {
        /// Where.
        place: String,
        /// The member.
        member: Rank,
        /// The last one.
        last: Rank,
    },
    /// A record that is none.
    #[error("{0} did not introduce itself as a server: start servers only in this job")]
    Garbled(String),
}

/// What the record of one process says.
struct ProcessRecord {
    place: String,
    frames: u32,
    version: u32,
    member: Rank,
    members: u32,
    service: [u8; 16],
    secret: [u8; 32],
}

/// The record of `identity`, for a server that speaks version `frames` of the frames.
pub(super) fn encode_record(identity: &Identity, frames: u32, host: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(RECORD_LEN);
    out.extend_from_slice(&MAGIC);
    for number in [frames, identity.version, identity.member, identity.members] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&identity.service);
    out.extend_from_slice(&Sha256::digest(&identity.secret));
    let host = &host.as_bytes()[..host.len().min(HOST_LEN)];
    out.extend_from_slice(host);
    out.resize(RECORD_LEN - 4, 0);
    let sum = forebay_checksum::crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// The process of each member, from the records by process; `process_word` is what the transport calls a process.
pub(super) fn check_identities(
    records: &[u8],
    process_word: &str,
) -> Result<Vec<u32>, IdentityError> {
    let parsed: Result<Vec<ProcessRecord>, IdentityError> = records
        .chunks(RECORD_LEN)
        .enumerate()
        .map(|(process, record)| decode_record(&format!("{process_word} {process}"), record))
        .collect();
    let all = parsed?;
    let Some(first) = all.first() else {
        return Ok(Vec::new());
    };
    let alike = |differ: fn(&ProcessRecord, &ProcessRecord) -> bool,
                 error: fn(String, String) -> IdentityError| {
        match all.iter().find(|other| differ(first, other)) {
            Some(other) => Err(error(first.place.clone(), other.place.clone())),
            None => Ok(()),
        }
    };
    // The secret first: what else a stranger says does not matter.
    alike(|a, b| a.secret != b.secret, IdentityError::Secret)?;
    alike(
        |a, b| (a.frames, a.version) != (b.frames, b.version),
        IdentityError::Version,
    )?;
    alike(|a, b| a.service != b.service, IdentityError::Service)?;
    alike(|a, b| a.members != b.members, IdentityError::Members)?;
    let members = first.members;
    if all.len() as u64 != u64::from(members) {
        let found = all.len();
        return Err(IdentityError::Count { found, members });
    }
    processes_by_member(&all)
}

fn processes_by_member(all: &[ProcessRecord]) -> Result<Vec<u32>, IdentityError> {
    let mut processes: Vec<Option<usize>> = vec![None; all.len()];
    let mut twice = None;
    for (number, process) in all.iter().enumerate() {
        let member = process.member;
        match processes.get_mut(member as usize) {
            None => {
                return Err(IdentityError::NoSuchMember {
                    place: process.place.clone(),
                    member,
                    last: process.members - 1,
                });
            }
            Some(Some(first)) => twice = twice.or(Some((member, *first, number))),
            Some(free) => *free = Some(number),
        }
    }
    if let Some((member, first, second)) = twice {
        return Err(IdentityError::Twice {
            member,
            first: all[first].place.clone(),
            second: all[second].place.clone(),
            missing: processes
                .iter()
                .position(Option::is_none)
                .unwrap_or_default() as Rank,
        });
    }
    // As many processes as members and none twice: every member has a process.
    Ok(processes.into_iter().flatten().map(|p| p as u32).collect())
}

/// `process` is the name of the process that gave it.
fn decode_record(process: &str, record: &[u8]) -> Result<ProcessRecord, IdentityError> {
    let whole = record.len() == RECORD_LEN
        && record[..8] == MAGIC
        && record[RECORD_LEN - 4..]
            == forebay_checksum::crc32c(&record[..RECORD_LEN - 4]).to_le_bytes();
    if !whole {
        return Err(IdentityError::Garbled(process.into()));
    }
    let mut rest = &record[MAGIC.len()..];
    let mut out = ProcessRecord {
        place: String::new(),
        frames: rest.get_u32_le(),
        version: rest.get_u32_le(),
        member: rest.get_u32_le(),
        members: rest.get_u32_le(),
        service: [0; 16],
        secret: [0; 32],
    };
    rest.copy_to_slice(&mut out.service);
    rest.copy_to_slice(&mut out.secret);
    let host = String::from_utf8_lossy(&rest[..HOST_LEN]);
    out.place = format!("{process} ({})", host.trim_end_matches('\0'));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member(member: Rank, members: u32) -> Identity {
        Identity {
            version: 3,
            secret: b"secret".to_vec(),
            member,
            members,
            service: [7; 16],
        }
    }

    fn check_all(all: &[Identity]) -> Result<Vec<u32>, IdentityError> {
        let record = |identity| encode_record(identity, 1, "node");
        let records: Vec<u8> = all.iter().flat_map(record).collect();
        check_identities(&records, "process")
    }

    proptest! {
        #[test]
        fn members_keep_their_numbers_on_any_processes(order in Just((0..9u32).collect::<Vec<_>>()).prop_shuffle()) {
            let all: Vec<_> = order.iter().map(|m| member(*m, 9)).collect();
            let processes = check_all(&all).unwrap();
            for (at, process) in processes.iter().enumerate() {
                prop_assert_eq!(order[*process as usize] as usize, at);
            }
        }

        #[test]
        fn changed_records_are_refused(at in 0..RECORD_LEN, bit in 0..8u8) {
            let mut records = [encode_record(&member(0, 2), 1, "a"), encode_record(&member(1, 2), 1, "b")].concat();
            records[RECORD_LEN + at] ^= 1 << bit;
            prop_assert_eq!(check_identities(&records, "process"), Err(IdentityError::Garbled("process 1".into())));
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let good: Vec<_> = (0..3).map(|m| member(m, 3)).collect();
        let with = |change: fn(&mut Identity)| {
            let mut all = good.clone();
            change(&mut all[2]);
            check_all(&all).unwrap_err()
        };
        let (a, b) = ("process 0 (node)".to_owned(), "process 2 (node)".to_owned());
        let pair = || (a.clone(), b.clone());
        let (x, y) = pair();
        assert_eq!(with(|i| i.secret.push(1)), IdentityError::Secret(x, y));
        let (x, y) = pair();
        assert_eq!(with(|i| i.version = 4), IdentityError::Version(x, y));
        let (x, y) = pair();
        assert_eq!(with(|i| i.service[0] = 1), IdentityError::Service(x, y));
        let (x, y) = pair();
        assert_eq!(with(|i| i.members = 4), IdentityError::Members(x, y));
        let twice = IdentityError::Twice {
            member: 0,
            first: a.clone(),
            second: b.clone(),
            missing: 2,
        };
        assert_eq!(with(|i| i.member = 0), twice);
        let (place, member, last) = (b.clone(), 9, 2);
        let none = IdentityError::NoSuchMember {
            place,
            member,
            last,
        };
        assert_eq!(with(|i| i.member = 9), none);
        let count = IdentityError::Count {
            found: 2,
            members: 3,
        };
        assert_eq!(check_all(&good[..2]), Err(count));
    }
}
