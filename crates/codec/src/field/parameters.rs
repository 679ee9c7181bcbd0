//! The parameters of `field` in the head of a container, which has version, length, type and phase already.
//!
//! ```text
//!  0     1     2       3       4        6     8
//! +-----+-----+-------+-------+--------+-----+--------------------------------------------------------------+
//! | src | m,t | pred. | shift | stride | row | window, thresholds, codes, dictionary, checksums of the base |
//! +-----+-----+-------+-------+--------+-----+--------------------------------------------------------------+
//! ```
//! | bytes | what |
//! |---|---|
//! | 0 | nothing at all: every piece is its raw bytes |
//! | 1 | source of the numbers |
//! | 1 | map of symbols: 0 `Signed`, 1 `Window` (lower half); use of tables: 0 one, 1 by the symbol before, 2 by the lane, 3 by the base (upper half) |
//! | 1 | predictor |
//! | 1 | shift: so many lowest bits are zero in all elements |
//! | 2 | stride of the predictor, 1 to 128: the layout's is only a hint |
//! | 2 | row: from a number the one so many elements before is subtracted; 0: no |
//! | 3 | if `Window`: `raw` (1), `lowest` (2) |
//! | 3 | if tables are used by the symbol before: the thresholds |
//! | 6 | if they are used by the base: the thresholds, 2 each |
//! | | a code for each table (`huffman` has the grid) |
//! | | if the source is a dictionary: the packed dictionary (`dictionary` has the grid) |
//! | 4 each | if numbers are differences from a *base*, the same bytes of an earlier checkpoint: the CRC32C of the base's bytes of each piece |
//!
//! Invariant: what is parsed names no symbol that the map lacks and no shift or row out of range, and nothing follows it.
use super::FieldError;
use super::dictionary::PackedDictionary;
use super::huffman::{self, CodeLengths};
use super::lanes::{TABLES, TableUse};
use super::predict::Predictor;
use super::symbols::SymbolMap;
use crate::container::head::ContainerHead;
use crate::container::{PIECE_LEN, piece_count};
use crate::element::ElementType;

/// How an element becomes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberSource {
    /// The ordered integer, less the zeros at its end.
    Ordered = 0,
    /// Its place in the sorted dictionary.
    Dictionary = 1,
    /// The bits with the sign last.
    Rotated = 2,
    /// The ordered integer less that of the base.
    BaseDifference = 3,
    /// The bits XOR those of the base.
    BaseXor = 4,
}

impl NumberSource {
    fn from_code(code: u8) -> Option<NumberSource> {
        match code {
            0 => Some(NumberSource::Ordered),
            1 => Some(NumberSource::Dictionary),
            2 => Some(NumberSource::Rotated),
            3 => Some(NumberSource::BaseDifference),
            4 => Some(NumberSource::BaseXor),
            _ => None,
        }
    }

    pub(super) fn has_base(self) -> bool {
        matches!(self, NumberSource::BaseDifference | NumberSource::BaseXor)
    }
}

/// How elements become symbols: the same in all pieces of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolModel {
    pub(super) source: NumberSource,
    pub(super) shift: u32,
    pub(super) predictor: Predictor,
    /// At least 1.
    pub(super) stride: usize,
    /// 0: none.
    pub(super) row: usize,
    pub(super) map: SymbolMap,
    pub(super) tables: TableUse,
}

/// The parameters of a container whose pieces are encoded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldParameters {
    pub(super) element: ElementType,
    pub(super) model: SymbolModel,
    /// One code for each table.
    pub(super) lengths: Vec<CodeLengths>,
    pub(super) dictionary: Option<PackedDictionary>,
    /// Of the base's bytes at the place of each piece; none if there is no base.
    pub(super) base_checksums: Vec<u32>,
}

/// The largest stride of a predictor. A lane has as many elements, and its first ones have no neighbour.
pub(super) const MAX_STRIDE: usize = 128;

/// The most elements of a row: half of a piece, so that most of its elements have one in the row before.
pub(super) const fn max_row(element: ElementType) -> usize {
    PIECE_LEN / 2 / element.width()
}

