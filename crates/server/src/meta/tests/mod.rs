//! Tests of the namespace over a few members in one process, with members that stop before any chosen batch.
mod attrs;
mod between;
mod crossing;
mod cuts;
mod faults;
mod histories;
mod names;
mod net;
mod numbers;
mod owners;
mod peers_down;
mod power_cuts;
mod renames;
mod xattrs;
