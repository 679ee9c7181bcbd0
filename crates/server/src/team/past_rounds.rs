//! The next round of each team that has no clients any more: one number a team, kept after the team itself is forgotten.
//!
//! The token of an open is made of its team and round. So a team that is formed again continues after its last round. If it began
//! at 0, old tokens would be used again, and an open under a token that a member has abandoned is not counted. A team with other
//! members is another team and begins at 0, because not all of its members may know the last round.
//!
//! # Invariants
//! - At least the last [`MIN_REMEMBERED`] teams are remembered, at most twice as many.
use std::collections::HashMap;

/// Teams remembered at least. Twice as many take about 14 MB.
const MIN_REMEMBERED: usize = 200_000;

/// The next round of each team, by its [identity](super::TeamSpec::identity).
#[derive(Default)]
pub(super) struct PastRounds {
    young: HashMap<u64, u64>,
    /// Those before; forgotten when there are [`MIN_REMEMBERED`] young ones.
    old: HashMap<u64, u64>,
}

impl PastRounds {
    /// Remembers a team. One that never made a call is like one that never was.
    pub fn keep(&mut self, team: u64, next: u64) {
        if next == 0 {
            return;
        }
        if self.young.len() >= MIN_REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(team, next);
    }

    /// The round that this team begins with.
    pub fn next_round(&self, team: u64) -> u64 {
        let known = self.young.get(&team).or_else(|| self.old.get(&team));
        known.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_teams_are_remembered_and_not_all() {
        let mut rounds = PastRounds::default();
        assert_eq!(rounds.next_round(1), 0);
        rounds.keep(1, 5);
        rounds.keep(1, 7);
        let others = 2..;
        for number in others.take(MIN_REMEMBERED) {
            rounds.keep(number, 0);
            rounds.keep(number, 3);
            assert!(rounds.young.len() + rounds.old.len() <= 2 * MIN_REMEMBERED);
        }
        assert_eq!(
            (
                rounds.next_round(1),
                rounds.next_round(2),
                rounds.next_round(0)
            ),
            (7, 3, 0)
        );
        // Again, so it is among the last.
        rounds.keep(1, 8);
        for number in (0..MIN_REMEMBERED as u64).map(|n| n + 2 + MIN_REMEMBERED as u64) {
            rounds.keep(number, 4);
        }
        assert_eq!(rounds.next_round(1), 8);
        assert!(rounds.young.len() + rounds.old.len() <= 2 * MIN_REMEMBERED);
        assert_eq!(rounds.next_round(2), 0);
    }
}
