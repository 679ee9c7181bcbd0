//! What members say to each other. One enum per part, so that each part owns its words; bulk bytes travel beside.
use crate::{data::proto::*, files::proto::*, meta::proto::*};
use serde::{Deserialize, Serialize};

/// Raised when any message changes its meaning; the handshake compares it.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request { Meta(MetaRequest), Files(FilesRequest), Data(DataRequest) }

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply { Meta(MetaReply), Files(FilesReply), Data(DataReply) }

/// An error as it travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WireError { Errno(i32), Gone { member: u16, log: u64, addr: u64 }, Corrupt(String), Stale, Other(String) }
