//! Every value comes back, whatever form a column takes.
use super::*;
use proptest::prelude::*;

/// Turns of some values, each shifted by a step of its own, and with some noise or none.
fn values() -> impl Strategy<Value = (Vec<u64>, Vec<u64>)> {
    let turn = proptest::collection::vec((0u64..1 << 40, 0u64..1 << 20), 1..9);
    (turn, 1u64..9, 0usize..9, any::<bool>(), 0u64..3).prop_map(
        |(turn, turns, cut, same, noise)| {
            let step = |at: usize| if same { turn[0].1 } else { turn[at].1 };
            let all = (0..turns).flat_map(|k| {
                let turn = turn.iter().enumerate();
                turn.map(move |(at, (first, _))| (k, at, *first))
            });
            let mut all: Vec<u64> = all.map(|(k, at, first)| first + k * step(at)).collect();
            all.truncate(all.len() - cut % all.len());
            if let (1, Some(last)) = (noise, all.last_mut()) {
                *last += 1;
            }
            (all, vec![1, turn.len() as u64, 2 * turn.len() as u64])
        },
    )
}

proptest! {
    #[test]
    fn every_value_comes_back((values, turns) in values()) {
        let count = values.len() as u64;
        let column = Column::with_periods(values.clone(), &turns);
        if matches!(column, Column::Slopes { .. }) {
            prop_assert_eq!(column.max(count), values.iter().copied().max());
        }
        let mut bytes = Vec::new();
        column.put(&mut bytes);
        let back = Column::take(&mut &bytes[..], count).unwrap();
        for column in [&column, &back] {
            let all: Vec<u64> = (0..count).map(|slot| column.get(slot)).collect();
            prop_assert_eq!(&all, &values);
            prop_assert!(column.max(count) >= values.iter().copied().max());
        }
        for cut in 0..bytes.len() {
            prop_assert!(Column::take(&mut &bytes[..cut], count).is_err());
        }
    }
}

proptest! {
    #[test]
    fn plain_values_of_any_width_come_back(values in proptest::collection::vec(any::<u64>(), 1..40), shift in 0u32..64) {
        let values: Vec<u64> = values.iter().map(|v| v >> shift).collect();
        let column = Column::plain(&values);
        let all: Vec<u64> = (0..values.len() as u64).map(|slot| column.get(slot)).collect();
        prop_assert_eq!(&all, &values);
        let bits = values.len() as u32 * (64 - shift);
        prop_assert!(column.memory() as u32 <= bits.div_ceil(8));
        let mut bytes = Vec::new();
        column.put(&mut bytes);
        let back = Column::take(&mut &bytes[..], values.len() as u64).unwrap();
        prop_assert_eq!(back.get(0), values[0]);
        prop_assert_eq!(back.max(values.len() as u64), values.iter().copied().max());
    }
}

#[test]
fn turns_with_steps_of_their_own_take_two_turns() {
    let first = [7u64, 1_000_003, 52, 90_001, 3];
    let steps = [101u64, 77, 20_000, 5, 999];
    let all = (0..1000u64).flat_map(|k| (0..5).map(move |i| first[i] + k * steps[i]));
    let column = Column::with_periods(all.collect(), &[5]);
    assert!(matches!(column, Column::Slopes { .. }) && column.memory() < 200);
}
