//! Why a container could not be encoded or decoded.
use crate::field::FieldError;
use pco::errors::PcoError;
use thiserror::Error;

/// What the codec itself says of bytes that it refuses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecFailure {
    /// Our codec of fields.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Pcodec.
    #[error(transparent)]
    Pco(#[from] PcoError),
}

/// An error of a codec of containers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    /// More bytes than a container may have.
    #[error("a container of {len} bytes; at most 1 MiB is encoded as one")]
    ContainerTooLong {
        /// How many.
        len: usize,
    },
    /// A head of a later format.
    #[error("the head of the container has version {0}; this version reads 1")]
    UnknownVersion(u8),
    /// A codec that this version does not know.
    #[error("the container was encoded with codec {0}, which this version does not know")]
    UnknownCodec(u8),
    /// A head that no encoder wrote.
    #[error("the head of the container is damaged: {0}")]
    DamagedHead(&'static str),
    /// A piece that no encoder wrote.
    #[error("a piece of the container is damaged: {0}")]
    DamagedPiece(&'static str),
    /// A piece, or bytes of it, beyond the container's.
    #[error("bytes {start} to {end} are asked for, of {len}")]
    OutOfRange {
        /// First byte or piece.
        start: usize,
        /// Behind the last.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// A buffer of the wrong length.
    #[error("the buffer has {found} bytes, not {expected}")]
    WrongBuffer {
        /// Bytes that are decoded.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// The base that a container is coded against has another length than its raw bytes, or was not given.
    #[error("the base has {found} bytes, not {expected}")]
    WrongBase {
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// The base has the right length, but is not what the container was coded against.
    #[error("the base is not the one that the container was coded against")]
    OtherBase,
    /// The codec does not read its parameters in the head.
    #[error("the codec does not read the head of the container")]
    RefusedHead(#[source] CodecFailure),
    /// The codec does not read a piece.
    #[error("the codec does not read a piece of the container")]
    RefusedPiece(#[source] CodecFailure),
    /// The codec does not encode with its settings.
    #[error("the codec does not encode with these settings")]
    RefusedSettings(#[source] CodecFailure),
    /// A codec of another crate refused to encode.
    #[error("the encoder failed: {0}")]
    Encoder(&'static str),
}
