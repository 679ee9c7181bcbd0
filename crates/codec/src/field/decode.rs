//! Decodes containers: parses the parameters of a container once, then decodes any of its pieces.
use super::decode_piece::PieceJob;
use super::lane_decoder::LaneDecoder;
use super::parameters::{FieldParameters, SymbolModel};
use super::piece::CONSTANT;
use super::{FieldError, dispatch};
use crate::container::head::ContainerHead;
use crate::container::{PIECE_LEN, PieceEdges};
use crate::element::{ElementLayout, Word};
use crate::error::CodecError;
use std::fmt;
use std::ops::Range;

/// A container whose parameters are parsed.
pub(crate) struct FieldDecoder {
    raw_len: usize,
    /// `None` if all pieces are raw.
    opened: Option<OpenedModel>,
}

pub(super) struct OpenedModel {
    pub(super) layout: ElementLayout,
    pub(super) model: SymbolModel,
    pub(super) reference_bits: u32,
    base_checksums: Vec<u32>,
    by_width: DecoderByWidth,
}

enum DecoderByWidth {
    Bits16(WordDecoder<i16>),
    Bits32(WordDecoder<i32>),
    Bits64(WordDecoder<i64>),
}

pub(super) struct WordDecoder<T> {
    pub(super) lanes: Box<LaneDecoder<T>>,
    /// The elements, of which numbers are places.
    pub(super) dictionary: Vec<T>,
}

impl<T: Word> WordDecoder<T> {
    fn new(parameters: &FieldParameters) -> Result<WordDecoder<T>, FieldError> {
        let model = &parameters.model;
        let lanes = LaneDecoder::new(model.map, model.tables, &parameters.lengths)
            .ok_or(FieldError::Code)?;
        let dictionary = match &parameters.dictionary {
            Some(packed) => {
                let mut values = packed.unpack::<T>()?;
                for value in &mut values {
                    *value = value.unordered(model.shift);
                }
                values
            }
            None => Vec::new(),
        };
        Ok(WordDecoder { lanes, dictionary })
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.lanes) + size_of_val(&*self.dictionary)
    }
}

impl fmt::Debug for FieldDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldDecoder")
            .field("raw_len", &self.raw_len)
            .field("model", &self.opened.as_ref().map(|opened| opened.model))
            .finish_non_exhaustive()
    }
}

impl FieldDecoder {
    /// Parses the parameters in a head.
    pub(crate) fn open(
        head: &ContainerHead,
        parameters: &[u8],
    ) -> Result<FieldDecoder, CodecError> {
        Self::parse(head, parameters).map_err(|e| CodecError::RefusedHead(e.into()))
    }

    fn parse(head: &ContainerHead, parameters: &[u8]) -> Result<FieldDecoder, FieldError> {
        let mut decoder = FieldDecoder {
            raw_len: head.raw_len,
            opened: None,
        };
        let Some(parameters) = FieldParameters::parse(head, parameters)? else {
            return Ok(decoder);
        };
        let by_width = match parameters.element.width() {
            2 => DecoderByWidth::Bits16(WordDecoder::new(&parameters)?),
            4 => DecoderByWidth::Bits32(WordDecoder::new(&parameters)?),
            _ => DecoderByWidth::Bits64(WordDecoder::new(&parameters)?),
        };
        decoder.opened = Some(OpenedModel {
            layout: head.layout,
            model: parameters.model,
            reference_bits: parameters.reference_bits(),
            base_checksums: parameters.base_checksums,
            by_width,
        });
        Ok(decoder)
    }

    /// Memory that it holds, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let Some(opened) = &self.opened else {
            return size_of::<FieldDecoder>();
        };
        let of_width = match &opened.by_width {
            DecoderByWidth::Bits16(decoder) => decoder.memory(),
            DecoderByWidth::Bits32(decoder) => decoder.memory(),
            DecoderByWidth::Bits64(decoder) => decoder.memory(),
        };
        size_of::<FieldDecoder>() + of_width + size_of_val(&*opened.base_checksums)
    }

    /// Whether pieces are decoded against a base.
    pub(crate) fn has_base(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.model.source.has_base())
    }

    /// Decodes some bytes of a piece that is shorter than its raw bytes, of which the range is. `base` are the bytes of the base at the
    /// place of the whole piece; anything if there is none. `out` has the length of the range.
    ///
    /// # Errors
    /// If the piece is damaged, or the base is not the one that it was encoded against; `out` then has any bytes.
    pub(crate) fn decode_range(
        &self,
        index: usize,
        piece: &[u8],
        range: Range<usize>,
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let start = index.saturating_mul(PIECE_LEN).min(self.raw_len);
        let len = (self.raw_len - start).min(PIECE_LEN);
        let refused = |e: FieldError| CodecError::RefusedPiece(e.into());
        let Some(opened) = &self.opened else {
            return Err(refused(FieldError::Piece));
        };
        let base = match opened.model.source.has_base() {
            true => opened.check_base(index, len, base)?,
            // One that is given but not needed is what callers have who do not look.
            false => &[],
        };
        let job = PieceJob {
            opened,
            piece,
            base,
            edges: PieceEdges::of(&opened.layout, len),
        };
        let decoded = match (piece.first(), &opened.by_width) {
            (Some(&CONSTANT), _) => job.constant(range, out),
            (_, DecoderByWidth::Bits16(decoder)) => dispatch::decode(&job, decoder, range, out),
            (_, DecoderByWidth::Bits32(decoder)) => dispatch::decode(&job, decoder, range, out),
            (_, DecoderByWidth::Bits64(decoder)) => dispatch::decode(&job, decoder, range, out),
        };
        decoded.map_err(refused)
    }
}

impl OpenedModel {
    /// The base of a piece, if it is the one that the container was encoded against.
    fn check_base<'a>(
        &self,
        index: usize,
        len: usize,
        base: &'a [u8],
    ) -> Result<&'a [u8], CodecError> {
        if base.len() != len {
            return Err(CodecError::WrongBase {
                expected: len,
                found: base.len(),
            });
        }
        match self.base_checksums.get(index) {
            Some(checksum) if *checksum == forebay_checksum::crc32c(base) => Ok(base),
            _ => Err(CodecError::OtherBase),
        }
    }
}
