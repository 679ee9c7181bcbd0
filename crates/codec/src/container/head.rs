//! The head of a container: all that decoding a piece needs beside the piece.
//!
//! ```text
//!  | version 1 | codec 1 | element 1 | phase 1 | raw length 4 | stride 4 | row 4 | parameters of the codec ... |
//!
//!  version     of this head and of all that the codec writes below it
//!  codec       which codec reads the rest
//!  element     0 f32, 1 f64, 2 bf16, 3 f16
//!  phase       bytes before the first whole element, of every piece
//!  raw length  says how many pieces there are, and how long the last is
//!  stride, row of the layout that it was encoded with
//! ```
//!
//! Integers are little-endian. Who stores the head keeps its length and a checksum.
use super::{MAX_CONTAINER_LEN, MAX_HEAD_LEN};
use crate::element::{ElementLayout, ElementType};
use crate::error::CodecError;

/// The version of the format.
const VERSION: u8 = 1;
/// Bytes before the codec's parameters.
pub(crate) const HEAD_LEN: usize = 16;

/// Which codec a container is encoded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CodecId {
    /// The bytes themselves.
    Raw = 0,
    /// XOR with reference points, of the paper.
    Xor = 1,
    /// Our codec of fields.
    Field = 2,
    /// Zstandard.
    Zstd = 3,
    /// Bytes of equal significance together, then Zstandard.
    ShuffleZstd = 4,
    /// LZ4 blocks.
    Lz4 = 5,
    /// Bytes of equal significance together, then LZ4.
    ShuffleLz4 = 6,
    /// Pcodec.
    Pco = 7,
}

impl CodecId {
    /// Every codec.
    pub const ALL: [CodecId; 8] = [
        Self::Raw,
        Self::Xor,
        Self::Field,
        Self::Zstd,
        Self::ShuffleZstd,
        Self::Lz4,
        Self::ShuffleLz4,
        Self::Pco,
    ];

    /// Its name in messages and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Xor => "xor",
            Self::Field => "field",
            Self::Zstd => "zstd",
            Self::ShuffleZstd => "shuffle-zstd",
            Self::Lz4 => "lz4",
            Self::ShuffleLz4 => "shuffle-lz4",
            Self::Pco => "pco",
        }
    }

    fn from_byte(byte: u8) -> Option<CodecId> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// What every head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContainerHead {
    pub codec: CodecId,
    pub layout: ElementLayout,
    pub raw_len: usize,
}

impl ContainerHead {
    /// The head of a container of so many raw bytes. The layout becomes what it means.
    pub fn new(
        codec: CodecId,
        layout: &ElementLayout,
        raw_len: usize,
    ) -> Result<ContainerHead, CodecError> {
        if raw_len > MAX_CONTAINER_LEN {
            return Err(CodecError::ContainerTooLong { len: raw_len });
        }
        let layout = ElementLayout {
            stride: layout.stride.max(1),
            phase: layout.phase % layout.element.width() as u32,
            ..*layout
        };
        Ok(ContainerHead {
            codec,
            layout,
            raw_len,
        })
    }

    /// Appends the head without the codec's parameters.
    pub fn put(&self, out: &mut Vec<u8>) {
        let layout = &self.layout;
        out.extend([
            VERSION,
            self.codec as u8,
            layout.element.code(),
            // Less than 8.
            layout.phase as u8,
        ]);
        // At most `MAX_CONTAINER_LEN`.
        out.extend((self.raw_len as u32).to_le_bytes());
        out.extend(layout.stride.to_le_bytes());
        out.extend(layout.row.to_le_bytes());
    }

    /// Reads a head, and returns the codec's parameters with it.
    pub fn take(bytes: &[u8]) -> Result<(ContainerHead, &[u8]), CodecError> {
        let Some((fixed, parameters)) = bytes.split_first_chunk::<HEAD_LEN>() else {
            return Err(CodecError::DamagedHead("it is cut off"));
        };
        if bytes.len() > MAX_HEAD_LEN {
            return Err(CodecError::DamagedHead("it is too long"));
        }
        let [version, codec, element, phase, len, stride, row] = fields(fixed);
        if version != u32::from(VERSION) {
            return Err(CodecError::UnknownVersion(version as u8));
        }
        let codec = CodecId::from_byte(codec as u8).ok_or(CodecError::UnknownCodec(codec as u8))?;
        let element = ElementType::from_code(element as u8)
            .ok_or(CodecError::DamagedHead("no such type of element"))?;
        let layout = ElementLayout {
            element,
            stride,
            phase,
            row,
        };
        let head = ContainerHead::new(codec, &layout, len as usize)?;
        if head.layout != layout {
            return Err(CodecError::DamagedHead("its layout cannot be"));
        }
        Ok((head, parameters))
    }
}

/// The numbers of the grid, in its order.
fn fields(fixed: &[u8; HEAD_LEN]) -> [u32; 7] {
    let word =
        |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let [a, b, c, d] = [fixed[0], fixed[1], fixed[2], fixed[3]].map(u32::from);
    [a, b, c, d, word(4), word(8), word(12)]
}
