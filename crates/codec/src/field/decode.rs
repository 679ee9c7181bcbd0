//! Containers whose head is parsed, spans of which are decoded.
use super::FieldError;
use super::decode_span::SpanJob;
use super::head::{self, FieldParameters, ParsedHead};
use super::lane_decoder::LaneDecoder;
use super::span::{CONSTANT, RAW, SPAN, SpanEdges};
use crate::element::{ElementType, Word};
use std::ops::Range;

/// A container whose head is parsed.
pub struct FieldDecoder {
    raw_len: usize,
    encoded: Option<Box<OpenedModel>>,
}

pub(super) struct OpenedModel {
    pub(super) element: ElementType,
    phase: usize,
    pub(super) model: head::SymbolModel,
    pub(super) reference_bits: u32,
    typed: TypedDecoder,
}

enum TypedDecoder {
    Bits16(Box<WordDecoder<i16>>),
    Bits32(Box<WordDecoder<i32>>),
    Bits64(Box<WordDecoder<i64>>),
}

pub(super) struct WordDecoder<T> {
    pub(super) lanes: LaneDecoder<T>,
    pub(super) dictionary: Vec<T>,
}

impl<T: Word> WordDecoder<T> {
    fn new(head: &FieldParameters) -> Result<WordDecoder<T>, FieldError> {
        let model = &head.model;
        let lanes =
            LaneDecoder::new(model.map, model.contexts, &head.lengths).ok_or(FieldError::Code)?;
        let dictionary = match &head.dictionary {
            Some(packed) => packed.unpack()?,
            None => Vec::new(),
        };
        Ok(WordDecoder { lanes, dictionary })
    }
}

impl std::fmt::Debug for FieldDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let codes = self.encoded.as_ref();
        f.debug_struct("FieldDecoder")
            .field("raw_len", &self.raw_len)
            .field("element", &codes.map(|codes| codes.element))
            .field("model", &codes.map(|codes| codes.model))
            .finish()
    }
}

impl FieldDecoder {
    /// Parses a head.
    ///
    /// # Errors
    /// If it is none, or of a later version.
    pub fn parse(head: &[u8]) -> Result<FieldDecoder, FieldError> {
        let head = match FieldParameters::parse(head)? {
            ParsedHead::Raw(raw_len) => {
                return Ok(FieldDecoder {
                    raw_len,
                    encoded: None,
                });
            }
            ParsedHead::Encoded(head) => head,
        };
        let typed = match head.element.width() {
            2 => TypedDecoder::Bits16(Box::new(WordDecoder::new(&head)?)),
            4 => TypedDecoder::Bits32(Box::new(WordDecoder::new(&head)?)),
            _ => TypedDecoder::Bits64(Box::new(WordDecoder::new(&head)?)),
        };
        let codes = OpenedModel {
            element: head.element,
            phase: head.phase,
            model: head.model,
            reference_bits: head.reference_bits(),
            typed,
        };
        Ok(FieldDecoder {
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
            edges: SpanEdges::new(len, codes.phase, codes.element.width()),
        };
        match (span.first(), &codes.typed) {
            (Some(&RAW), _) => job.raw(range, out),
            (Some(&CONSTANT), _) => job.constant(range, out),
            (_, TypedDecoder::Bits16(decoder)) => {
                super::dispatch::decode(&job, decoder, range, out)
            }
            (_, TypedDecoder::Bits32(decoder)) => {
                super::dispatch::decode(&job, decoder, range, out)
            }
            (_, TypedDecoder::Bits64(decoder)) => {
                super::dispatch::decode(&job, decoder, range, out)
            }
        }
    }
}
