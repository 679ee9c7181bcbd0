//! A loser tree: keeps the least of several numbers while the least is replaced again and again, as in a merge of many runs.
//!
//! The numbers play a knock-out tournament: the smaller one wins a game, and each game keeps its loser. A new number plays only the
//! games on the path of the one that it replaces: log2(n) games.
//!
//! Invariants
//! - Each number is the winner of the tree or the loser of one game. A game's loser is the winner of one half below it; the winner of
//!   the other half went on to the next game.
//! - Of equal numbers the first wins. So empty places, which come after all others, never win while a number is left.

/// A number and its place.
type Player = (u128, u32);

/// See the head of this file.
#[derive(Debug)]
pub struct LoserTree {
    winner: Player,
    /// Who lost game `g`, in which the winners of `2 g` and `2 g + 1` met. The first is no game; as many as there are places.
    losers: Vec<Player>,
    /// Places that have a number. Those after them, up to a power of two, have the greatest there is.
    players: usize,
}

impl LoserTree {
    /// Of these numbers.
    pub fn of(numbers: impl IntoIterator<Item = u128>) -> LoserTree {
        let mut round: Vec<Player> = numbers.into_iter().zip(0..).collect();
        let players = round.len();
        let all = players.next_power_of_two();
        round.extend((players as u32..all as u32).map(|place| (u128::MAX, place)));
        let mut losers = vec![(u128::MAX, 0); all];
        while round.len() > 1 {
            let first = round.len() / 2;
            for game in 0..first {
                let (a, b) = (round[2 * game], round[2 * game + 1]);
                losers[first + game] = a.max(b);
                round[game] = a.min(b);
            }
            round.truncate(first);
        }
        LoserTree {
            winner: round[0],
            losers,
            players,
        }
    }

    /// The place of the least number, the first of such.
    #[inline]
    pub fn least(&self) -> usize {
        self.winner.1 as usize
    }

    /// The least number.
    #[inline]
    pub fn number(&self) -> u128 {
        self.winner.0
    }

    /// The first game of the winner.
    #[inline]
    fn game(&self) -> usize {
        (self.losers.len() + self.least()) / 2
    }

    /// The least of the other numbers; the greatest there is if there are none.
    #[inline]
    pub fn second(&self) -> u128 {
        let mut second = u128::MAX;
        let mut game = self.game();
        while game > 0 {
            second = second.min(self.losers[game].0);
            game /= 2;
        }
        second
    }

    /// Another number in the place of the least.
    #[inline]
    pub fn replace(&mut self, number: u128) {
        let mut game = self.game();
        let mut here = (number, self.winner.1);
        while game > 0 {
            let there = self.losers[game];
            let loses = there < here;
            self.losers[game] = if loses { here } else { there };
            here = if loses { there } else { here };
            game /= 2;
        }
        self.winner = here;
    }

    /// Without the least; places after it are one less.
    pub fn remove(&mut self) {
        let mut others: Vec<Player> = self.losers[1..].to_vec();
        others.retain(|(_, place)| (*place as usize) < self.players);
        others.sort_unstable_by_key(|(_, place)| *place);
        *self = LoserTree::of(others.into_iter().map(|(number, _)| number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_the_least_wins_whatever_replaces_it(
            numbers in proptest::collection::vec(0u128..9, 1..20),
            changes in proptest::collection::vec(proptest::option::weighted(0.9, prop_oneof![0u128..20, Just(u128::MAX)]), 0..80),
        ) {
            let mut numbers = numbers;
            let mut tree = LoserTree::of(numbers.iter().copied());
            for change in changes {
                let Some(least) = (0..numbers.len()).min_by_key(|i| numbers[*i]) else { break };
                prop_assert_eq!(tree.least(), least);
                prop_assert_eq!(tree.number(), numbers[least]);
                let others = numbers.iter().enumerate().filter(|(i, _)| *i != least);
                prop_assert_eq!(tree.second(), others.map(|(_, n)| *n).min().unwrap_or(u128::MAX));
                match change {
                    Some(number) => {
                        numbers[least] = number;
                        tree.replace(number);
                    }
                    None => {
                        numbers.remove(least);
                        tree.remove();
                    }
                }
            }
        }
    }
}
