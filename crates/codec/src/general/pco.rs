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
use crate::container::head::ContainerHead;
use crate::container::{
    Codec, CodecId, EncodedContainer, MAX_CONTAINER_LEN, MAX_HEAD_LEN, PIECE_LEN, PieceEdges,
};
use crate::element::{ElementLayout, ElementType};
use crate::error::CodecError;
use half::f16;
use pco::data_types::Number;
use pco::errors::PcoError;
use pco::metadata::DeltaEncoding;
use pco::wrapped::{ChunkDecompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DecompressorScratch, PagingSpec};
use std::cell::RefCell;
use std::fmt;

/// Pcodec at a level, 0 to 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcoCodec {
    /// The level.
    pub level: usize,
}

/// A number of pco made of an element's bytes.
trait PcoNumber: Number + Default {
    fn get(bytes: &[u8]) -> Self;
    fn put(self, bytes: &mut [u8]);
}

macro_rules! element {
    ($type:ty, $bytes:literal) => {
        impl PcoNumber for $type {
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
impl PcoNumber for u16 {
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

impl Codec for PcoCodec {
    fn id(&self) -> CodecId {
        CodecId::Pco
    }

    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        match layout.element {
            ElementType::F32 => self.encode_as::<f32>(layout, src, out),
            ElementType::F64 => self.encode_as::<f64>(layout, src, out),
            ElementType::F16 => self.encode_as::<f16>(layout, src, out),
            ElementType::Bf16 => self.encode_as::<u16>(layout, src, out),
        }
    }
}

impl PcoCodec {
    fn encode_as<T: PcoNumber>(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        let refused = |e: PcoError| CodecError::RefusedSettings(e.into());
        let mut values: Vec<T> = Vec::with_capacity(src.len() / layout.element.width());
        let mut pages = Vec::new();
        for raw in src.chunks(PIECE_LEN) {
            let edges = PieceEdges::of(layout, raw.len());
            let elements = &raw[edges.lead..raw.len() - edges.tail];
            values.extend(elements.chunks_exact(layout.element.width()).map(T::get));
            // Only the last piece can have none; pco wants no empty page.
            pages.extend(Some(edges.elements).filter(|n| *n > 0));
        }
        let page_count = pages.len();
        if page_count == 0 {
            out.push_raw_pieces(src);
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
            let edges = PieceEdges::of(layout, raw.len());
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
pub(crate) struct PcoDecoder {
    layout: ElementLayout,
    chunk: Option<PcoChunk>,
}

enum PcoChunk {
    F32(ChunkDecompressor<f32>),
    F64(ChunkDecompressor<f64>),
    F16(ChunkDecompressor<f16>),
    Bf16(ChunkDecompressor<u16>),
}

impl fmt::Debug for PcoDecoder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("PcoDecoder")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl PcoDecoder {
    pub fn open(head: &ContainerHead, parameters: &[u8]) -> Result<PcoDecoder, CodecError> {
        let elements = head.raw_len / head.layout.element.width();
        let chunk = if parameters.is_empty() {
            None
        } else {
            Some(match head.layout.element {
                ElementType::F32 => PcoChunk::F32(open_chunk(parameters, elements)?),
                ElementType::F64 => PcoChunk::F64(open_chunk(parameters, elements)?),
                ElementType::F16 => PcoChunk::F16(open_chunk(parameters, elements)?),
                ElementType::Bf16 => PcoChunk::Bf16(open_chunk(parameters, elements)?),
            })
        };
        Ok(PcoDecoder {
            layout: head.layout,
            chunk,
        })
    }

    pub fn decode_piece(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let (page, elements) = PieceEdges::of(&self.layout, out.len()).take(encoded, out)?;
        match &self.chunk {
            Some(PcoChunk::F32(chunk)) => take_page(chunk, page, elements),
            Some(PcoChunk::F64(chunk)) => take_page(chunk, page, elements),
            Some(PcoChunk::F16(chunk)) => take_page(chunk, page, elements),
            Some(PcoChunk::Bf16(chunk)) => take_page(chunk, page, elements),
            None => Err(CodecError::DamagedPiece("it is shorter than its raw bytes")),
        }
    }
}

/// Pcodec's number of the mode with a dictionary, in the first 4 bits of a chunk's metadata; the number of values follows in 25 bits.
const DICTIONARY_MODE: u32 = 4;

/// Opens the chunk of a container of so many elements. Pcodec allocates what metadata says before it reads on, up to 256 MiB: no more
/// is let through than a container can have.
fn open_chunk<T: PcoNumber>(
    parameters: &[u8],
    elements: usize,
) -> Result<ChunkDecompressor<T>, CodecError> {
    let damaged = |e: PcoError| CodecError::RefusedHead(e.into());
    let (file, meta) = FileDecompressor::new(parameters).map_err(damaged)?;
    let mode = meta
        .first_chunk()
        .map_or(0, |bits| u32::from_le_bytes(*bits));
    let values = (mode >> 4 & ((1 << 25) - 1)) as usize;
    if mode & 15 == DICTIONARY_MODE && values > elements {
        return Err(CodecError::DamagedHead(
            "pco has more values than the container",
        ));
    }
    let (chunk, rest) = file.chunk_decompressor(meta).map_err(damaged)?;
    if !rest.is_empty() {
        return Err(CodecError::DamagedHead("it is longer than pco's metadata"));
    }
    if let DeltaEncoding::Lookback { config, .. } = &chunk.meta().delta_encoding
        && 1usize
            .checked_shl(config.window_n_log)
            .is_none_or(|window| window > MAX_CONTAINER_LEN)
    {
        return Err(CodecError::DamagedHead(
            "pco looks farther back than a container is long",
        ));
    }
    Ok(chunk)
}

fn take_page<T: PcoNumber>(
    chunk: &ChunkDecompressor<T>,
    page: &[u8],
    elements: &mut [u8],
) -> Result<(), CodecError> {
    let damaged = |e: PcoError| CodecError::RefusedPiece(e.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_of_more_values_than_elements_is_refused_before_it_is_allocated() {
        let mut parameters = Vec::new();
        FileCompressor::default()
            .write_header(&mut parameters)
            .unwrap();
        let header = parameters.len();
        let open = |values: u32, bytes: &mut Vec<u8>| {
            bytes.truncate(header);
            bytes.extend((DICTIONARY_MODE | values << 4).to_le_bytes());
            let opened = open_chunk::<f64>(bytes, 1000);
            match opened.map(drop) {
                Err(CodecError::DamagedHead(why)) => why,
                Err(CodecError::RefusedHead(_)) => "pco refuses it",
                other => panic!("{other:?}"),
            }
        };
        let refused = "pco has more values than the container";
        assert_eq!(open((1 << 25) - 1, &mut parameters), refused);
        assert_eq!(open(1001, &mut parameters), refused);
        assert_ne!(open(1000, &mut parameters), refused);
    }

    #[test]
    fn a_dictionary_of_pco_is_where_it_is_looked_for() {
        let values: Vec<u8> = (0..4096u64)
            .flat_map(|i| {
                let value = (i.wrapping_mul(i) % 7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (f64::from_bits(value >> 2)).to_le_bytes()
            })
            .collect();
        let layout = ElementLayout::plain(ElementType::F64);
        let mut encoded = EncodedContainer::new();
        PcoCodec { level: 8 }
            .encode(&layout, &values, &mut encoded)
            .unwrap();
        let parameters = &encoded.head()[crate::container::head::HEAD_LEN..];
        let (_, meta) = FileDecompressor::new(parameters).unwrap();
        let bits = u32::from_le_bytes(*meta.first_chunk().unwrap());
        let chunk = open_chunk::<f64>(parameters, 4096).unwrap();
        let has_dictionary = matches!(chunk.meta().mode, pco::metadata::Mode::Dict(_));
        assert_eq!(bits & 15 == DICTIONARY_MODE, has_dictionary);
    }
}
