//! The request of a team's call, of one client or combined of several, and the answer to it.
//!
//! Both travel as postcard, version byte first, in the values and answers of the servers' collectives.
//!
//! ```text
//! 0          1
//! +----------+-------------------------------------------------+
//! | version  | the fields of `TeamRequest`, or of `TeamAnswer` |
//! +----------+-------------------------------------------------+
//! ```
//!
//! Invariant: combining is associative and commutative but for `first`, which goes to the lowest member, so the tree's shape and the
//! order of arrival change nothing.
use super::mount_user::MountUser;
use bytes::Bytes;
use forebay_server::proto::WireError;
use forebay_server::proto::files::MemberSet;
use forebay_server::{Attr, Caller, Error, Fid, Member, Result};
use serde::{Deserialize, Serialize};

const VERSION: u8 = 2;

/// What all clients must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TeamAction {
    /// The attributes of what a path names.
    Stat { path: Vec<u8> },
    /// Open handles on a file.
    Open {
        path: Vec<u8>,
        create: bool,
        create_new: bool,
    },
    /// The end of handles that one call opened.
    Close { fid: Fid, token: Option<u64> },
}

/// One client's request, or several combined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TeamRequest {
    pub action: TeamAction,
    /// Some client asked something else, or what cannot be.
    pub differ: bool,
    /// Open: some client wants to read, to write, only to read, to empty the file.
    pub read: bool,
    pub write: bool,
    pub read_only: bool,
    pub truncate: bool,
    /// Open: who makes the file, and how; the lowest member's.
    pub first: (Member, Caller, u32),
    /// Stat and open: all of these must be permitted what is asked for. In order, each once.
    pub users: Vec<MountUser>,
    /// Close: members that hold on to the file, as they could not publish all they wrote.
    pub kept: Vec<Member>,
}

impl TeamRequest {
    /// One client's.
    pub fn new(action: TeamAction, member: Member, caller: Caller) -> TeamRequest {
        TeamRequest {
            action,
            differ: false,
            read: false,
            write: false,
            read_only: false,
            truncate: false,
            first: (member, caller, 0),
            users: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn with(mut self, other: TeamRequest) -> TeamRequest {
        self.differ |= other.differ || self.action != other.action;
        self.read |= other.read;
        self.write |= other.write;
        self.read_only |= other.read_only;
        self.truncate |= other.truncate;
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        self.users.extend(other.users);
        self.users.sort_unstable();
        self.users.dedup();
        self.kept.extend(other.kept);
        self.kept.sort_unstable();
        self.kept.dedup();
        self
    }
}

/// What everyone is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TeamAnswer {
    /// Attributes, as published.
    Attr(Attr),
    /// The file is open for every member.
    Opened {
        attr: Attr,
        /// By this call.
        made: bool,
        /// Why those who want to write get no handle.
        no_writers: Option<WireError>,
    },
    /// The opens of all members but these are closed.
    Closed { attr: Attr, kept: MemberSet },
    /// It failed; an open may be counted all the same.
    Failed(WireError),
    /// The clients did not ask the same.
    Differ,
}

/// # Errors
/// `Refused`, for what postcard cannot write.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    let encoded = postcard::to_extend(value, vec![VERSION]);
    let encoded =
        encoded.map_err(|e| Error::Refused(format!("a team's call cannot be written: {e}")))?;
    Ok(encoded.into())
}

/// # Errors
/// `Refused`, for what is none of this version.
pub(super) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    let value = bytes.split_first().and_then(|(version, rest)| {
        let (value, left) = postcard::take_from_bytes(rest).ok()?;
        (*version == VERSION && left.is_empty()).then_some(value)
    });
    let unreadable = "a team's call is unreadable; do all members run the same version?";
    value.ok_or_else(|| Error::Refused(unreadable.into()))
}

/// Makes one request of two. What is unreadable makes the whole empty, which is unreadable too, and so fails for all.
pub(super) fn combine(a: Bytes, b: Bytes) -> Bytes {
    let combined = || encode(&decode::<TeamRequest>(&a)?.with(decode(&b)?));
    combined().unwrap_or_else(|_| Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn requests() -> impl Strategy<Value = TeamRequest> {
        let action = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..3).prop_map(|path| TeamAction::Stat { path }),
            (
                proptest::collection::vec(any::<u8>(), 0..3),
                any::<[bool; 2]>()
            )
                .prop_map(|(path, [create, create_new])| TeamAction::Open {
                    path,
                    create,
                    create_new
                }),
            any::<(u64, Option<u64>)>().prop_map(|(fid, token)| TeamAction::Close {
                fid: Fid(fid),
                token
            }),
        ];
        let kept = proptest::collection::btree_set(0u16..9, 0..4);
        (
            action,
            any::<[bool; 5]>(),
            (0u32..4, 0u32..3, any::<u32>()),
            kept,
        )
            .prop_map(|(action, flags, (uid, gid, mode), kept)| TeamRequest {
                action,
                differ: flags[0],
                read: flags[1],
                write: flags[2],
                read_only: flags[3],
                truncate: flags[4],
                first: (0, Caller { uid, gid }, mode),
                users: MountUser::new(Caller { uid, gid }, vec![gid; usize::from(flags[0])])
                    .into_iter()
                    .collect(),
                kept: kept.into_iter().collect(),
            })
    }

    proptest! {
        #[test]
        fn order_changes_nothing_and_all_asked_the_same_or_differ(
            mut requests in proptest::collection::vec(requests(), 1..8),
            turn in 0usize..8,
        ) {
            for (member, request) in (0..).zip(&mut requests) {
                request.first.0 = member;
            }
            let sum = |requests: &[TeamRequest]| {
                let sum = requests.iter().map(|request| encode(request).unwrap()).reduce(combine).unwrap();
                decode::<TeamRequest>(&sum).unwrap()
            };
            let straight = sum(&requests);
            let same = requests.iter().all(|a| a.action == requests[0].action && !a.differ);
            prop_assert_eq!(straight.differ, !same);
            prop_assert_eq!(straight.first, requests[0].first);
            let users: BTreeSet<MountUser> = requests.iter().flat_map(|a| a.users.clone()).collect();
            prop_assert_eq!(&straight.users, &users.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(straight.write, requests.iter().any(|a| a.write));
            let turn = turn % requests.len();
            requests.rotate_left(turn);
            let turned = TeamRequest { action: straight.action.clone(), ..sum(&requests) };
            prop_assert_eq!(turned, straight);
        }

        #[test]
        fn other_bytes_are_refused_or_read_never_worse(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(request) = decode::<TeamRequest>(&bytes) {
                prop_assert_eq!(decode::<TeamRequest>(&encode(&request).unwrap()).unwrap(), request);
            }
            let _ = decode::<TeamAnswer>(&bytes);
        }
    }

    #[test]
    fn what_is_unreadable_stays_so() {
        let caller = Caller { uid: 1, gid: 1 };
        let request = TeamRequest::new(TeamAction::Stat { path: vec![] }, 3, caller);
        let encoded = encode(&request).unwrap();
        let mut newer = encoded.to_vec();
        newer[0] = VERSION + 1;
        let sum = combine(encoded.clone(), newer.into());
        assert!(decode::<TeamRequest>(&combine(sum, encoded)).is_err());
    }
}
