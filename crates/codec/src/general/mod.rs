//! Codecs of other crates behind the one trait: Zstandard, LZ4 and Pcodec.
//!
//! Zstandard and LZ4 see bytes. In arrays of numbers, bytes of the same significance are similar to each other, and those within one
//! number are not. So both also exist behind a *shuffle*, which groups bytes by significance. Each piece is a block of its own: 4 KiB is
//! little for Zstandard, whose tables each piece carries again; a dictionary for all pieces would need training longer than encoding takes.
//!
//! ```text
//!  no parameters in the head
//!
//!  a piece          | one frame or block of the other crate |
//!  shuffled, within | edges | byte 0 of each whole element | byte 1 of each | ... |
//! ```
pub(crate) mod pco;
mod shuffle;
mod zstd;

pub use pco::PcoCodec;

use crate::container::head::ContainerHead;
use crate::container::{Codec, CodecId, EncodedContainer, PIECE_LEN, PieceEdges};
use crate::element::ElementLayout;
use crate::error::CodecError;
use std::cell::RefCell;

/// A codec of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteCodec {
    /// Zstandard, at a level.
    Zstd(i32),
    /// LZ4.
    Lz4,
}

/// A codec of bytes, as they are or shuffled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneralCodec {
    /// Which.
    pub codec: ByteCodec,
    /// Whether bytes of equal significance are put together before.
    pub shuffle: bool,
}

/// The bytes themselves, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawCodec;

/// ZstdContexts of the other crates, and a piece that is not shuffled back yet. Kept from one piece to the next.
struct GeneralBuffers {
    zstd: zstd::ZstdContexts,
    lz4: lz4_flex::block::CompressTable,
    shuffled: [u8; PIECE_LEN],
    encoded: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Box<GeneralBuffers>> = RefCell::new(Box::new(GeneralBuffers {
        zstd: zstd::ZstdContexts::default(),
        lz4: lz4_flex::block::CompressTable::default(),
        shuffled: [0; PIECE_LEN],
        encoded: vec![0; lz4_flex::block::get_maximum_output_size(PIECE_LEN)],
    }));
}

impl Codec for RawCodec {
    fn id(&self) -> CodecId {
        CodecId::Raw
    }

    fn encode_pieces(
        &self,
        _layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        out.push_raw_pieces(src);
        Ok(())
    }
}

impl Codec for GeneralCodec {
    fn id(&self) -> CodecId {
        match (self.codec, self.shuffle) {
            (ByteCodec::Zstd(_), false) => CodecId::Zstd,
            (ByteCodec::Zstd(_), true) => CodecId::ShuffleZstd,
            (ByteCodec::Lz4, false) => CodecId::Lz4,
            (ByteCodec::Lz4, true) => CodecId::ShuffleLz4,
        }
    }

    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        BUFFERS.with_borrow_mut(|buffers| {
            let GeneralBuffers {
                zstd,
                lz4,
                shuffled,
                encoded,
            } = &mut **buffers;
            if let ByteCodec::Zstd(level) = self.codec {
                zstd.set_level(level)?;
            }
            for raw in src.chunks(PIECE_LEN) {
                let bytes = if self.shuffle {
                    let shuffled = &mut shuffled[..raw.len()];
                    shuffle_piece(layout, raw, shuffled);
                    shuffled
                } else {
                    raw
                };
                let len = match self.codec {
                    ByteCodec::Zstd(_) => zstd.compress(bytes, &mut encoded[..raw.len()]),
                    ByteCodec::Lz4 => {
                        lz4_flex::block::compress_into_with_table(bytes, encoded, lz4).ok()
                    }
                };
                out.push_piece(raw, |bytes| {
                    bytes.extend_from_slice(&encoded[..len.unwrap_or(0)]);
                    len.is_some()
                });
            }
            Ok(())
        })
    }
}

/// What decoding needs: the head alone says it.
#[derive(Debug)]
pub(crate) struct GeneralDecoder {
    layout: ElementLayout,
    zstd: bool,
    shuffle: bool,
}

impl GeneralDecoder {
    pub fn open(head: &ContainerHead, parameters: &[u8]) -> Result<GeneralDecoder, CodecError> {
        if !parameters.is_empty() {
            return Err(CodecError::DamagedHead("this codec has no parameters"));
        }
        Ok(GeneralDecoder {
            layout: head.layout,
            zstd: matches!(head.codec, CodecId::Zstd | CodecId::ShuffleZstd),
            shuffle: matches!(head.codec, CodecId::ShuffleZstd | CodecId::ShuffleLz4),
        })
    }

    pub fn decode_piece(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        BUFFERS.with_borrow_mut(|buffers| {
            let GeneralBuffers { zstd, shuffled, .. } = &mut **buffers;
            let shuffled = &mut shuffled[..out.len()];
            let bytes: &mut [u8] = if self.shuffle { shuffled } else { &mut *out };
            let len = if self.zstd {
                zstd.decompress(encoded, bytes)
            } else {
                lz4_flex::block::decompress_into(encoded, bytes).ok()
            };
            if len != Some(bytes.len()) {
                return Err(CodecError::DamagedPiece(
                    "it does not decompress to its raw length",
                ));
            }
            if self.shuffle {
                unshuffle_piece(&self.layout, shuffled, out);
            }
            Ok(())
        })
    }
}

/// Puts the bytes of a piece in the order of the grid.
fn shuffle_piece(layout: &ElementLayout, raw: &[u8], out: &mut [u8]) {
    let edges = PieceEdges::of(layout, raw.len());
    let (lead, rest) = raw.split_at(edges.lead);
    let (elements, tail) = rest.split_at(rest.len() - edges.tail);
    let (edge_bytes, planes) = out.split_at_mut(edges.len());
    edge_bytes[..edges.lead].copy_from_slice(lead);
    edge_bytes[edges.lead..].copy_from_slice(tail);
    shuffle::shuffle(layout.element.width(), elements, planes);
}

/// The reverse.
fn unshuffle_piece(layout: &ElementLayout, shuffled: &[u8], out: &mut [u8]) {
    let edges = PieceEdges::of(layout, out.len());
    let (edge_bytes, planes) = shuffled.split_at(edges.len());
    let (lead, rest) = out.split_at_mut(edges.lead);
    let (elements, tail) = rest.split_at_mut(rest.len() - edges.tail);
    lead.copy_from_slice(&edge_bytes[..edges.lead]);
    tail.copy_from_slice(&edge_bytes[edges.lead..]);
    shuffle::unshuffle(layout.element.width(), planes, elements);
}
