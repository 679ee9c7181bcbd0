//! Pcodec: its chunk's metadata is in the head, a page is a piece.
//!
//! ```text
//!  parameters in the head
//!  | header and chunk metadata of pco; nothing if no piece has a whole element |
//!
//!  a piece
//!  | edges | page of pco |
//! ```
//!
//! bfloat16 is not a type of pco. Its bits are turned into integers of the same order.
use crate::container::head::Head;
use crate::container::{Codec, CodecId, Edges, EncodedContainer, MAX_HEAD_LEN, PIECE_LEN};
use crate::element::{ElementType, Layout};
use crate::error::CodecError;
use half::f16;
use pco::data_types::Number;
use pco::wrapped::{ChunkDecompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DecompressorScratch, PagingSpec};
use std::cell::RefCell;
use std::fmt;

/// Pcodec at a level, 0 to 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pco {
    /// The level.
    pub level: usize,
}

/// A number of pco made of an element's bytes.
trait Element: Number + Default {
    fn get(bytes: &[u8]) -> Self;
    fn put(self, bytes: &mut [u8]);
}

macro_rules! element {
    ($type:ty, $bytes:literal) => {
        impl Element for $type {
            fn get(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(std::array::from_fn::<u8, $bytes, _>(|i| bytes[i]))
            }

            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    };
}
element!(f32, 4);
element!(f64, 8);
element!(f16, 2);

/// bfloat16 for pco: of negative numbers all bits are inverted, of others the sign.
impl Element for u16 {
    fn get(bytes: &[u8]) -> Self {
        let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
        if bits >> 15 == 1 {
            !bits
        } else {
            bits | 1 << 15
        }
    }

    fn put(self, bytes: &mut [u8]) {
        let bits = if self >> 15 == 1 {
            self & !(1 << 15)
        } else {
            !self
        };
        bytes.copy_from_slice(&bits.to_le_bytes());
    }
}

impl Codec for Pco {
    fn id(&self) -> CodecId {
        CodecId::Pco
    }

    fn encode(
        &self,
        layout: &Layout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        out.begin(CodecId::Pco, layout, src.len())?;
        match layout.element {
            ElementType::F32 => self.encode_as::<f32>(layout, src, out),
            ElementType::F64 => self.encode_as::<f64>(layout, src, out),
            ElementType::F16 => self.encode_as::<f16>(layout, src, out),
            ElementType::Bf16 => self.encode_as::<u16>(layout, src, out),
        }
    }
}

impl Pco {
    fn encode_as<T: Element>(
        &self,
        layout: &Layout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        let refused = |_| CodecError::Encoder("pco does not have this level");
        let mut values: Vec<T> = Vec::with_capacity(src.len() / layout.element.width());
        let mut pages = Vec::new();
        for raw in src.chunks(PIECE_LEN) {
            let edges = Edges::of(layout, raw.len());
            let elements = &raw[edges.lead..raw.len() - edges.tail];
            values.extend(elements.chunks_exact(layout.element.width()).map(T::get));
            // Only the last piece can have none; pco wants no empty page.
            pages.extend(Some(edges.elements).filter(|n| *n > 0));
        }
        let page_count = pages.len();
        if page_count == 0 {
            src.chunks(PIECE_LEN)
                .for_each(|raw| out.push_piece(raw, |_| false));
            return Ok(());
        }
        let config = ChunkConfig::default()
            .with_compression_level(self.level)
            .with_paging_spec(PagingSpec::Exact(pages));
        let file = FileCompressor::default();
        let mut chunk = file.chunk_compressor(&values, &config).map_err(refused)?;
        let head = out.head_mut();
        let head_len = head.len();
        file.write_header(&mut *head).map_err(refused)?;
        chunk.write_meta(&mut *head).map_err(refused)?;
        let fits = head.len() <= MAX_HEAD_LEN;
        if !fits {
            head.truncate(head_len);
        }
        for (page, raw) in src.chunks(PIECE_LEN).enumerate() {
            let edges = Edges::of(layout, raw.len());
            out.push_piece(raw, |bytes| {
                edges.put(raw, bytes);
                fits && page < page_count && chunk.write_page(page, bytes).is_ok()
            });
        }
        Ok(())
    }
}

thread_local! {
    static SCRATCH: RefCell<DecompressorScratch> = RefCell::default();
}

/// The chunk of a container, of its type; `None` if no piece is encoded.
pub(crate) struct Decoder {
    layout: Layout,
    chunk: Option<Chunk>,
}

enum Chunk {
    F32(ChunkDecompressor<f32>),
    F64(ChunkDecompressor<f64>),
    F16(ChunkDecompressor<f16>),
    Bf16(ChunkDecompressor<u16>),
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    pub fn open(head: &Head, parameters: &[u8]) -> Result<Decoder, CodecError> {
        let chunk = if parameters.is_empty() {
            None
        } else {
            Some(match head.layout.element {
                ElementType::F32 => Chunk::F32(open_chunk(parameters)?),
                ElementType::F64 => Chunk::F64(open_chunk(parameters)?),
                ElementType::F16 => Chunk::F16(open_chunk(parameters)?),
                ElementType::Bf16 => Chunk::Bf16(open_chunk(parameters)?),
            })
        };
        Ok(Decoder {
            layout: head.layout,
            chunk,
        })
    }

    pub fn decode_piece(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let (page, elements) = Edges::of(&self.layout, out.len()).take(encoded, out)?;
        match &self.chunk {
            Some(Chunk::F32(chunk)) => take_page(chunk, page, elements),
            Some(Chunk::F64(chunk)) => take_page(chunk, page, elements),
            Some(Chunk::F16(chunk)) => take_page(chunk, page, elements),
            Some(Chunk::Bf16(chunk)) => take_page(chunk, page, elements),
            None => Err(CodecError::DamagedPiece("it is shorter than its raw bytes")),
        }
    }
}

fn open_chunk<T: Element>(parameters: &[u8]) -> Result<ChunkDecompressor<T>, CodecError> {
    let damaged = |_| CodecError::DamagedHead("pco does not read its metadata");
    let (file, meta) = FileDecompressor::new(parameters).map_err(damaged)?;
    let (chunk, rest) = file.chunk_decompressor(meta).map_err(damaged)?;
    if !rest.is_empty() {
        return Err(CodecError::DamagedHead("it is longer than pco's metadata"));
    }
    Ok(chunk)
}

fn take_page<T: Element>(
    chunk: &ChunkDecompressor<T>,
    page: &[u8],
    elements: &mut [u8],
) -> Result<(), CodecError> {
    let damaged = |_| CodecError::DamagedPiece("pco does not read its page");
    let size = size_of::<T>();
    let n = elements.len() / size;
    let mut values = [T::default(); PIECE_LEN / 2];
    let values = &mut values[..n];
    SCRATCH.with_borrow_mut(|scratch| {
        let mut page = chunk
            .page_decompressor_with_scratch(page, n, scratch)
            .map_err(damaged)?;
        page.read(values).map_err(damaged)
    })?;
    for (value, bytes) in values.iter().zip(elements.chunks_exact_mut(size)) {
        value.put(bytes);
    }
    Ok(())
}
