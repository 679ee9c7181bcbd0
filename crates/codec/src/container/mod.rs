//! A container: up to 1 MiB of one file, encoded so that every piece of it decodes alone.
//!
//! ```text
//!  raw      | piece 0, 4 KiB | piece 1, 4 KiB | ... | last piece, 1 byte to 4 KiB |
//!
//!  encoded  | head | piece 0 | piece 1 | ... | last piece |
//! ```
//!
//! Who stores a container keeps the length and a checksum of the head and of each encoded piece. To read one value it reads the
//! head, which is parsed once and kept ([`OpenedContainer`]), and one piece. Pieces need nothing of each other, so each can be freed alone.
//!
//! Invariants:
//! - An encoded piece is shorter than its raw bytes, or it is these bytes: equal length means raw, for every codec. So nothing
//!   grows but by the head, and an incompressible piece costs nothing to decode.
//! - What is encoded comes back exactly, whatever the layout says of it. Other bytes are refused or decode to some bytes.
//! - Opening and decoding allocate no more than the head's own length and the raw length in it, which is at most 1 MiB, allow.
pub(crate) mod edges;
pub(crate) mod head;

pub use crate::field::FieldCodec;
pub(crate) use edges::PieceEdges;
pub use head::CodecId;

use crate::element::ElementLayout;
use crate::error::CodecError;
use crate::{field, general, xor};
use head::ContainerHead;
use std::fmt::Debug;
use std::ops::Range;

/// The most raw bytes of a container.
pub const MAX_CONTAINER_LEN: usize = 1 << 20;
/// Raw bytes of every piece but the last.
pub const PIECE_LEN: usize = 4096;
/// The most bytes of a head.
pub const MAX_HEAD_LEN: usize = 1 << 16;

/// Pieces of a container of so many raw bytes.
pub const fn piece_count(raw_len: usize) -> usize {
    raw_len.div_ceil(PIECE_LEN)
}

/// A way to encode containers. What it writes, [`OpenedContainer`] reads: the head says which codec that is.
pub trait Codec: Debug + Send + Sync {
    /// Which one it is.
    fn id(&self) -> CodecId;

    /// No container of so many raw bytes becomes longer, with its head.
    fn max_encoded_len(&self, _layout: &ElementLayout, raw_len: usize) -> usize {
        MAX_HEAD_LEN + raw_len
    }

    /// Encodes a container into `out`, whose content is replaced. [`StoredForm::Raw`] says that the container is not shorter than its
    /// raw bytes: who can mark a container as raw stores these, without a head. `out` can be decoded in any case.
    ///
    /// # Errors
    ///
    /// More than [`MAX_CONTAINER_LEN`] bytes, or settings that the codec refuses.
    fn encode(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<StoredForm, CodecError> {
        let layout = out.begin(self.id(), layout, src.len())?;
        self.encode_pieces(&layout, src, out)?;
        Ok(out.stored_form())
    }

    /// Appends the parameters and all pieces to a container that has its head. [`encode`](Self::encode) calls it, with a layout that
    /// means what it says and no more than [`MAX_CONTAINER_LEN`] bytes.
    ///
    /// # Errors
    ///
    /// Settings that the codec refuses.
    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError>;
}

/// What to store of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredForm {
    /// Head and pieces.
    Encoded,
    /// The raw bytes alone: they are not longer.
    Raw,
}

/// An encoded container: its head, and its pieces one behind the other. Keeps its memory from one container to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedContainer {
    head: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    raw_len: usize,
}

impl EncodedContainer {
    /// An empty one.
    pub fn new() -> EncodedContainer {
        EncodedContainer::default()
    }

    /// The head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// All pieces, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each piece ends in [`bytes`](Self::bytes).
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Number of pieces.
    pub fn pieces(&self) -> usize {
        self.ends.len()
    }

    /// A piece of those there are.
    pub fn piece(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// Bytes of the head and all pieces.
    pub fn encoded_len(&self) -> usize {
        self.head.len() + self.bytes.len()
    }

    /// Raw bytes of the container.
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// What to store.
    pub fn stored_form(&self) -> StoredForm {
        match self.encoded_len() < self.raw_len {
            true => StoredForm::Encoded,
            false => StoredForm::Raw,
        }
    }

    /// Bytes that are stored, without a head if these are raw.
    pub fn stored_len(&self) -> usize {
        self.encoded_len().min(self.raw_len)
    }

    /// Makes it a container without pieces yet; returns the layout as the head has it.
    pub(crate) fn begin(
        &mut self,
        codec: CodecId,
        layout: &ElementLayout,
        raw_len: usize,
    ) -> Result<ElementLayout, CodecError> {
        let head = ContainerHead::new(codec, layout, raw_len)?;
        self.head.clear();
        self.raw_len = raw_len;
        head.put(&mut self.head);
        self.clear_pieces();
        Ok(head.layout)
    }

    /// Takes back the parameters and all pieces.
    pub(crate) fn clear_pieces(&mut self) {
        self.head.truncate(head::HEAD_LEN);
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends all pieces as they are.
    pub(crate) fn push_raw_pieces(&mut self, src: &[u8]) {
        for raw in src.chunks(PIECE_LEN) {
            self.push_piece(raw, |_| false);
        }
    }

    /// The head, to which a codec appends its parameters.
    pub(crate) fn head_mut(&mut self) -> &mut Vec<u8> {
        &mut self.head
    }

    /// Appends a piece that `encode` appends to what it gets. Of what is not shorter than `raw`, that is taken instead; also if
    /// `encode` gives up with `false`.
    pub(crate) fn push_piece(&mut self, raw: &[u8], encode: impl FnOnce(&mut Vec<u8>) -> bool) {
        let encoded = encode(self.piece_mut());
        self.end_piece(raw, encoded);
    }

    /// The bytes of all pieces, to which the next piece is appended; then [`end_piece`](Self::end_piece) is called.
    pub(crate) fn piece_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a piece whose bytes were appended, if it was `encoded`.
    pub(crate) fn end_piece(&mut self, raw: &[u8], encoded: bool) {
        let start = self.ends.last().map_or(0, |end| *end as usize);
        if !encoded || self.bytes.len() - start >= raw.len() {
            self.bytes.truncate(start);
            self.bytes.extend_from_slice(raw);
        }
        // Pieces together are no longer than the container.
        self.ends.push(self.bytes.len() as u32);
    }
}

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
