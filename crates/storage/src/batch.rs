//! A batch: puts and deletes over several keyspaces, applied as one.
use crate::{Error, Result};
use bytes::Bytes;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// One ordered key space of a store, by its fixed number (0..=15). Keyspaces do not see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyspace(pub u8);

impl Keyspace {
    /// How many keyspaces a store has.
    pub const COUNT: usize = 16;
    /// Tables keep the entries of this keyspace and those after it twice: what an owner must read before it can do anything, and
    /// of which there is little.
    pub const FIRST_MIRRORED: Keyspace = Keyspace(5);

    /// Whether the store in `dir` has it.
    ///
    /// # Errors
    /// A caller's mistake.
    pub(crate) fn check(self, dir: &Path) -> Result<()> {
        match usize::from(self.0) < Keyspace::COUNT {
            true => Ok(()),
            false => Err(Error::invalid(dir, "keyspace above 15")),
        }
    }
}

/// One change. `value` is `None` for a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// Where the key lives.
    pub keyspace: Keyspace,
    /// The key; may be empty.
    pub key: Bytes,
    /// The new value, or `None` to delete.
    pub value: Option<Bytes>,
}

/// An entry for the [engine](crate::Engine) attached to the store: the bytes that are logged, and perhaps the same in the engine's own form, so
/// that it need not read the bytes again.
#[derive(Clone)]
pub struct EngineEntry {
    /// What the log holds.
    pub bytes: Bytes,
    /// What they stand for; `None` for an entry that comes from the log.
    pub form: Option<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for EngineEntry {
    fn eq(&self, other: &EngineEntry) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for EngineEntry {}

impl std::fmt::Debug for EngineEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.bytes.fmt(f)
    }
}

impl From<Bytes> for EngineEntry {
    fn from(bytes: Bytes) -> EngineEntry {
        EngineEntry { bytes, form: None }
    }
}

/// Changes that become visible and durable together. Later changes of one key win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub(crate) ops: Vec<Op>,
    /// Entries for the attached engine.
    pub(crate) entries: Vec<EngineEntry>,
    /// Whether some of these add something.
    entries_add: bool,
    reclaiming: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch whose changes free space although some of them are puts (a smaller record instead of a larger one):
    /// on a full disk it may use the log's reserve, as batches that only delete always may. Keep such batches small.
    pub fn reclaiming() -> Batch {
        Batch {
            reclaiming: true,
            ..Batch::default()
        }
    }

    /// As [`Batch::reclaiming`], of a batch that turned out to free more than it adds.
    pub fn set_reclaiming(&mut self) {
        self.reclaiming = true;
    }

    /// What a record of the log holds.
    pub(crate) fn of(ops: Vec<Op>, entries: Vec<EngineEntry>) -> Batch {
        Batch {
            ops,
            entries,
            ..Batch::default()
        }
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, keyspace: Keyspace, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(Op {
            keyspace,
            key: key.into(),
            value: Some(value.into()),
        });
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, keyspace: Keyspace, key: impl Into<Bytes>) {
        self.ops.push(Op {
            keyspace,
            key: key.into(),
            value: None,
        });
    }

    /// An entry for the [engine](crate::Engine) attached to the store, after those before; `adds` if it does not only remove something.
    pub fn put_entry(&mut self, entry: impl Into<EngineEntry>, adds: bool) {
        self.entries.push(entry.into());
        self.entries_add |= adds;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.entries.is_empty()
    }

    /// Number of changes, entries for the attached engine not counted.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Bytes of the keys and values that are changed.
    pub fn bytes(&self) -> u64 {
        let value = |op: &Op| op.value.as_ref().map_or(0, |value| value.len());
        let bytes = self.ops.iter().map(|op| op.key.len() + value(op));
        bytes.sum::<usize>() as u64
    }

    /// The changes in the order they were added.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The entries for the attached engine, in the order they were added.
    pub fn entries(&self) -> &[EngineEntry] {
        &self.entries
    }

    /// Appends another batch's changes.
    pub fn extend(&mut self, other: Batch) {
        self.ops.extend(other.ops);
        self.entries.extend(other.entries);
        self.entries_add |= other.entries_add;
    }

    /// Whether the batch may use the log's reserve on a full disk.
    pub fn is_reclaiming(&self) -> bool {
        let removes = || self.ops.iter().all(|op| op.value.is_none()) && !self.entries_add;
        self.reclaiming || removes()
    }
}
