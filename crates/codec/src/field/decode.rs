//! Containers whose head is parsed, spans of which are decoded.
use super::FieldError;
use super::decode_span::SpanJob;
use super::head::{self, Head, Parsed};
use super::lane_decoder::LaneDecoder;
use super::span::{CONSTANT, Edges, RAW, SPAN};
use crate::element::{ElementType, Word};
use std::ops::Range;

/// A container whose head is parsed.
pub struct Opened {
    raw_len: usize,
    encoded: Option<Box<Codes>>,
}

pub(super) struct Codes {
    pub(super) element: ElementType,
    phase: usize,
    pub(super) model: head::Model,
    pub(super) reference_bits: u32,
    typed: Typed,
}

enum Typed {
    Bits16(Box<Decoder<i16>>),
    Bits32(Box<Decoder<i32>>),
    Bits64(Box<Decoder<i64>>),
}

pub(super) struct Decoder<T> {
    pub(super) lanes: LaneDecoder<T>,
    pub(super) dictionary: Vec<T>,
}

impl<T: Word> Decoder<T> {
    fn new(head: &Head) -> Result<Decoder<T>, FieldError> {
        let model = &head.model;
        let lanes =
            LaneDecoder::new(model.map, model.contexts, &head.lengths).ok_or(FieldError::Code)?;
        let dictionary = match &head.dictionary {
            Some(packed) => packed.unpack()?,
            None => Vec::new(),
        };
        Ok(Decoder { lanes, dictionary })
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let codes = self.encoded.as_ref();
        f.debug_struct("Opened")
            .field("raw_len", &self.raw_len)
            .field("element", &codes.map(|codes| codes.element))
            .field("model", &codes.map(|codes| codes.model))
            .finish()
    }
}

impl Opened {
    /// Parses a head.
    ///
    /// # Errors
    /// If it is none, or of a later version.
    pub fn parse(head: &[u8]) -> Result<Opened, FieldError> {
        let head = match Head::parse(head)? {
            Parsed::Raw(raw_len) => {
                return Ok(Opened {
                    raw_len,
                    encoded: None,
                });
            }
            Parsed::Encoded(head) => head,
        };
        let typed = match head.element.width() {
            2 => Typed::Bits16(Box::new(Decoder::new(&head)?)),
            4 => Typed::Bits32(Box::new(Decoder::new(&head)?)),
            _ => Typed::Bits64(Box::new(Decoder::new(&head)?)),
        };
        let codes = Codes {
            element: head.element,
            phase: head.phase,
            model: head.model,
            reference_bits: head.reference_bits(),
            typed,
        };
        Ok(Opened {
            raw_len: head.raw_len,
            encoded: Some(Box::new(codes)),
        })
    }

    /// Raw bytes of the container.
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// How many spans there are.
    pub fn spans(&self) -> usize {
        head::spans(self.raw_len)
    }

    /// Raw bytes of a span; 0 if there is none of this index.
    pub fn span_len(&self, index: usize) -> usize {
        self.raw_len
            .saturating_sub(index.saturating_mul(SPAN))
            .min(SPAN)
    }

    /// The type of the elements; `None` if the spans are raw.
    pub fn element(&self) -> Option<ElementType> {
        self.encoded.as_ref().map(|codes| codes.element)
    }

    /// Whether spans are decoded against a base.
    pub fn has_base(&self) -> bool {
        let codes = self.encoded.as_ref();
        codes.is_some_and(|codes| codes.model.source.has_base())
    }

    /// Decodes a span. `out` has the length of the raw span.
    ///
    /// # Errors
    /// If the span is damaged, or `out` or `index` is wrong; `out` then has any bytes.
    pub fn decode_span(&self, span: &[u8], index: usize, out: &mut [u8]) -> Result<(), FieldError> {
        self.decode_span_against(span, index, &[], out)
    }

    /// Decodes a span of a container that may have a base. `base` are the bytes of the base at the place of the span; nothing if
    /// there is none.
    ///
    /// # Errors
    /// As [`decode_span`](Self::decode_span).
    pub fn decode_span_against(
        &self,
        span: &[u8],
        index: usize,
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        self.decode_range_against(span, index, 0..self.span_len(index), base, out)
    }

    /// Decodes some bytes of a span. `out` has the length of the range.
    ///
    /// # Errors
    /// As [`decode_span`](Self::decode_span).
    pub fn decode_range(
        &self,
        span: &[u8],
        index: usize,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        self.decode_range_against(span, index, range, &[], out)
    }

    /// Decodes some bytes of a span of a container that may have a base. `base` are the bytes of the base at the place of the
    /// whole span; nothing if there is none.
    ///
    /// # Errors
    /// As [`decode_span`](Self::decode_span).
    pub fn decode_range_against(
        &self,
        span: &[u8],
        index: usize,
        range: Range<usize>,
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let len = self.span_len(index);
        if range.start > range.end || range.end > len || range.len() != out.len() || len == 0 {
            return Err(FieldError::Range);
        }
        let Some(codes) = &self.encoded else {
            if span.len() != len {
                return Err(FieldError::Span);
            }
            out.copy_from_slice(&span[range]);
            return Ok(());
        };
        if codes.model.source.has_base() && base.len() != len {
            return Err(FieldError::Base);
        }
        let job = SpanJob {
            codes,
            span,
            base,
            edges: Edges::new(len, codes.phase, codes.element.width()),
        };
        match (span.first(), &codes.typed) {
            (Some(&RAW), _) => job.raw(range, out),
            (Some(&CONSTANT), _) => job.constant(range, out),
            (_, Typed::Bits16(decoder)) => super::dispatch::decode(&job, decoder, range, out),
            (_, Typed::Bits32(decoder)) => super::dispatch::decode(&job, decoder, range, out),
            (_, Typed::Bits64(decoder)) => super::dispatch::decode(&job, decoder, range, out),
        }
    }
}
