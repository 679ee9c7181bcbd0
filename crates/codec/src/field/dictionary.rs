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
//! Invariant: a dictionary has at most [`MOST`] values, and no more than its container has elements.
use super::FieldError;
use super::head::take;
use super::huffman::{self, Lengths};
use super::lane_decoder::LaneDecoder;
use super::lanes::{Contexts, LaneEncoder, SLACK};
use super::predict::Predictor;
use super::symbols::{SYMBOLS, SymbolMap};
use crate::element::{ElementType, Word};

/// The most values of a dictionary.
pub(super) const MOST: usize = 1 << 14;
/// No lane of so many values is longer than this: 10 and 64 bits each.
const LANE_MASK: usize = (1 << 18) - 1;

/// A dictionary as a head has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PackedDictionary {
    count: usize,
    predictor: Predictor,
    first: u64,
    width: usize,
    lengths: Box<Lengths>,
    lane: Vec<u8>,
}

impl PackedDictionary {
    /// Packs sorted values, of which there is at least one.
    pub(super) fn pack<T: Word>(values: &[T]) -> PackedDictionary {
        let mut residuals = vec![T::default(); values.len()];
        let mut best: Option<(usize, PackedDictionary)> = None;
        for predictor in Predictor::DIFFERENCES {
            predictor.residuals(1, values, &mut residuals);
            let mut counts = [0; SYMBOLS];
            for residual in residuals.iter().skip(1) {
                counts[SymbolMap::Signed.symbol(*residual)] += 1;
            }
            let lengths = huffman::lengths(&counts);
            let encoder = LaneEncoder::new::<T>(SymbolMap::Signed, Contexts::ONE, &[lengths]);
            let mut lane = vec![0; LANE_MASK + 1 + SLACK];
            let rest = residuals.get(1..).unwrap_or_default();
            let len = encoder.encode::<T, LANE_MASK>(rest, &mut lane, 0);
            lane.truncate(len);
            if best.as_ref().is_none_or(|(least, _)| len < *least) {
                let packed = PackedDictionary {
                    count: values.len(),
                    predictor,
                    first: values.first().map_or(0, |v| v.bits()),
                    width: T::BYTES,
                    lengths: Box::new(lengths),
                    lane,
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
            LaneDecoder::new(SymbolMap::Signed, Contexts::ONE, &lengths).ok_or(FieldError::Code)?;
        let mut buffer = vec![0; LANE_MASK + 1 + SLACK];
        let lane = buffer
            .get_mut(..self.lane.len())
            .ok_or(FieldError::Dictionary)?;
        lane.copy_from_slice(&self.lane);
        let mut values = vec![T::default(); self.count];
        values[0] = T::truncate(self.first);
        let [end] = decoder.decode::<1, LANE_MASK>(&buffer, [0], [&mut values[1..]]);
        if end.div_ceil(8) != self.lane.len() {
            return Err(FieldError::Dictionary);
        }
        self.predictor.restore(1, [&mut values]);
        Ok(values)
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
        if !(1..=MOST.min(raw_len / width)).contains(&count) {
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
pub(super) struct Indexed<T> {
    /// Sorted.
    pub(super) values: Vec<T>,
    /// Of each element.
    pub(super) places: Vec<u16>,
}

/// Finds the values of some numbers; `None` if there are more than `limit`, which is at most [`MOST`].
pub(super) fn index<T: Word>(numbers: impl Iterator<Item = T>, limit: usize) -> Option<Indexed<T>> {
    let limit = limit.min(MOST);
    let bits = (2 * limit.max(8)).next_power_of_two().trailing_zeros();
    let mask = (1usize << bits) - 1;
    // A place is one more than an index into `values`; 0: free.
    let mut table: Vec<(T, u16)> = vec![(T::default(), 0); mask + 1];
    let mut values: Vec<T> = Vec::new();
    let mut places: Vec<u16> = Vec::with_capacity(numbers.size_hint().0);
    for number in numbers {
        let hash = number.bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits);
        let mut slot = hash as usize & mask;
        let place = loop {
            match &mut table[slot] {
                (value, place) if *place > 0 && *value == number => break *place,
                entry if entry.1 == 0 => {
                    if values.len() == limit {
                        return None;
                    }
                    values.push(number);
                    *entry = (number, values.len() as u16);
                    break entry.1;
                }
                _ => slot = (slot + 1) & mask,
            }
        };
        places.push(place - 1);
    }
    let mut order: Vec<u16> = (0..values.len() as u16).collect();
    order.sort_unstable_by_key(|i| values[usize::from(*i)]);
    let mut ranks = vec![0; values.len()];
    for (rank, i) in order.iter().enumerate() {
        ranks[usize::from(*i)] = rank as u16;
    }
    for place in &mut places {
        *place = ranks[usize::from(*place)];
    }
    values.sort_unstable();
    Some(Indexed { values, places })
}
