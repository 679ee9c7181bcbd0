//! The numbers that name things: members, fids, logs.
use serde::{Deserialize, Serialize};
use std::fmt;

/// A store's permanent number in its service.
pub type Member = u16;

/// A 64-bit file id: the owner's member number (16 bits), then a counter (48 bits). Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid(pub u64);

impl Fid {
    /// The root directory: member 0's first fid, and FUSE's root inode number.
    pub const ROOT: Fid = Fid(1);
    /// The `counter`-th fid of this owner.
    pub fn new(owner: Member, counter: u64) -> Fid {
        Fid((u64::from(owner) << 48) | counter)
    }
    /// The member that owns its attributes and its first slice.
    pub fn owner(self) -> Member {
        (self.0 >> 48) as Member
    }
}

/// As messages to people show it: `{fid:#x}`.
impl fmt::LowerHex for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// Number of a log, unique in its member and never reused.
pub type LogId = u64;

/// The log that an extent names if a record that cannot be read may have said where its bytes are: reading it is `EIO`. No log has
/// this number.
pub const LOST_LOG: LogId = u64::MAX;
