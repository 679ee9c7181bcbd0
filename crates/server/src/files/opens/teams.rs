//! Opens that a team requests at once: each of its members holds the file open, under one token.
//!
//! # Invariants
//! - They are opens like any other (`open_table`): each member's ends with its own close, or all end together with the team's.
//! - A member that got no reply abandons the token at every member, because it may not know the file and so not its owner. Opens
//!   already registered for it are closed. A request that arrives later registers none for a member that has abandoned it. The same
//!   holds for opens that come with the creation of a file, if the creator got no reply.
use crate::{Fid, Member};
use forebay_proto::files::MemberSet;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};

/// Abandoned opens remembered: those of one call of the largest service.
const MAX_ABANDONED_OPENS: usize = 1 << 16;

/// The tokens of teams, here at the owner of their files.
#[derive(Default)]
pub(super) struct TeamTokens(Mutex<KnownTokens>);

#[derive(Default)]
struct KnownTokens {
    /// Of which file, and how many of it are counted.
    open: HashMap<u64, (Fid, usize)>,
    abandoned: HashSet<(Member, u64)>,
    /// The same, the oldest first.
    order: VecDeque<(Member, u64)>,
}

impl TeamTokens {
    /// The members to count: those that have not abandoned it.
    pub fn begin(&self, fid: Fid, token: u64, members: &MemberSet) -> Vec<Member> {
        let mut tokens = self.0.lock();
        let here = |member: &Member| !tokens.abandoned.contains(&(*member, token));
        let members: Vec<Member> = members.iter().filter(here).collect();
        if !members.is_empty() {
            tokens.open.insert(token, (fid, members.len()));
        }
        members
    }

    /// One open is counted no more. Nothing if the token is no team's.
    pub fn closed(&self, token: u64) {
        let mut tokens = self.0.lock();
        if let Some((_, left)) = tokens.open.get_mut(&token) {
            *left -= 1;
            if *left == 0 {
                tokens.open.remove(&token);
            }
        }
    }

    /// The file that `member` may hold open under the token. From now on none is counted for it.
    pub fn abandon(&self, member: Member, token: u64) -> Option<Fid> {
        let mut tokens = self.0.lock();
        // Also if it is counted: the request may come once more.
        if tokens.abandoned.insert((member, token)) {
            tokens.order.push_back((member, token));
        }
        if tokens.order.len() > MAX_ABANDONED_OPENS
            && let Some(oldest) = tokens.order.pop_front()
        {
            tokens.abandoned.remove(&oldest);
        }
        tokens.open.get(&token).map(|(fid, _)| *fid)
    }

    /// Whether `member` has said so of the token.
    pub fn is_abandoned(&self, member: Member, token: u64) -> bool {
        self.0.lock().abandoned.contains(&(member, token))
    }

    /// The open failed for all.
    pub fn forget(&self, token: u64) {
        self.0.lock().open.remove(&token);
    }
}
