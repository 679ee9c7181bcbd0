//! Tests of `files` over several members: a small service without fabric, delegate and data plane.
//!
//! Fault model: a request or a reply is lost (the asker sees a deadline); a member is cut off at its n-th step (that step
//! and all later ones fail, as if the process had died there) and restarted from its store; a member is unreachable.
mod commits;
mod cuts;
mod disk;
mod faults;
mod histories;
mod lost_bytes;
mod opens;
mod owners;
mod pattern_damage;
mod pattern_histories;
mod pattern_sizes;
mod patterned;
mod receipts;
mod removal;
mod world;

pub(super) use faults::Faults;
