//! Mutated blocks are refused or give numbers: no panic, and never more than the rows allowed. What is accepted is a block: encoded
//! again it comes back. Short form: 30,000 mutations; `SOAK=1`: ten minutes.
use forebay_codec::{Columns, Encoder, LazyColumn};
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::Random;

const N: usize = 3;
const LIMIT: usize = 2000;

fn encode(columns: &[Vec<u64>; N]) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::default().encode(&columns.each_ref().map(|c| &c[..]), &mut out);
    out
}

fn decode(bytes: &[u8]) -> Option<[Vec<u64>; N]> {
    let opened = Columns::<N>::open(bytes, LIMIT)?;
    assert!(opened.rows() <= LIMIT);
    let mut columns: [Vec<u64>; N] = Default::default();
    let mut lazy = LazyColumn::default();
    for (k, column) in columns.iter_mut().enumerate() {
        if opened.lazy(k, &mut lazy).is_some() && opened.rows() > 0 {
            // Numbers, whatever they are.
            lazy.get(opened.rows() / 2);
            lazy.get(opened.rows() - 1);
        }
        opened.column(k, column)?;
        assert_eq!(column.len(), opened.rows());
        assert!(column.capacity() <= 2 * LIMIT, "{}", column.capacity());
    }
    let rows = opened.rows();
    for (k, column) in columns.iter().enumerate() {
        assert!(
            opened.lazy(k, &mut lazy).is_some(),
            "what is decoded can be read"
        );
        for row in [0, rows / 3, rows / 2, rows.saturating_sub(1)] {
            if let Some(value) = column.get(row) {
                assert_eq!(lazy.get(row), *value, "row {row} of {rows}");
            }
        }
    }
    Some(columns)
}

#[test]
fn mutated_blocks_are_refused_or_are_blocks() {
    let mut random = Random::new(1);
    let mut corpus = Vec::new();
    for rows in [0, 1, 2, 90, 300, LIMIT] {
        let regular = |step: u64| (0..rows as u64).map(|i| i.wrapping_mul(step)).collect();
        let wild =
            (0..rows).map(|_| Random::new(random.index(1 << 20) as u64).index(usize::MAX) as u64);
        let wild: Vec<u64> = wild.collect();
        corpus.push(encode(&[regular(0), regular(47008), wild.clone()]));
        corpus.push(encode(&[
            wild.iter().map(|w| w % 5).collect(),
            regular(u64::MAX),
            regular(1),
        ]));
    }
    let mut accepted = 0u64;
    fuzz("columns", 30_000, &corpus, |_, _, bytes| {
        if let Some(columns) = decode(&bytes) {
            accepted += 1;
            assert_eq!(decode(&encode(&columns)), Some(columns));
        }
    });
    assert!(
        accepted > 100,
        "mutations reach what is accepted, too: {accepted}"
    );
}