impl FieldParameters {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let model = &self.model;
        let map = u8::from(model.map != SymbolMap::Signed);
        out.extend([
            model.source as u8,
            map | model.tables.code() << 4,
            model.predictor as u8,
            model.shift as u8,
        ]);
        // At most `MAX_STRIDE` and `max_row`.
        out.extend((model.stride as u16).to_le_bytes());
        out.extend((model.row as u16).to_le_bytes());
        if let SymbolMap::Window { raw, lowest } = model.map {
            out.push(raw);
            out.extend(lowest.to_le_bytes());
        }
        if let TableUse::BySymbolBefore(thresholds) = model.tables {
            out.extend(thresholds);
        }
        if let TableUse::ByBase(thresholds) = model.tables {
            out.extend(thresholds.iter().flat_map(|t| t.to_le_bytes()));
        }
        for lengths in &self.lengths {
            huffman::put(lengths, out);
        }
        if let Some(dictionary) = &self.dictionary {
            dictionary.put(out);
        }
        for checksum in &self.base_checksums {
            out.extend(checksum.to_le_bytes());
        }
    }

    /// Parses the parameters of a container with this head; `None` if its pieces are raw.
    ///
    /// # Errors
    /// If there are none such.
    pub(super) fn parse(
        head: &ContainerHead,
        bytes: &[u8],
    ) -> Result<Option<FieldParameters>, FieldError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let element = head.layout.element;
        let mut rest = bytes;
        let &[source, map, predictor, shift, stride0, stride1, row0, row1] = take(&mut rest)?;
        let source = NumberSource::from_code(source).ok_or(FieldError::Parameters)?;
        let predictor = Predictor::from_code(predictor).ok_or(FieldError::Parameters)?;
        let shift = u32::from(shift);
        let stride = usize::from(u16::from_le_bytes([stride0, stride1]));
        let row = usize::from(u16::from_le_bytes([row0, row1]));
        let bits = 8 * element.width() as u32;
        let shift_fits = shift < bits && (shift == 0 || !source.has_base());
        if !shift_fits || !(1..=MAX_STRIDE).contains(&stride) || row > max_row(element) {
            return Err(FieldError::Parameters);
        }
        let tables = map >> 4;
        let map = match map & 15 {
            0 => SymbolMap::Signed,
            1 => {
                let &[raw, low, high] = take(&mut rest)?;
                let lowest = u16::from_le_bytes([low, high]);
                SymbolMap::Window { raw, lowest }
            }
            _ => return Err(FieldError::Parameters),
        };
        let tables = match tables {
            0 => TableUse::One,
            1 => TableUse::BySymbolBefore(*take::<{ TABLES - 1 }>(&mut rest)?),
            2 => TableUse::ByLane,
            3 if source.has_base() && predictor == Predictor::None => {
                let bytes = take::<{ 2 * (TABLES - 1) }>(&mut rest)?;
                let threshold = |i: usize| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
                TableUse::ByBase(std::array::from_fn(threshold))
            }
            _ => return Err(FieldError::Parameters),
        };
        let lengths: Result<Vec<_>, _> = (0..tables.count())
            .map(|_| huffman::take(&mut rest))
            .collect();
        let lengths = lengths?;
        let dictionary = match source {
            NumberSource::Dictionary => {
                Some(PackedDictionary::take(&mut rest, element, head.raw_len)?)
            }
            _ => None,
        };
        let pieces = match source.has_base() {
            true => piece_count(head.raw_len),
            false => 0,
        };
        let (checksums, []) = rest.as_chunks() else {
            return Err(FieldError::Parameters);
        };
        if checksums.len() != pieces {
            return Err(FieldError::Parameters);
        }
        let base_checksums = checksums.iter().map(|c| u32::from_le_bytes(*c)).collect();
        let model = SymbolModel {
            source,
            shift,
            predictor,
            stride,
            row,
            map,
            tables,
        };
        Ok(Some(FieldParameters {
            element,
            model,
            lengths,
            dictionary,
            base_checksums,
        }))
    }

    /// The bits of a piece's first reference; 0: pieces have none.
    pub(super) fn reference_bits(&self) -> u32 {
        if self.model.predictor == Predictor::None {
            return 0;
        }
        match &self.dictionary {
            // These have a sign, so that differences from the row before fit, too.
            Some(dictionary) => dictionary.index_bits(),
            None => {
                let bits = 8 * self.element.width() as u32;
                bits.min(bits - self.model.shift + u32::from(self.model.row > 0))
            }
        }
    }
}

/// Takes some bytes.
pub(super) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], FieldError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(FieldError::Truncated)?;
    *bytes = rest;
    Ok(first)
}
