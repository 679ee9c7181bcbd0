//! [`FieldCodec`]: the implementation of [`Codec`] for `field`, and encoding a container against an earlier version of it.
use super::encode;
use crate::container::{Codec, CodecId, EncodedContainer, StoredForm};
use crate::element::ElementLayout;
use crate::error::CodecError;

/// Our codec of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldCodec;

impl Codec for FieldCodec {
    fn id(&self) -> CodecId {
        CodecId::Field
    }

    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        encode::encode(layout, src, None, out);
        Ok(())
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
    ) -> Result<StoredForm, CodecError> {
        if base.len() != src.len() {
            return Err(CodecError::WrongBase {
                expected: src.len(),
                found: base.len(),
            });
        }
        let layout = out.begin(CodecId::Field, layout, src.len())?;
        encode::encode(&layout, src, Some(base), out);
        Ok(out.stored_form())
    }
}
