//! A block of records, stored by columns.
//!
//! ```text
//!  | version, 1 byte: 1 | rows varint | columns varint | length of each column, varints | column 0 | column 1 | ...
//! ```
//!
//! Each column is coded alone (`column`), so a reader that searches one need not decode the others. There is no checksum:
//! it stands where the block is stored, and is verified before the block is opened.
use crate::column::LazyColumn;
use crate::{column, varint};

/// Version of the layout.
const VERSION: u8 = 1;

/// Encodes blocks; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub struct Encoder {
    work: column::EncodeBuffers,
    body: Vec<u8>,
}

impl Encoder {
    /// Appends the block of `columns` to `out`.
    ///
    /// # Panics
    /// If the columns have different lengths.
    pub fn encode(&mut self, columns: &[&[u64]], out: &mut Vec<u8>) {
        let rows = columns.first().map_or(0, |column| column.len());
        assert!(
            columns.iter().all(|column| column.len() == rows),
            "the columns of a block have one length"
        );
        out.push(VERSION);
        varint::put(out, rows as u64);
        varint::put(out, columns.len() as u64);
        self.body.clear();
        for column in columns {
            let start = self.body.len();
            self.work.encode(column, &mut self.body);
            varint::put(out, (self.body.len() - start) as u64);
        }
        out.extend_from_slice(&self.body);
    }
}

/// An encoded block of `N` columns, opened: lengths are checked, columns are decoded when asked for.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a, const N: usize> {
    rows: usize,
    columns: [&'a [u8]; N],
}

impl<'a, const N: usize> Columns<'a, N> {
    /// Opens a block of at most `limit` rows. `None` if the bytes are no such block.
    pub fn open(mut bytes: &'a [u8], limit: usize) -> Option<Columns<'a, N>> {
        let (&VERSION, rest) = bytes.split_first()? else {
            return None;
        };
        bytes = rest;
        let rows = usize::try_from(varint::take(&mut bytes)?).ok()?;
        if rows > limit || varint::take(&mut bytes)? != N as u64 {
            return None;
        }
        let mut lengths = [0; N];
        for length in &mut lengths {
            *length = usize::try_from(varint::take(&mut bytes)?).ok()?;
        }
        let mut columns: [&[u8]; N] = [&[]; N];
        for (column, length) in columns.iter_mut().zip(lengths) {
            (*column, bytes) = bytes.split_at_checked(length)?;
        }
        bytes.is_empty().then_some(Columns { rows, columns })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Decodes column `k` into `values`, which gets one value a row. `None` if its bytes are no column.
    ///
    /// # Panics
    /// If there is no column `k`.
    pub fn column(&self, k: usize, values: &mut Vec<u64>) -> Option<()> {
        values.clear();
        values.resize(self.rows, 0);
        column::decode(self.columns[k], values)
    }

    /// Decodes column `k` only as far as any value of it needs. `None` if its bytes are no column.
    ///
    /// # Panics
    /// If there is no column `k`.
    pub fn lazy(&self, k: usize, values: &mut LazyColumn) -> Option<()> {
        values.read(self.columns[k], self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(columns: &[&[u64]]) -> Vec<u8> {
        let mut out = Vec::new();
        Encoder::default().encode(columns, &mut out);
        out
    }

    proptest! {
        #[test]
        fn blocks_come_back_column_by_column(
            rows in proptest::collection::vec((0u64..9, any::<u64>(), 0u64..3), 0..200),
        ) {
            let columns: [Vec<u64>; 3] = [
                rows.iter().map(|r| r.0).collect(),
                rows.iter().map(|r| r.1).collect(),
                rows.iter().map(|r| r.2).collect(),
            ];
            let block = encode(&[&columns[0], &columns[1], &columns[2]]);
            let opened = Columns::<3>::open(&block, rows.len()).unwrap();
            prop_assert_eq!(opened.rows(), rows.len());
            let mut values = vec![3];
            for k in [2, 0, 1] {
                opened.column(k, &mut values).unwrap();
                prop_assert_eq!(&values, &columns[k]);
                let mut lazy = LazyColumn::default();
                opened.lazy(k, &mut lazy).unwrap();
                prop_assert_eq!(lazy.rows(), rows.len());
                prop_assert!(columns[k].iter().enumerate().all(|(row, want)| lazy.get(row) == *want));
            }
            prop_assert!(Columns::<2>::open(&block, rows.len()).is_none());
            if !rows.is_empty() {
                prop_assert!(Columns::<3>::open(&block, rows.len() - 1).is_none());
            }
            for cut in 0..block.len() {
                prop_assert!(Columns::<3>::open(&block[..cut], rows.len()).is_none());
            }
        }

        #[test]
        fn garbage_gives_numbers_or_nothing(mut bytes in proptest::collection::vec(0u8..20, 0..100)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Some(opened) = Columns::<2>::open(&bytes, 1000) {
                for k in 0..2 {
                    let _ = opened.column(k, &mut Vec::new());
                }
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut block = encode(&[&[1, 2], &[3, 4]]);
        assert!(Columns::<2>::open(&block, 10).is_some());
        block[0] = 2;
        assert!(Columns::<2>::open(&block, 10).is_none());
    }

    /// What sixteen writers leave in the index when each writes every sixteenth piece of a shared file, in the order of offsets.
    #[test]
    fn strided_records_take_less_than_two_bytes() {
        let (writers, len) = (16u64, 47008u64);
        for (rows, most) in [(102usize, 1.6), (1638, 0.2)] {
            let row = |i: u64| {
                let (turn, writer) = (i / writers, i % writers);
                [
                    42,
                    i * len,
                    len,
                    3,
                    900 + writer * 7,
                    turn * len,
                    5000 + writer,
                ]
            };
            let columns: Vec<Vec<u64>> = (0..7)
                .map(|k| (7777..).take(rows).map(|i| row(i)[k]).collect())
                .collect();
            let block = encode(&columns.iter().map(|c| &c[..]).collect::<Vec<_>>());
            let each = block.len() as f64 / rows as f64;
            assert!(
                each < most,
                "{each} bytes a record in {} bytes",
                block.len()
            );
        }
    }
}
