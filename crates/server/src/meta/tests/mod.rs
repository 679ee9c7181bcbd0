//! Tests of the namespace over a few members in one process, with members that stop before any chosen batch.
mod names;
mod net;
