//! A sorted dictionary of the values of a container, for data that has few: then the numbers are places in it.
//!
//! ```text
//!  0       2            3                3+width
//! +-------+------------+----------------+------+---------------+------+
//! | count | predictor  | first value    | code | bytes (24 bit)| lane |
//! +-------+------------+----------------+------+---------------+------+
//! ```
//! Values are ordered integers, shifted as the head says. They are a lane of their own, with a code of its own: values of
//! measured data are often nearly equally spaced, and then take a byte or less.
//!
//! Invariant: a dictionary has at most [`MAX_DICTIONARY_VALUES`] values, and no more than its container has elements.
use super::FieldError;
use super::huffman::{self, CodeLengths};
use super::lane_decoder::{LaneCursor, LaneDecoder, PortableExtraction};
use super::lane_encoder::LaneEncoder;
use super::lanes::{SLACK, TableUse};
use super::parameters::take;
use super::predict::Predictor;
use super::symbols::{SYMBOLS, SymbolMap};
use crate::element::{ElementType, Word};

/// The most values of a dictionary.
pub(super) const MAX_DICTIONARY_VALUES: usize = 1 << 14;
/// The most bytes of a dictionary in a head, which has other parameters beside it and may be 64 KiB long.
pub(super) const MAX_PACKED_LEN: usize = 60 << 10;
/// No lane of so many values is longer than this: 9 and 64 bits each.
const LANE_MASK: usize = (1 << 18) - 1;
/// Shorter lanes, which are decoded in shorter buffers.
const MIDDLE_LANE_MASK: usize = (1 << 15) - 1;
const SHORT_LANE_MASK: usize = (1 << 12) - 1;

/// A dictionary as a head has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PackedDictionary {
    count: usize,
    predictor: Predictor,
    first: u64,
    width: usize,
    lengths: Box<CodeLengths>,
    lane: Vec<u8>,
}

impl PackedDictionary {
    /// Packs sorted values, of which there is at least one.
    pub(super) fn pack<T: Word>(values: &[T]) -> PackedDictionary {
        let mut residuals = vec![T::default(); values.len()];
        let mut best: Option<(usize, PackedDictionary)> = None;
        let mut lane = vec![0; LANE_MASK + 1 + SLACK];
        for predictor in Predictor::DIFFERENCES {
            predictor.residuals(1, values, &mut residuals);
            let mut counts = [0; SYMBOLS];
            for residual in residuals.iter().skip(1) {
                counts[SymbolMap::Signed.symbol(*residual)] += 1;
            }
            let lengths = huffman::lengths(&counts);
            let encoder = LaneEncoder::new::<T>(SymbolMap::Signed, TableUse::One, &[lengths]);
            let rest = residuals.get(1..).unwrap_or_default();
            let len = encoder.encode::<T, LANE_MASK>(rest, rest.len(), (0, &[]), &mut lane, 0);
            if best.as_ref().is_none_or(|(least, _)| len < *least) {
                let packed = PackedDictionary {
                    count: values.len(),
                    predictor,
                    first: values.first().map_or(0, |v| v.bits()),
                    width: T::BYTES,
                    lengths: Box::new(lengths),
                    lane: lane[..len].to_vec(),
                };
                best = Some((len, packed));
            }
        }
        // There is a predictor, so there is a best one.
        let (_, packed) = best.expect("a predictor");
        packed
    }

    /// The values.
    ///
    /// # Errors
    /// If the lane is none.
    pub(super) fn unpack<T: Word>(&self) -> Result<Vec<T>, FieldError> {
        let lengths = [*self.lengths];
        let decoder =
            LaneDecoder::new(SymbolMap::Signed, TableUse::One, &lengths).ok_or(FieldError::Code)?;
        let mut values = vec![[T::default()]; self.count];
        values[0] = [T::truncate(self.first)];
        let rest = &mut values[1..];
        // A buffer no longer than a few times the lane, so that what is allocated is bounded by what was read.
        let len = self.lane.len();
        let end = if len <= SHORT_LANE_MASK {
            self.decode_lane::<T, SHORT_LANE_MASK>(&decoder, rest)
        } else if len <= MIDDLE_LANE_MASK {
            self.decode_lane::<T, MIDDLE_LANE_MASK>(&decoder, rest)
        } else if len <= LANE_MASK {
            self.decode_lane::<T, LANE_MASK>(&decoder, rest)
        } else {
            return Err(FieldError::Dictionary);
        };
        if end != self.lane.len() {
            return Err(FieldError::Dictionary);
        }
        self.predictor.restore(1, &mut values);
        Ok(values.into_iter().map(|[value]| value).collect())
    }

    /// Decodes the lane, which fits the mask; returns its bytes.
    fn decode_lane<T: Word, const MASK: usize>(
        &self,
        decoder: &LaneDecoder<T>,
        out: &mut [[T; 1]],
    ) -> usize {
        let mut buffer = vec![0; MASK + 1 + SLACK];
        buffer[..self.lane.len()].copy_from_slice(&self.lane);
        let cursor = LaneCursor::new(0, 0);
        let [end] =
            decoder.decode_rows::<PortableExtraction, 1, MASK>(&buffer, [cursor], [out.len()], out);
        end.end()
    }

    /// The bits of a place in it, with a sign.
    pub(super) fn index_bits(&self) -> u32 {
        usize::BITS - (self.count - 1).leading_zeros() + 1
    }

