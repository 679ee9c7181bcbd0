//! Files that are written under temporary names and wait to be renamed.
use super::endpoint::ObjectStat;
use super::task::CopyTask;
use std::ffi::OsString;

/// A checksum of some bytes of a file, as they were read from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkChecksum {
    /// Where.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// CRC32C.
    pub crc: u32,
}

/// A file or piece that is written.
pub struct WrittenFile {
    /// Of which task.
    pub task: CopyTask,
    /// What it is called now.
    pub temporary: OsString,
    /// The attributes it was copied with.
    pub stat: ObjectStat,
    /// `None`: an earlier run has written it.
    pub sums: Option<Vec<ChunkChecksum>>,
}

impl WrittenFile {
    /// Written just now.
    pub fn new(
        task: &CopyTask,
        temporary: OsString,
        stat: ObjectStat,
        sums: Vec<ChunkChecksum>,
    ) -> WrittenFile {
        WrittenFile {
            task: task.clone(),
            temporary,
            stat,
            sums: Some(sums),
        }
    }

    /// Written by an earlier run.
    pub fn kept(task: &CopyTask, temporary: OsString) -> WrittenFile {
        WrittenFile {
            task: task.clone(),
            temporary,
            stat: task.stat.clone(),
            sums: None,
        }
    }

    /// Stored bytes, as far as they are known.
    pub fn bytes(&self) -> u64 {
        match &self.task.piece {
            // Of a sparse file it is not known which pieces have how much.
            Some(piece) if !self.stat.is_sparse() => piece.range.end - piece.range.start,
            Some(_) => 0,
            None => self.stat.bytes_to_copy(),
        }
    }
}

/// A node's files that are made durable, and get their names, together.
#[derive(Default)]
pub struct WrittenBatch {
    /// The files.
    pub files: Vec<WrittenFile>,
    /// Bytes of these.
    pub bytes: u64,
}
