//! Decoding containers of any codec: the head is parsed once, then pieces are decoded, whole or in part.
//!
//! Invariant: a damaged head or piece is an error or decodes to other bytes; it never causes a panic, nor a read outside.
use crate::container::head::ContainerHead;
use crate::container::{CodecId, PIECE_LEN, piece_count};
use crate::element::ElementLayout;
use crate::error::CodecError;
use crate::{field, general, xor};
use std::ops::Range;

/// A parsed head: decodes pieces.
#[derive(Debug)]
pub struct OpenedContainer {
    head: ContainerHead,
    decoder: CodecDecoder,
}

/// What each codec keeps of its parameters.
#[derive(Debug)]
enum CodecDecoder {
    Raw,
    Xor(xor::XorDecoder),
    General(general::GeneralDecoder),
    Pco(Box<general::pco::PcoDecoder>),
    Field(Box<field::FieldDecoder>),
}

impl OpenedContainer {
    /// Parses a head.
    ///
    /// # Errors
    ///
    /// A head that this version does not read, or that is damaged.
    pub fn open(head: &[u8]) -> Result<OpenedContainer, CodecError> {
        let (head, parameters) = ContainerHead::take(head)?;
        let decoder = match head.codec {
            CodecId::Raw if parameters.is_empty() => CodecDecoder::Raw,
            CodecId::Raw => return Err(CodecError::DamagedHead("raw bytes have no parameters")),
            CodecId::Xor => CodecDecoder::Xor(xor::XorDecoder::open(&head, parameters)?),
            CodecId::Zstd | CodecId::ShuffleZstd | CodecId::Lz4 | CodecId::ShuffleLz4 => {
                CodecDecoder::General(general::GeneralDecoder::open(&head, parameters)?)
            }
            CodecId::Pco => {
                CodecDecoder::Pco(Box::new(general::pco::PcoDecoder::open(&head, parameters)?))
            }
            CodecId::Field => {
                CodecDecoder::Field(Box::new(field::FieldDecoder::open(&head, parameters)?))
            }
        };
        Ok(OpenedContainer { head, decoder })
    }

    /// Which codec encoded the container.
    pub fn codec(&self) -> CodecId {
        self.head.codec
    }

    /// The layout that it was encoded with.
    pub fn layout(&self) -> &ElementLayout {
        &self.head.layout
    }

    /// Raw bytes of the container.
    pub fn raw_len(&self) -> usize {
        self.head.raw_len
    }

    /// Number of pieces.
    pub fn pieces(&self) -> usize {
        piece_count(self.head.raw_len)
    }

    /// Raw bytes of a piece; 0 if there is none such.
    pub fn piece_len(&self, index: usize) -> usize {
        let start = index.saturating_mul(PIECE_LEN).min(self.head.raw_len);
        (self.head.raw_len - start).min(PIECE_LEN)
    }

    /// Memory that it holds beside itself, in bytes, about.
    pub fn memory(&self) -> usize {
        match &self.decoder {
            CodecDecoder::Field(decoder) => decoder.memory(),
            CodecDecoder::Pco(_) => 4 << 10,
            CodecDecoder::Raw | CodecDecoder::Xor(_) | CodecDecoder::General(_) => 0,
        }
    }

    /// Whether pieces are decoded against a base: raw bytes of another container.
    pub fn has_base(&self) -> bool {
        matches!(&self.decoder, CodecDecoder::Field(decoder) if decoder.has_base())
    }

    /// Decodes a piece. `out` is as long as its raw bytes.
    ///
    /// # Errors
    ///
    /// No such piece, a buffer of another length, or a damaged piece; `out` then has any bytes.
    pub fn decode_piece(
        &self,
        index: usize,
        encoded: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        self.decode_piece_against(index, encoded, &[], out)
    }

    /// Decodes a piece of a container that may have a base. `base` are the base's raw bytes where the piece is.
    ///
    /// # Errors
    ///
    /// As [`decode_piece`](Self::decode_piece), and a base of another length than the piece's raw bytes.
    pub fn decode_piece_against(
        &self,
        index: usize,
        encoded: &[u8],
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let len = self.checked_piece_len(index, encoded)?;
        if out.len() != len {
            return Err(CodecError::WrongBuffer {
                expected: len,
                found: out.len(),
            });
        }
        if encoded.len() == len {
            out.copy_from_slice(encoded);
            return Ok(());
        }
        match &self.decoder {
            CodecDecoder::Raw => Err(CodecError::DamagedPiece("it is shorter than its raw bytes")),
            CodecDecoder::Xor(decoder) => decoder.decode_piece(encoded, out),
            CodecDecoder::General(decoder) => decoder.decode_piece(encoded, out),
            CodecDecoder::Pco(decoder) => decoder.decode_piece(encoded, out),
            CodecDecoder::Field(decoder) => decoder.decode_range(index, encoded, 0..len, base, out),
        }
    }

    /// Decodes some raw bytes of a piece. `out` is as long as the range.
    ///
    /// # Errors
    ///
    /// As [`decode_piece`](Self::decode_piece), and a range that ends behind the piece.
    pub fn decode_range(
        &self,
        index: usize,
        encoded: &[u8],
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        self.decode_range_against(index, encoded, range, &[], out)
    }

    /// Decodes some raw bytes of a piece of a container that may have a base. `base` are the base's raw bytes where the whole piece
    /// is.
    ///
    /// # Errors
    ///
    /// As [`decode_range`](Self::decode_range) and [`decode_piece_against`](Self::decode_piece_against).
    pub fn decode_range_against(
        &self,
        index: usize,
        encoded: &[u8],
        range: Range<usize>,
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let len = self.checked_piece_len(index, encoded)?;
        if range.start > range.end || range.end > len {
            let Range { start, end } = range;
            return Err(CodecError::OutOfRange { start, end, len });
        }
        if out.len() != range.len() {
            return Err(CodecError::WrongBuffer {
                expected: range.len(),
                found: out.len(),
            });
        }
        if encoded.len() == len {
            out.copy_from_slice(&encoded[range]);
            return Ok(());
        }
        match &self.decoder {
            CodecDecoder::Xor(decoder) => decoder.decode_range(encoded, len, range, out),
            CodecDecoder::Field(decoder) => decoder.decode_range(index, encoded, range, base, out),
            _ => {
                let mut whole = [0; PIECE_LEN];
                self.decode_piece(index, encoded, &mut whole[..len])?;
                out.copy_from_slice(&whole[range]);
                Ok(())
            }
        }
    }

    fn checked_piece_len(&self, index: usize, encoded: &[u8]) -> Result<usize, CodecError> {
        let len = self.piece_len(index);
        if len == 0 {
            return Err(CodecError::OutOfRange {
                start: index,
                end: index.saturating_add(1),
                len: self.pieces(),
            });
        }
        if encoded.len() > len {
            return Err(CodecError::DamagedPiece("it is longer than its raw bytes"));
        }
        Ok(len)
    }
}
