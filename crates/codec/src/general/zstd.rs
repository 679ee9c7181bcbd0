//! Zstandard contexts that are used again. Frames carry neither checksum nor length: the container's record has both.
use crate::error::CodecError;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

/// One for each direction, made when it is needed first.
#[derive(Default)]
pub(super) struct ZstdContexts {
    compress: Option<CCtx<'static>>,
    decompress: Option<DCtx<'static>>,
}

impl ZstdContexts {
    /// The level of what is compressed next.
    pub fn set_level(&mut self, level: i32) -> Result<(), CodecError> {
        let context = match &mut self.compress {
            Some(context) => context,
            None => self
                .compress
                .insert(CCtx::try_create().ok_or(CodecError::Encoder("zstd has no memory"))?),
        };
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            context
                .set_parameter(parameter)
                .map_err(|_| CodecError::Encoder("zstd does not have this level"))?;
        }
        Ok(())
    }

    /// Length of the frame; `None` if it does not fit in `out`, or no level was set.
    pub fn compress(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        let context = self.compress.as_mut()?;
        let len = context.compress2(out, bytes).ok();
        if len.is_none() {
            // A frame that did not fit is still begun, and parameters could not be set.
            context.reset(ResetDirective::SessionOnly).ok()?;
        }
        len
    }

    /// Length of what the frames hold; `None` if they are damaged or hold more than `out`.
    pub fn decompress(&mut self, frames: &[u8], out: &mut [u8]) -> Option<usize> {
        let context = match &mut self.decompress {
            Some(context) => context,
            None => self.decompress.insert(DCtx::try_create()?),
        };
        context.decompress(out, frames).ok()
    }
}
