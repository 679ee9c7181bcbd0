//! The edges of a piece: bytes that are no whole element.
use crate::element::ElementLayout;
use crate::error::CodecError;
use std::ops::Range;

/// How a piece is divided: bytes before the first whole element, whole elements, and what is left of the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceEdges {
    pub lead: usize,
    pub elements: usize,
    pub tail: usize,
    /// Bytes of the piece.
    pub raw_len: usize,
}

impl PieceEdges {
    /// Those of a piece of so many raw bytes. Every piece has the same phase: pieces are multiples of all element sizes.
    pub fn of(layout: &ElementLayout, raw_len: usize) -> PieceEdges {
        let size = layout.element.width();
        let lead = (layout.phase as usize).min(raw_len);
        let elements = (raw_len - lead) / size;
        PieceEdges {
            lead,
            elements,
            tail: raw_len - lead - elements * size,
            raw_len,
        }
    }

    /// Where the whole elements are.
    pub fn range(&self) -> Range<usize> {
        self.lead..self.raw_len - self.tail
    }

    /// Bytes that are no whole element.
    pub fn len(&self) -> usize {
        self.lead + self.tail
    }

    /// Appends the bytes of both edges, and returns the elements.
    pub fn put<'a>(&self, raw: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let (lead, rest) = raw.split_at(self.lead);
        let (elements, tail) = rest.split_at(rest.len() - self.tail);
        out.extend_from_slice(lead);
        out.extend_from_slice(tail);
        elements
    }

    /// Copies the edges from before the encoded elements, and returns these, and where elements go.
    pub fn take<'a, 'b>(
        &self,
        encoded: &'a [u8],
        out: &'b mut [u8],
    ) -> Result<(&'a [u8], &'b mut [u8]), CodecError> {
        let Some((edges, rest)) = encoded.split_at_checked(self.len()) else {
            return Err(CodecError::DamagedPiece("it ends within an edge"));
        };
        let (lead, out) = out.split_at_mut(self.lead);
        let (elements, tail) = out.split_at_mut(out.len() - self.tail);
        lead.copy_from_slice(&edges[..self.lead]);
        tail.copy_from_slice(&edges[self.lead..]);
        Ok((rest, elements))
    }
}
