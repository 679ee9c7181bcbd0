//! What the tests of power cuts share.
pub mod rig;
