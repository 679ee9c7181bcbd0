//! Leases: which nodes' kernels may keep attributes of this member's inodes, and names of directories in its directories.
//!
//! These are the leases of Gray and Cheriton. A kernel keeps a leased object for [`LEASE_TERM`] at most. A change of the object first
//! revokes the leases: it waits until every kernel that may hold one has dropped the object, or until the lease has expired. So a kernel
//! that does not answer delays a change, but never prevents it.
//!
//! # Invariants
//! 1. While a [`LeaseChange`] exists, its objects are leased to nobody, except perhaps to the node that asked for the change. That
//!    node has its own kernel drop them before the request returns (`delegate/kernel_leases.rs`).
//! 2. A lease is recorded before the value is read. So if a change found no lease to revoke, the value that is read includes the change.
//! 3. A lease is remembered for [`REMEMBERED`] at least: the term, and time for a slow reply to the kernel.
//! 4. After a revocation an object is *contended* ([`LeaseContention`]). It is leased again once it has not been changed for a while;
//!    that time doubles with each revocation, up to a limit. Before that it is leased only to a node that alone changes it. So
//!    objects that several nodes change and read in turn are not leased and revoked again and again, and objects that they only created
//!    together are leased soon.
//! 5. No inode lock is held while a change begins: it may wait.
//!
//! Holders are kept by their number modulo 64: in a larger service a kernel may have to drop what it does not have.
use crate::{Fid, Member};
use forebay_fabric::Error as Fabric;
use forebay_proto::meta::LEASE_TERM;
use forebay_proto::{Error, KernelInvalidation, PeerRpc};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a lease is remembered, at least (at most twice as long). A node accepts replies up to two terms old, and after four more
/// terms it has forgotten what it gave its kernel.
const REMEMBERED: Duration = LEASE_TERM.saturating_mul(6);
/// A kernel that has not answered for this long has no lease any more: it has expired since the last grant.
const REVOKE_LIMIT: Duration = LEASE_TERM.saturating_mul(5);
/// Shards of the table of leases, each with a lock, so that requests seldom wait for each other.
const SHARDS: usize = 16;
/// How long a contended object must stay unchanged before it is leased again, at first.
const MIN_QUIET: Duration = Duration::from_millis(5);
/// The limit up to which [`MIN_QUIET`] is doubled.
const MAX_QUIET: Duration = REMEMBERED;

/// What can be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LeasedObject<'a> {
    /// The attributes of an inode.
    Attributes(Fid),
    /// The inode that a name in a directory refers to, if it is a directory.
    Entry(Fid, &'a [u8]),
}

impl LeasedObject<'_> {
    /// A hash that stands for the object. Objects with the same number are treated as one, which only revokes more than necessary.
    fn number(self) -> u64 {
        match self {
            LeasedObject::Attributes(fid) => fid.0,
            LeasedObject::Entry(..) => {
                let mut hasher = DefaultHasher::new();
                self.hash(&mut hasher);
                hasher.finish()
            }
        }
    }

    fn invalidation(self) -> KernelInvalidation {
        match self {
            LeasedObject::Attributes(fid) => KernelInvalidation::Attributes(fid),
            LeasedObject::Entry(parent, name) => KernelInvalidation::Entry {
                parent,
                name: name.to_vec(),
            },
        }
    }
}

/// The state of a contended object: a kernel had to drop it because another node changed it.
#[derive(Debug, Clone, Copy)]
struct LeaseContention {
    /// The one member that has made all changes since, if there is one: it gets a lease at once.
    only: Option<Member>,
    /// Time of the last change.
    changed: Instant,
    /// Other members get a lease once the object has been unchanged for this long.
    quiet: Duration,
}

