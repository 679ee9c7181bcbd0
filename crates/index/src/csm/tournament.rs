//! Which of several numbers is the least, as one of them after the other changes: a tournament of pairs, pairs of winners, and so on.
//! A change asks log2(n) times which of two is less.
//!
//! Invariant: of equal numbers the first wins, so places of no number, which stand behind all others, never do while there is one.

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Tournament {
    /// The numbers; behind them the greatest there is, up to a power of two.
    numbers: Vec<u128>,
    /// The place of the winner of each game: that of game `g` is between the winners of `2 g` and `2 g + 1`, the last is game 1. From
    /// `numbers.len()` on the places themselves.
    winners: Vec<u32>,
}

impl Tournament {
    /// Of these numbers.
    pub fn of(numbers: impl IntoIterator<Item = u128>) -> Tournament {
        let mut numbers: Vec<u128> = numbers.into_iter().collect();
        let all = numbers.len().next_power_of_two();
        numbers.resize(all, u128::MAX);
        let mut winners = vec![0; all];
        winners.extend(0..all as u32);
        let mut tournament = Tournament { numbers, winners };
        (1..all).rev().for_each(|game| tournament.play(game));
        tournament
    }

    #[inline]
    fn play(&mut self, game: usize) {
        let (first, second) = (self.winners[2 * game], self.winners[2 * game + 1]);
        let less = self.numbers[second as usize] < self.numbers[first as usize];
        self.winners[game] = if less { second } else { first };
    }

    /// The place of the least number, the first of such.
    #[inline]
    pub fn least(&self) -> usize {
        self.winners[1] as usize
    }

    /// The number at this place.
    #[inline]
    pub fn get(&self, place: usize) -> u128 {
        self.numbers[place]
    }

    /// The least of the others than [`least`](Tournament::least); the greatest there is if there are none.
    pub fn second(&self) -> u128 {
        let mut game = self.numbers.len() + self.least();
        let mut second = u128::MAX;
        while game > 1 {
            // Whoever the winner has met.
            second = second.min(self.numbers[self.winners[game ^ 1] as usize]);
            game /= 2;
        }
        second
    }

    /// Changes a number.
    #[inline]
    pub fn set(&mut self, place: usize, number: u128) {
        self.numbers[place] = number;
        let mut game = (self.numbers.len() + place) / 2;
        while game > 0 {
            self.play(game);
            game /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_of_the_least_wins_whatever_changes(
            numbers in proptest::collection::vec(0u128..9, 1..20),
            changes in proptest::collection::vec((0usize..20, prop_oneof![0u128..9, Just(u128::MAX)]), 0..60),
        ) {
            let mut numbers = numbers;
            let mut tournament = Tournament::of(numbers.iter().copied());
            for (place, number) in changes {
                let least = (0..numbers.len()).min_by_key(|i| numbers[*i]).unwrap();
                prop_assert_eq!(tournament.least(), least);
                prop_assert_eq!(tournament.get(least), numbers[least]);
                let others = numbers.iter().enumerate().filter(|(i, _)| *i != least);
                prop_assert_eq!(tournament.second(), others.map(|(_, n)| *n).min().unwrap_or(u128::MAX));
                let place = place % numbers.len();
                numbers[place] = number;
                tournament.set(place, number);
            }
        }
    }
}