    /// The bytes that it takes in a head, nearly.
    pub(super) fn packed_len(&self) -> usize {
        self.lane.len() + 30
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend((self.count as u16).to_le_bytes());
        out.push(self.predictor as u8);
        out.extend_from_slice(&self.first.to_le_bytes()[..self.width]);
        huffman::put(&self.lengths, out);
        out.extend_from_slice(&(self.lane.len() as u32).to_le_bytes()[..3]);
        out.extend_from_slice(&self.lane);
    }

    /// Takes a dictionary off `bytes`.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn take(
        bytes: &mut &[u8],
        element: ElementType,
        raw_len: usize,
    ) -> Result<Self, FieldError> {
        let &[low, high, predictor] = take(bytes)?;
        let count = usize::from(u16::from_le_bytes([low, high]));
        let predictor = Predictor::from_code(predictor).ok_or(FieldError::Dictionary)?;
        let width = element.width();
        if !(1..=MAX_DICTIONARY_VALUES.min(raw_len / width)).contains(&count) {
            return Err(FieldError::Dictionary);
        }
        let (value, rest) = bytes.split_at_checked(width).ok_or(FieldError::Truncated)?;
        let mut first = [0; 8];
        first[..width].copy_from_slice(value);
        *bytes = rest;
        let lengths = Box::new(huffman::take(bytes)?);
        let &[a, b, c] = take(bytes)?;
        let len = u32::from_le_bytes([a, b, c, 0]) as usize;
        let (lane, rest) = bytes.split_at_checked(len).ok_or(FieldError::Truncated)?;
        *bytes = rest;
        if len > LANE_MASK {
            return Err(FieldError::Dictionary);
        }
        Ok(PackedDictionary {
            count,
            predictor,
            first: u64::from_le_bytes(first),
            width,
            lengths,
            lane: lane.to_vec(),
        })
    }
}

/// The places of a container's values in its dictionary.
pub(super) struct IndexedValues<T> {
    /// Sorted.
    pub(super) values: Vec<T>,
    /// Of each element, the number of its value in the order of first occurrence.
    firsts: Vec<u16>,
    /// The place of each such number.
    ranks: Vec<u16>,
}

impl<T> IndexedValues<T> {
    /// The places of the elements from the `first` on.
    pub(super) fn places(&self, first: usize) -> impl Iterator<Item = u16> {
        let firsts = &self.firsts[first..];
        firsts.iter().map(|i| self.ranks[usize::from(*i)])
    }
}

/// Distinct values by hash, open addressing. It begins small, as most dictionaries are.
struct DistinctValues<T> {
    /// One more than an index into `values`; 0: free. At most an eighth of them are taken, so that few probes miss.
    slots: Vec<u16>,
    bits: u32,
    values: Vec<T>,
}

impl<T: Word> DistinctValues<T> {
    fn new() -> Self {
        let bits = 13;
        DistinctValues {
            slots: vec![0; 1 << bits],
            bits,
            values: Vec::with_capacity(1 << (bits - 3)),
        }
    }

    /// The slot of a value, or the free one where it belongs.
    #[inline(always)]
    fn slot(&self, value: T) -> usize {
        let mask = self.slots.len() - 1;
        let hash = value.bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.bits);
        let mut slot = hash as usize & mask;
        while let Some(i) = usize::from(self.slots[slot]).checked_sub(1)
            && self.values[i] != value
        {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Adds a value that is not there.
    #[cold]
    fn insert(&mut self, value: T) {
        if self.values.len() >= self.slots.len() / 8 {
            self.bits += 1;
            self.slots = vec![0; 1 << self.bits];
            for i in 0..self.values.len() {
                let slot = self.slot(self.values[i]);
                self.slots[slot] = i as u16 + 1;
            }
        }
        let slot = self.slot(value);
        self.values.push(value);
        self.slots[slot] = self.values.len() as u16;
    }
}

/// Finds the values of `count` numbers; `None` if there are more than `limit`, which is at most [`MAX_DICTIONARY_VALUES`].
pub(super) fn index<T: Word>(
    mut numbers: impl Iterator<Item = T>,
    count: usize,
    limit: usize,
) -> Option<IndexedValues<T>> {
    let limit = limit.min(MAX_DICTIONARY_VALUES);
    let mut distinct: DistinctValues<T> = DistinctValues::new();
    let mut firsts: Vec<u16> = Vec::with_capacity(count);
    // Inner iteration: the numbers of a piece are a loop of their own.
    let within_limit = numbers.try_for_each(|number| {
        let mut place = distinct.slots[distinct.slot(number)];
        if place == 0 {
            if distinct.values.len() == limit {
                return None;
            }
            distinct.insert(number);
            place = distinct.values.len() as u16;
        }
        firsts.push(place - 1);
        Some(())
    });
    within_limit?;
    let values = distinct.values;
    let mut order: Vec<u16> = (0..values.len() as u16).collect();
    order.sort_unstable_by_key(|i| values[usize::from(*i)]);
    let mut ranks = vec![0; values.len()];
    for (rank, i) in order.iter().enumerate() {
        ranks[usize::from(*i)] = rank as u16;
    }
    let values = order.iter().map(|i| values[usize::from(*i)]).collect();
    Some(IndexedValues {
        values,
        firsts,
        ranks,
    })
}
