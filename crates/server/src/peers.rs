//! Typed requests between members: to oneself a plain call, to others over the fabric.
//!
//! Sketch: `meta`, `files` and `data` call `peers.meta(member, request)` and so on; a request to the own member
//! goes straight to the local part. Never call while holding a lock that a handler may take.
use crate::{Member, Result, data::proto::*, files::proto::*, meta::proto::*};
use bytes::Bytes;

pub struct Peers {}

impl Peers {
    pub fn member(&self) -> Member { todo!() }
    pub fn members(&self) -> u16 { todo!() }
    pub fn meta(&self, _to: Member, _request: MetaRequest) -> Result<MetaReply> { todo!() }
    pub fn files(&self, _to: Member, _request: FilesRequest) -> Result<FilesReply> { todo!() }
    pub fn data(&self, _to: Member, _request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> { todo!() }
}
