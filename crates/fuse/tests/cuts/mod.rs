//! What the tests of power cuts share.
pub mod history;
pub mod rig;
