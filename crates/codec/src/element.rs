//! What the bytes of a container are: a type of number, the stride of records, where the first whole number begins.

/// A type of floating-point number, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE 754 binary16.
    F16,
}

impl ElementType {
    /// Every type.
    pub const ALL: [ElementType; 4] = [Self::F32, Self::F64, Self::Bf16, Self::F16];

    /// Bytes of one.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// How a container's bytes are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Their type.
    pub element: ElementType,
    /// Elements from one to the next of the same kind: those of a record; at least 1.
    pub stride: u32,
    /// Bytes before the first whole element; less than an element.
    pub phase: u8,
    /// Elements of a row; 0 if not known.
    pub row: u32,
}
