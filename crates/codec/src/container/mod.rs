//! A container: up to 1 MiB of one file, encoded so that every piece of it decodes alone.
//!
//! ```text
//!  raw      | piece 0, 4 KiB | piece 1, 4 KiB | ... | last piece, 1 byte to 4 KiB |
//!
//!  encoded  | head | piece 0 | piece 1 | ... | last piece |
//! ```
//!
//! Who stores a container keeps the length and a checksum of the head and of each encoded piece. To read one value it reads the
//! head, which is parsed once and kept ([`OpenedContainer`](crate::OpenedContainer)), and one piece. Pieces need nothing of each other, so each can be freed alone.
//!
//! Invariants:
//! - An encoded piece is shorter than its raw bytes, or it is these bytes: equal length means raw, for every codec. So nothing
//!   grows but by the head, and an incompressible piece costs nothing to decode.
//! - What is encoded comes back exactly, whatever the layout says of it. Other bytes are refused or decode to some bytes.
//! - Opening and decoding allocate no more than the head's own length and the raw length in it, which is at most 1 MiB, allow.
pub(crate) mod edges;
pub(crate) mod head;

pub(crate) use edges::PieceEdges;
pub use head::CodecId;

use crate::element::ElementLayout;
use crate::error::CodecError;
use head::ContainerHead;
use std::fmt::Debug;

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

/// A way to encode containers. What it writes, [`OpenedContainer`](crate::OpenedContainer) reads: the head says which codec that is.
pub trait Codec: Debug + Send + Sync {
    /// Which one it is.
    fn id(&self) -> CodecId;

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
