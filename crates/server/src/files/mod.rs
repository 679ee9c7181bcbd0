//! The content side of the files that one member owns, and of the slices it holds (sketch): opens, sequences,
//! commits, cuts, extents, freeing, lamination.
pub mod proto;
use crate::{Fid, Peers, Result, inodes::Inodes};
use forebay_storage::Store;
use proto::{FilesReply, FilesRequest};
use std::sync::Arc;

pub struct Files { _p: () }

impl Files {
    pub fn new(_store: Arc<Store>, _inodes: Arc<Inodes>, _peers: Arc<Peers>) -> Result<Files> { todo!() }
    /// Settles commits cut off by a crash, and removes files without a name (may call other members).
    pub fn recover(&self) -> Result<()> { todo!() }
    /// `from`: the member that asks (opens are counted per member).
    pub fn handle(&self, _from: u16, _request: FilesRequest) -> Result<FilesReply> { todo!() }
    /// The inode lost its last name (already recorded in `keys::ORPHANS` by `meta`, in the batch that set nlink 0):
    /// removes the file now if no member holds it open, else at the last close.
    pub fn orphaned(&self, _fid: Fid) -> Result<()> { todo!() }
    /// Stops the background threads.
    pub fn close(&self) {}
}
