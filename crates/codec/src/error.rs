//! Why a container could not be encoded or decoded.
use thiserror::Error;

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
    /// A codec of another crate refused to encode.
    #[error("the encoder failed: {0}")]
    Encoder(&'static str),
}
