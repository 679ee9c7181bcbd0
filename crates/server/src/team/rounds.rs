//! How far the teams came that have no clients any more: one number for each, kept when all else about them is forgotten.
//!
//! A call's number within its team is part of the token of what it opens. Were a team formed again from the start, so would be
//! these tokens, among them some that members have abandoned: these would not be counted. Other members make another team, and its
//! calls are counted from the start, as not all of them may know how far the first one came.
//!
//! # Invariants
//! - The last [`MOST`] teams at least are remembered, and twice as many at most.
use std::collections::HashMap;

/// About 14 MB for twice as many.
const MOST: usize = 200_000;

/// The next round of each team, by its [identity](super::TeamPlan::identity).
#[derive(Default)]
pub(super) struct Rounds {
    young: HashMap<u64, u64>,
    /// Those before; forgotten when there are [`MOST`] young ones.
    old: HashMap<u64, u64>,
}

impl Rounds {
    /// Remembers a team. One that never made a call is like one that never was.
    pub fn keep(&mut self, team: u64, next: u64) {
        if next == 0 {
            return;
        }
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(team, next);
    }

    /// Where this team begins.
    pub fn of(&self, team: u64) -> u64 {
        let known = self.young.get(&team).or_else(|| self.old.get(&team));
        known.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_teams_are_remembered_and_not_all() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.of(1), 0);
        rounds.keep(1, 5);
        rounds.keep(1, 7);
        let others = 2..;
        for number in others.take(MOST) {
            rounds.keep(number, 0);
            rounds.keep(number, 3);
            assert!(rounds.young.len() + rounds.old.len() <= 2 * MOST);
        }
        assert_eq!((rounds.of(1), rounds.of(2), rounds.of(0)), (7, 3, 0));
        // Again, so it is among the last.
        rounds.keep(1, 8);
        for number in (0..MOST as u64).map(|n| n + 2 + MOST as u64) {
            rounds.keep(number, 4);
        }
        assert_eq!(rounds.of(1), 8);
        assert!(rounds.young.len() + rounds.old.len() <= 2 * MOST);
        assert_eq!(rounds.of(2), 0);
    }
}
