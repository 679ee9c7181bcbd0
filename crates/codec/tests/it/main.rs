//! The codecs against changed bytes.

mod fuzz;
