//! The head of a container: all that decoding its spans needs.
//!
//! ```text
//!  0     1               4     5        6        7       8       9
//! +-----+---------------+-----+--------+--------+-------+-------+-----+-------+------------+
//! | 16+k| raw bytes     | e,s | m,c    | phase  | pred. | stride| shift, map, contexts, codes, dictionary
//! +-----+---------------+-----+--------+--------+-------+-------+-----+-------+------------+
//! ```
//! | bytes | what |
//! |---|---|
//! | 1 | version (1) in the upper half; `k`: 0: spans are the raw bytes and the head ends after 4 bytes; 1: as below |
//! | 3 | raw bytes of the container, at most 1 MiB |
//! | 1 | element type (lower half), source of the numbers (upper half) |
//! | 1 | map of symbols: 0 `Signed`, 1 `Window` (lower half), number of contexts: 1 or 4 (upper half) |
//! | 1 | phase: bytes before the first element of each span, below the element's width |
//! | 1 | predictor |
//! | 1 | stride, 1 to 32 |
//! | 1 | shift: so many lowest bits are zero in all elements |
//! | 3 | if `Window`: `raw` (1), `base` (2) |
//! | 3 | if 4 contexts: the thresholds |
//! | | a code for each context (`huffman` has the grid) |
//! | | if the source is a dictionary: it (`dictionary` has the grid) |
//!
//! Invariant: what is parsed names no symbol that the map lacks and no shift, phase or stride out of range, and nothing follows it.
use super::FieldError;
use super::dictionary::PackedDictionary;
use super::huffman::{self, CodeLengths};
use super::lanes::{CONTEXTS, SymbolContexts};
use super::predict::Predictor;
use super::span::SPAN;
use super::symbols::SymbolMap;
use crate::element::ElementType;

/// The most raw bytes of a container.
pub const CONTAINER: usize = 1 << 20;
/// The largest stride.
pub(super) const STRIDES: usize = 32;
const VERSION: u8 = 1;

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

/// How elements become symbols: the same in all spans of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolModel {
    pub(super) source: NumberSource,
    pub(super) shift: u32,
    pub(super) predictor: Predictor,
    pub(super) stride: usize,
    pub(super) map: SymbolMap,
    pub(super) contexts: SymbolContexts,
}

/// The head of a container whose spans are encoded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldParameters {
    pub(super) raw_len: usize,
    pub(super) element: ElementType,
    pub(super) phase: usize,
    pub(super) model: SymbolModel,
    /// One code for each context.
    pub(super) lengths: Vec<CodeLengths>,
    pub(super) dictionary: Option<PackedDictionary>,
}

/// Appends the head of a container whose spans are raw.
pub(super) fn put_raw(raw_len: usize, out: &mut Vec<u8>) {
    out.push(VERSION << 4);
    out.extend_from_slice(&(raw_len as u32).to_le_bytes()[..3]);
}

/// A parsed head.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ParsedHead {
    Raw(usize),
    Encoded(Box<FieldParameters>),
}

impl FieldParameters {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let model = &self.model;
        out.push(VERSION << 4 | 1);
        out.extend_from_slice(&(self.raw_len as u32).to_le_bytes()[..3]);
        let map = u8::from(model.map != SymbolMap::Signed);
        out.extend([
            self.element.code() | (model.source as u8) << 4,
            map | (model.contexts.count() as u8) << 4,
            self.phase as u8,
            model.predictor as u8,
            model.stride as u8,
            model.shift as u8,
        ]);
        if let SymbolMap::Window { raw, base } = model.map {
            out.push(raw);
            out.extend(base.to_le_bytes());
        }
        out.extend(model.contexts.thresholds.into_iter().flatten());
        for lengths in &self.lengths {
            huffman::put(lengths, out);
        }
        if let Some(dictionary) = &self.dictionary {
            dictionary.put(out);
        }
    }

    /// Parses a head.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn parse(bytes: &[u8]) -> Result<ParsedHead, FieldError> {
        let (&[version, a, b, c], rest) = bytes.split_first_chunk().ok_or(FieldError::Truncated)?;
        if version >> 4 != VERSION {
            return Err(FieldError::Version(version >> 4));
        }
        let raw_len = u32::from_le_bytes([a, b, c, 0]) as usize;
        if raw_len > CONTAINER {
            return Err(FieldError::FieldParameters);
        }
        match (version & 15, rest) {
            (0, []) => return Ok(ParsedHead::Raw(raw_len)),
            (1, _) => {}
            _ => return Err(FieldError::FieldParameters),
        }
        let (&[types, map, phase, predictor, stride, shift], mut rest) =
            rest.split_first_chunk().ok_or(FieldError::Truncated)?;
        let element = ElementType::from_code(types & 15).ok_or(FieldError::FieldParameters)?;
        let source = NumberSource::from_code(types >> 4).ok_or(FieldError::FieldParameters)?;
        let predictor = Predictor::from_code(predictor).ok_or(FieldError::FieldParameters)?;
        let (phase, stride, shift) = (phase.into(), usize::from(stride), u32::from(shift));
        let bits = 8 * element.width() as u32;
        let shift_fits = shift < bits && (shift == 0 || !source.has_base());
        if phase >= element.width() || !(1..=STRIDES).contains(&stride) || !shift_fits {
            return Err(FieldError::FieldParameters);
        }
        let contexts = map >> 4;
        let map = match map & 15 {
            0 => SymbolMap::Signed,
            1 => {
                let &[raw, low, high] = take(&mut rest)?;
                let base = u16::from_le_bytes([low, high]);
                SymbolMap::Window { raw, base }
            }
            _ => return Err(FieldError::FieldParameters),
        };
        let contexts = match contexts {
            1 => SymbolContexts::ONE,
            4 => SymbolContexts {
                thresholds: Some(*take::<{ CONTEXTS - 1 }>(&mut rest)?),
            },
            _ => return Err(FieldError::FieldParameters),
        };
        let lengths: Result<Vec<_>, _> = (0..contexts.count())
            .map(|_| huffman::take(&mut rest))
            .collect();
        let lengths = lengths?;
        let dictionary = match source {
            NumberSource::Dictionary => Some(PackedDictionary::take(&mut rest, element, raw_len)?),
            _ => None,
        };
        if !rest.is_empty() {
            return Err(FieldError::FieldParameters);
        }
        let model = SymbolModel {
            source,
            shift,
            predictor,
            stride,
            map,
            contexts,
        };
        Ok(ParsedHead::Encoded(Box::new(FieldParameters {
            raw_len,
            element,
            phase,
            model,
            lengths,
            dictionary,
        })))
    }

    /// The bits of a span's first reference; 0: spans have none.
    pub(super) fn reference_bits(&self) -> u32 {
        if self.model.predictor == Predictor::None {
            return 0;
        }
        match &self.dictionary {
            Some(dictionary) => dictionary.index_bits(),
            None => 8 * self.element.width() as u32 - self.model.shift,
        }
    }
}

/// Takes some bytes.
pub(super) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], FieldError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(FieldError::Truncated)?;
    *bytes = rest;
    Ok(first)
}

/// How many spans so many raw bytes are.
pub(super) fn spans(raw_len: usize) -> usize {
    raw_len.div_ceil(SPAN)
}
