//! A batch: puts and deletes over several keyspaces, applied as one.
use crate::Keyspace;
use bytes::Bytes;

/// One change. `value` is `None` for a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub keyspace: Keyspace,
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// Changes that become visible and durable together. Later changes of one key win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub(crate) ops: Vec<Op>,
}

impl Batch {
    pub fn new() -> Batch { Batch::default() }
    pub fn put(&mut self, keyspace: Keyspace, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(Op { keyspace, key: key.into(), value: Some(value.into()) });
    }
    pub fn delete(&mut self, keyspace: Keyspace, key: impl Into<Bytes>) {
        self.ops.push(Op { keyspace, key: key.into(), value: None });
    }
    pub fn is_empty(&self) -> bool { self.ops.is_empty() }
    pub fn len(&self) -> usize { self.ops.len() }
    pub fn ops(&self) -> &[Op] { &self.ops }
    /// Appends another batch's changes.
    pub fn extend(&mut self, other: Batch) { self.ops.extend(other.ops); }
}
