//! The table and the manager against a model that knows every byte, and cycles against all paths there are.
use super::manager::{LockManager, LockResult};
use super::table::LockTable;
use crate::{Fid, Member};
use forebay_proto::locks::{LockMode, LockOwner, LockRange, LockSpace, LockToken};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BYTES: u64 = 24;

fn owner(n: u8) -> LockOwner {
    LockOwner {
        member: Member::from(n % 3),
        id: u64::from(n / 3),
    }
}

/// Each byte of a file: who holds it, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bytes(Vec<BTreeMap<LockOwner, bool>>);

impl Bytes {
    fn new() -> Bytes {
        Bytes(vec![BTreeMap::new(); BYTES as usize])
    }
    fn set(&mut self, owner: LockOwner, start: u64, end: u64, mode: Option<LockMode>) {
        for byte in &mut self.0[start as usize..end as usize] {
            match mode {
                Some(mode) => byte.insert(owner, mode == LockMode::Exclusive),
                None => byte.remove(&owner),
            };
        }
    }
    fn in_the_way(
        &self,
        owner: LockOwner,
        start: u64,
        end: u64,
        mode: LockMode,
    ) -> BTreeSet<LockOwner> {
        let bytes = self.0[start as usize..end as usize].iter();
        let others = bytes.flat_map(|byte| byte.iter().filter(|(o, _)| **o != owner));
        others
            .filter(|(_, exclusive)| mode == LockMode::Exclusive || **exclusive)
            .map(|(o, _)| *o)
            .collect()
    }
    fn drop_member(&mut self, member: Member) {
        self.0
            .iter_mut()
            .for_each(|byte| byte.retain(|o, _| o.member != member));
    }
}

fn mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..BYTES, 1..=BYTES).prop_map(|(start, len)| (start, (start + len).min(BYTES)))
}

