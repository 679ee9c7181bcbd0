//! The codec of [`field`](crate::field) as a codec of containers: its head is the parameters, its spans are the pieces.
//!
//! A span that `field` leaves raw has a mark of one byte, which a piece does not need: equal length means raw.
use super::head::ContainerHead;
use super::{Codec, CodecId, EncodedContainer, MAX_HEAD_LEN, PIECE_LEN};
use crate::element::ElementLayout;
use crate::error::CodecError;
use crate::field::{self, FieldError};
use crate::general::RawCodec;
use std::cell::RefCell;
use std::ops::Range;

/// Our codec of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldCodec;

thread_local! {
    /// What is encoded last, before it is a container.
    static ENCODED: RefCell<field::Encoded> = RefCell::default();
}

impl Codec for FieldCodec {
    fn id(&self) -> CodecId {
        CodecId::Field
    }

    fn encode(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        encode_with(layout, src, out, |encoded| {
            field::encode(layout, src, encoded)
        })
    }
}

impl FieldCodec {
    /// Encodes a container against `base`, as many bytes, which are needed to decode it: those of an earlier checkpoint.
    ///
    /// # Errors
    ///
    /// As [`encode`](Codec::encode), and a base of another length.
    pub fn encode_against(
        &self,
        base: &[u8],
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        if base.len() != src.len() {
            return Err(CodecError::WrongBase {
                expected: src.len(),
                found: base.len(),
            });
        }
        encode_with(layout, src, out, |encoded| {
            field::encode_against(base, layout, src, encoded)
        })
    }
}

fn encode_with(
    layout: &ElementLayout,
    src: &[u8],
    out: &mut EncodedContainer,
    encode: impl FnOnce(&mut field::Encoded) -> Result<(), FieldError>,
) -> Result<(), CodecError> {
    out.begin(CodecId::Field, layout, src.len())?;
    ENCODED.with_borrow_mut(|encoded| {
        encode(encoded).map_err(|_| CodecError::Encoder("field refuses the container"))?;
        if out.head().len() + encoded.head.len() > MAX_HEAD_LEN {
            return RawCodec.encode(layout, src, out);
        }
        out.head_mut().extend_from_slice(&encoded.head);
        for (k, raw) in src.chunks(PIECE_LEN).enumerate() {
            out.push_piece(raw, |bytes| {
                bytes.extend_from_slice(encoded.span(k));
                true
            });
        }
        Ok(())
    })
}

/// Parses the head of `field`.
pub(super) fn open(
    head: &ContainerHead,
    parameters: &[u8],
) -> Result<field::FieldDecoder, CodecError> {
    let opened = field::FieldDecoder::parse(parameters)
        .map_err(|_| CodecError::DamagedHead("field does not read its parameters"))?;
    if opened.raw_len() != head.raw_len {
        return Err(CodecError::DamagedHead(
            "field has another length than the container",
        ));
    }
    if opened
        .element()
        .is_some_and(|element| element != head.layout.element)
    {
        return Err(CodecError::DamagedHead("field has numbers of another type"));
    }
    Ok(opened)
}

/// Decodes some bytes of a span that is not raw.
pub(super) fn decode_range(
    opened: &field::FieldDecoder,
    index: usize,
    encoded: &[u8],
    range: Range<usize>,
    base: &[u8],
    out: &mut [u8],
) -> Result<(), CodecError> {
    let needed = match opened.has_base() {
        true => opened.span_len(index),
        false => 0,
    };
    // A base that is given but not needed is what callers have who do not look.
    let base = if needed == 0 { &[] } else { base };
    if base.len() != needed {
        return Err(CodecError::WrongBase {
            expected: needed,
            found: base.len(),
        });
    }
    opened
        .decode_range_against(encoded, index, range, base, out)
        .map_err(|_| CodecError::DamagedPiece("field does not read its span"))
}