impl LeaseContention {
    fn is_quiet(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.changed) >= self.quiet
    }

    /// The state after a change by a member (`None`: by the owner itself). `drops`: kernels have to drop the object.
    fn after_change(self, by: Option<Member>, now: Instant, drops: bool) -> LeaseContention {
        let (only, quiet) = match self.is_quiet(now) {
            true if drops => (by, MAX_QUIET.min(2 * self.quiet)),
            true => (by, self.quiet),
            false => (self.only.filter(|only| by == Some(*only)), self.quiet),
        };
        LeaseContention {
            only,
            changed: now,
            quiet,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseState {
    /// Bit `n`: a member whose number is `n` modulo 64 may hold it.
    holders: u64,
    contention: Option<LeaseContention>,
}

/// A shard. An object in neither map is not leased.
#[derive(Default)]
struct LeaseShard {
    recent: HashMap<u64, LeaseState>,
    /// The map that `recent` replaced.
    older: HashMap<u64, LeaseState>,
    /// When `recent` began.
    began: Option<Instant>,
    /// Number of changes under way of each object.
    changing: HashMap<u64, u32>,
}

impl LeaseShard {
    fn forget_old(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age < REMEMBERED {
            return;
        }
        self.older = std::mem::take(&mut self.recent);
        if age >= 2 * REMEMBERED {
            self.older.clear();
        }
        self.began = Some(now);
    }

    fn state(&self, number: u64) -> LeaseState {
        let [recent, older] = [&self.recent, &self.older].map(|map| map.get(&number).copied());
        let (recent, older) = (recent.unwrap_or_default(), older.unwrap_or_default());
        LeaseState {
            holders: recent.holders | older.holders,
            contention: recent.contention.or(older.contention),
        }
    }

    fn remove(&mut self, number: u64, holders: u64) {
        for map in [&mut self.recent, &mut self.older] {
            if let Some(state) = map.get_mut(&number) {
                state.holders &= !holders;
            }
        }
    }
}

/// The leases of one member's inodes.
#[derive(Default)]
pub(crate) struct LeaseTable {
    /// Set if there are other members. Otherwise nothing is leased.
    peers: OnceLock<Arc<dyn PeerRpc>>,
    shards: [Mutex<LeaseShard>; SHARDS],
}

impl LeaseTable {
    /// Begins to grant leases, if there are other members.
    pub fn connect(&self, peers: Arc<dyn PeerRpc>) {
        if peers.members() > 1 {
            // A second call would be a mistake of the service; the first one stays.
            let _ = self.peers.set(peers);
        }
    }

    fn shard(&self, number: u64) -> &Mutex<LeaseShard> {
        &self.shards[(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS]
    }

    /// Leases an object to a member, unless it is being changed or contended. The caller reads the object after that.
    pub fn grant(&self, object: LeasedObject<'_>, to: Member) -> bool {
        self.grant_at(Instant::now(), object, to)
    }

    fn grant_at(&self, now: Instant, object: LeasedObject<'_>, to: Member) -> bool {
        if self.peers.get().is_none() {
            return false;
        }
        let number = object.number();
        let mut shard = self.shard(number).lock();
        shard.forget_old(now);
        let contended = |c: LeaseContention| c.only != Some(to) && !c.is_quiet(now);
        if shard.changing.contains_key(&number)
            || shard.state(number).contention.is_some_and(contended)
        {
            return false;
        }
        shard.recent.entry(number).or_default().holders |= bit(to);
        true
    }

    /// Notes that the kernel of a member's node keeps an object without having asked: when it renames a directory, it keeps the new
    /// name as long as the old one.
    pub fn note_holder(&self, object: LeasedObject<'_>, member: Member) {
        if self.peers.get().is_some() {
            let number = object.number();
            let mut shard = self.shard(number).lock();
            shard.forget_old(Instant::now());
            shard.recent.entry(number).or_default().holders |= bit(member);
        }
    }

    /// Revokes the leases on these objects and returns once no kernel holds any. None is granted until the change is dropped. `by`: the
    /// member that asked for the change; it takes care of its own kernel. The caller holds no inode lock.
    pub fn begin_change<'a>(
        &self,
        by: Option<Member>,
        objects: impl IntoIterator<Item = LeasedObject<'a>>,
    ) -> LeaseChange<'_> {
        self.begin_change_at(Instant::now(), by, objects)
    }

    fn begin_change_at<'a>(
        &self,
        now: Instant,
        by: Option<Member>,
        objects: impl IntoIterator<Item = LeasedObject<'a>>,
    ) -> LeaseChange<'_> {
        let mut change = LeaseChange {
            leases: self,
            numbers: Vec::new(),
        };
        let Some(peers) = self.peers.get() else {
            return change;
        };
        let own = by.map_or(0, bit);
        for object in objects {
            let number = object.number();
            change.numbers.push(number);
            let holders = {
                let mut shard = self.shard(number).lock();
                shard.forget_old(now);
                *shard.changing.entry(number).or_default() += 1;
                let state = shard.state(number);
                let drops = state.holders & !own != 0 || state.holders != 0 && peers.members() > 64;
                let first = LeaseContention {
                    only: by,
                    changed: now,
                    quiet: MIN_QUIET,
                };
                let contention = match state.contention {
                    Some(before) => Some(before.after_change(by, now, drops)),
                    None => drops.then_some(first),
                };
                if contention.is_some() {
                    shard.recent.entry(number).or_default().contention = contention;
                }
                match drops {
                    true => state.holders,
                    false => continue,
                }
            };
            for member in (0..peers.members()).filter(|m| holders & bit(*m) != 0) {
                if by != Some(member) {
                    revoke(&**peers, member, object.invalidation());
                }
            }
            self.shard(number).lock().remove(number, holders & !own);
        }
        change
    }
}

/// Has the kernel of a member's node drop what is leased to it.
fn revoke(peers: &dyn PeerRpc, member: Member, what: KernelInvalidation) {
    let began = Instant::now();
    match peers.invalidate_kernel_within(member, what, REVOKE_LIMIT) {
        Ok(()) => {}
        // Its mount ends with it.
        Err(Error::Fabric(Fabric::Dead(_))) => {}
        Err(error) => {
            tracing::debug!(member, %error, "a node does not say that it dropped what was leased to it; the lease runs out");
            std::thread::sleep(REVOKE_LIMIT.saturating_sub(began.elapsed()));
        }
    }
}

fn bit(member: Member) -> u64 {
    1 << (member % 64)
}

/// A change under way. Its objects are leased to nobody until it is dropped.
#[must_use]
pub(crate) struct LeaseChange<'a> {
    leases: &'a LeaseTable,
    numbers: Vec<u64>,
}

impl Drop for LeaseChange<'_> {
    fn drop(&mut self) {
        for number in &self.numbers {
            let mut shard = self.leases.shard(*number).lock();
            if let Some(changes) = shard.changing.get_mut(number) {
                *changes -= 1;
                if *changes == 0 {
                    shard.changing.remove(number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