proptest! {
    #[test]
    fn the_table_knows_each_byte_in_few_pieces(
        steps in prop::collection::vec((0u8..4, range(), prop::option::of(mode())), 1..60)
    ) {
        let (mut table, mut bytes) = (LockTable::default(), Bytes::new());
        for (who, (start, end), mode) in steps {
            let who = owner(who);
            match mode {
                Some(mode) => table.set(who, start..end, mode, 7),
                None => { table.clear(who, start..end); }
            }
            bytes.set(who, start, end, mode);
            let mut shown = Bytes::new();
            let mut last: Option<(LockOwner, u64, LockMode)> = None;
            for held in table.all() {
                prop_assert!(held.range.start < held.range.end);
                // Pieces of one owner neither overlap nor touch in the same mode.
                if let Some((o, end, mode)) = last && o == held.owner {
                    prop_assert!(end < held.range.start || (end == held.range.start && mode != held.mode));
                }
                last = Some((held.owner, held.range.end, held.mode));
                shown.set(held.owner, held.range.start, held.range.end, Some(held.mode));
            }
            prop_assert_eq!(&shown, &bytes);
            for asking in 0..4 {
                for mode in [LockMode::Shared, LockMode::Exclusive] {
                    let found: BTreeSet<LockOwner> = table
                        .conflicts(owner(asking), &(start..end), mode)
                        .map(|held| held.owner)
                        .collect();
                    prop_assert_eq!(found, bytes.in_the_way(owner(asking), start, end, mode));
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Lock(u8, LockSpace, (u64, u64), LockMode, bool),
    Unlock(u8, LockSpace, (u64, u64)),
    Cancel(usize),
    Again(usize),
    Bury(Member),
}

fn step() -> impl Strategy<Value = Step> {
    let space = || prop_oneof![3 => Just(LockSpace::Record), 1 => Just(LockSpace::Flock)];
    prop_oneof![
        8 => (0u8..6, space(), range(), mode(), any::<bool>())
            .prop_map(|(o, s, r, m, w)| Step::Lock(o, s, r, m, w)),
        5 => (0u8..6, space(), range()).prop_map(|(o, s, r)| Step::Unlock(o, s, r)),
        2 => any::<prop::sample::Index>().prop_map(|i| Step::Cancel(i.index(1000))),
        2 => any::<prop::sample::Index>().prop_map(|i| Step::Again(i.index(1000))),
        1 => (0..3u16).prop_map(Step::Bury),
    ]
}

/// A waiting request of the model.
#[derive(Debug, Clone)]
struct Waiter {
    owner: LockOwner,
    token: LockToken,
    range: LockRange,
    mode: LockMode,
}

/// The same rules, byte by byte.
#[derive(Debug)]
struct Model {
    records: Bytes,
    flocks: Bytes,
    queue: Vec<Waiter>,
}

impl Model {
    fn bytes(&mut self, space: LockSpace) -> &mut Bytes {
        match space {
            LockSpace::Record => &mut self.records,
            LockSpace::Flock => &mut self.flocks,
        }
    }
    fn blockers(&mut self, w: &Waiter) -> BTreeSet<LockOwner> {
        self.bytes(w.range.space)
            .in_the_way(w.owner, w.range.start, w.range.end, w.mode)
    }
    /// Grants, one after the other, the first that can be.
    fn sweep(&mut self) -> BTreeSet<(Member, LockToken)> {
        let mut grants = BTreeSet::new();
        'again: loop {
            for i in 0..self.queue.len() {
                let w = self.queue[i].clone();
                if self.blockers(&w).is_empty() {
                    self.bytes(w.range.space).set(
                        w.owner,
                        w.range.start,
                        w.range.end,
                        Some(w.mode),
                    );
                    grants.insert((w.owner.member, w.token));
                    self.queue.remove(i);
                    continue 'again;
                }
            }
            return grants;
        }
    }
}

fn whole(space: LockSpace, (start, end): (u64, u64)) -> (u64, u64) {
    match space {
        LockSpace::Record => (start, end),
        LockSpace::Flock => (0, BYTES),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_manager_grants_what_the_bytes_allow(steps in prop::collection::vec(step(), 1..80)) {
        let mut manager = LockManager::default();
        let mut model = Model { records: Bytes::new(), flocks: Bytes::new(), queue: Vec::new() };
        let mut sessions = [1u64; 3];
        for (slot, step) in steps.into_iter().enumerate() {
            let token = LockToken { slot: slot as u32, number: 1 };
            match step {
                Step::Lock(o, space, r, mode, wait) => {
                    let (owner, (start, end)) = (owner(o), whole(space, r));
                    let range = LockRange { fid: Fid(9), space, owner: owner.id, start, end };
                    let session = sessions[usize::from(owner.member)];
                    let (answer, grants) =
                        manager.lock((owner.member, session, token), (range.clone(), mode, 1), wait);
                    let w = Waiter { owner, token, range, mode };
                    let mut let_in = BTreeSet::new();
                    if space == LockSpace::Flock
                        && model.flocks.0[0].get(&owner).is_some_and(|x| *x != (mode == LockMode::Exclusive))
                    {
                        model.flocks.set(owner, 0, BYTES, None);
                        let_in = model.sweep();
                    }
                    let blockers = model.blockers(&w);
                    match &answer {
                        LockResult::Granted => {
                            prop_assert!(blockers.is_empty());
                            model.bytes(space).set(owner, start, end, Some(mode));
                        }
                        LockResult::Denied(held) => prop_assert!(!wait && blockers.contains(&held.owner)),
                        LockResult::Waiting(by) => {
                            prop_assert!(wait && !by.is_empty());
                            prop_assert_eq!(by.iter().copied().collect::<BTreeSet<_>>(), blockers);
                            model.queue.push(w);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                    // What the sweep can grant: those let in by what the owner gave up.
                    let granted: BTreeSet<_> = grants.into_iter().collect();
                    let_in.extend(model.sweep());
                    prop_assert_eq!(granted, let_in);
                }
                Step::Unlock(o, space, r) => {
                    let (owner, (start, end)) = (owner(o), whole(space, r));
                    let range = LockRange { fid: Fid(9), space, owner: owner.id, start, end };
                    let session = sessions[usize::from(owner.member)];
                    let (answer, grants) = manager.unlock((owner.member, session, token), &range);
                    prop_assert_eq!(answer, LockResult::Done);
                    model.bytes(space).set(owner, start, end, None);
                    prop_assert_eq!(grants.into_iter().collect::<BTreeSet<_>>(), model.sweep());
                }
                Step::Cancel(i) if !model.queue.is_empty() => {
                    let w = model.queue.remove(i % model.queue.len());
                    let session = sessions[usize::from(w.owner.member)];
                    let ask = (w.owner.member, session, w.token);
                    prop_assert_eq!(manager.cancel(ask, Fid(9)).0, LockResult::Done);
                    // What comes late under its name does nothing.
                    let (answer, _) = manager.lock(ask, (w.range.clone(), w.mode, 1), true);
                    prop_assert_eq!(answer, LockResult::Done);
                }
                Step::Again(i) if !model.queue.is_empty() => {
                    let w = model.queue[i % model.queue.len()].clone();
                    let session = sessions[usize::from(w.owner.member)];
                    let (answer, grants) =
                        manager.lock((w.owner.member, session, w.token), (w.range.clone(), w.mode, 1), true);
                    prop_assert!(matches!(answer, LockResult::Waiting(_)));
                    prop_assert!(grants.is_empty());
                }
                Step::Cancel(_) | Step::Again(_) => {}
                Step::Bury(member) => {
                    let (_, grants) = manager.end_dead(member);
                    model.records.drop_member(member);
                    model.flocks.drop_member(member);
                    model.queue.retain(|w| w.owner.member != member);
                    prop_assert_eq!(grants.into_iter().collect::<BTreeSet<_>>(), model.sweep());
                    sessions[usize::from(member)] += 1;
                }
            }
            for w in model.queue.clone() {
                let now: BTreeSet<_> =
                    manager.blockers(Fid(9), w.owner.member, w.token).into_iter().collect();
                prop_assert_eq!(&now, &model.blockers(&w));
                prop_assert!(!now.is_empty());
            }
            prop_assert_eq!(manager.counts().1, model.queue.len());
        }
        for member in 0..3 {
            manager.end_dead(member);
        }
        prop_assert_eq!(manager.counts(), (0, 0));
    }
}

fn lock_range(owner: u64) -> LockRange {
    LockRange {
        fid: Fid(9),
        space: LockSpace::Record,
        owner,
        start: 0,
        end: 10,
    }
}

#[test]
fn a_token_is_carried_out_once_and_never_late() {
    let mut manager = LockManager::default();
    let want = |owner| (lock_range(owner), LockMode::Exclusive, 1);
    let first = LockToken { slot: 1, number: 1 };
    assert_eq!(
        manager.lock((0, 1, first), want(1), false).0,
        LockResult::Granted
    );
    // Its answer was lost: the same again is the same.
    assert_eq!(
        manager.lock((0, 1, first), want(1), false).0,
        LockResult::Granted
    );
    let second = LockToken { slot: 1, number: 2 };
    assert_eq!(
        manager.unlock((0, 1, second), &lock_range(1)).0,
        LockResult::Done
    );
    // The first arrives once more, now that nobody wants it.
    assert_eq!(
        manager.lock((0, 1, first), want(1), false).0,
        LockResult::Late
    );
    assert_eq!(manager.counts(), (0, 0));
    // A cancel that overtakes its request.
    let third = LockToken { slot: 1, number: 3 };
    assert_eq!(manager.cancel((0, 1, third), Fid(9)).0, LockResult::Done);
    assert_eq!(
        manager.lock((0, 1, third), want(1), true).0,
        LockResult::Done
    );
    assert_eq!(manager.counts(), (0, 0));
    // A wait that its node gave up without an answer ends when the slot is used again.
    let other = LockToken { slot: 9, number: 1 };
    assert_eq!(
        manager.lock((2, 1, other), want(5), false).0,
        LockResult::Granted
    );
    let fourth = LockToken { slot: 1, number: 4 };
    assert!(matches!(
        manager.lock((0, 1, fourth), want(1), true).0,
        LockResult::Waiting(_)
    ));
    let fifth = LockToken { slot: 1, number: 5 };
    assert!(matches!(
        manager.lock((0, 1, fifth), want(2), false).0,
        LockResult::Denied(_)
    ));
    assert_eq!(manager.counts(), (1, 0));
}

#[test]
fn a_session_takes_its_locks_along() {
    let mut manager = LockManager::default();
    let want = |owner| (lock_range(owner), LockMode::Exclusive, 1);
    let token = |slot| LockToken { slot, number: 1 };
    assert_eq!(
        manager.lock((0, 5, token(1)), want(1), false).0,
        LockResult::Granted
    );
    assert!(matches!(
        manager.lock((1, 3, token(1)), want(1), true).0,
        LockResult::Waiting(_)
    ));
    assert_eq!(manager.begin(0, 6), (true, vec![(1, token(1))]));
    // The earlier one has no say any more.
    assert_eq!(
        manager.lock((0, 5, token(2)), want(1), false).0,
        LockResult::Ended
    );
    // Buried: what comes from it is refused until it begins anew.
    assert!(manager.end_dead(1).0);
    assert_eq!(
        manager.lock((1, 3, token(2)), want(1), false).0,
        LockResult::Ended
    );
    assert_eq!(
        manager.lock((1, 4, token(2)), want(1), false).0,
        LockResult::Granted
    );
}

#[test]
fn waiting_exclusive_requests_are_granted_in_their_order() {
    let mut manager = LockManager::default();
    let want = |owner| (lock_range(owner), LockMode::Exclusive, 1);
    let token = |slot| LockToken { slot, number: 1 };
    manager.lock((0, 1, token(1)), want(1), false);
    for n in 2..6 {
        manager.lock((0, 1, token(n)), want(u64::from(n)), true);
    }
    for n in 1..5 {
        let (_, grants) = manager.unlock((0, 1, token(100 + n)), &lock_range(u64::from(n)));
        assert_eq!(grants, vec![(0, token(n + 1))]);
    }
}
