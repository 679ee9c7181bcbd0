//! The namespace and attributes that one member owns (sketch).
pub mod proto;
use crate::{Peers, Result, inodes::Inodes};
use forebay_storage::Store;
use proto::{MetaReply, MetaRequest};
use std::sync::Arc;

pub struct Meta { _p: () }

impl Meta {
    pub fn new(_store: Arc<Store>, _inodes: Arc<Inodes>, _peers: Arc<Peers>) -> Result<Meta> { todo!() }
    /// Creates the root directory if this is member 0 and there is none; finishes intents left by a crash
    /// (may call other members; runs after all members answer).
    pub fn recover(&self) -> Result<()> { todo!() }
    pub fn handle(&self, _request: MetaRequest) -> Result<MetaReply> { todo!() }
}
