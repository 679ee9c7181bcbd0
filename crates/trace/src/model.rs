//! The plain model of a set of files: which write every byte comes from. What a read must return follows from it.
//!
//! Memory grows with the number of extents, not of bytes.

use crate::Ranges;
use crate::content::{Content, verify_zeros};
use std::ops::Range;

/// Bytes of one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPiece {
    /// Where in the file.
    pub range: Range<u64>,
    /// The write they come from (0: there before the trace); `None`: a hole.
    pub sequence: Option<u64>,
}

impl OriginPiece {
    /// Checks `buf`, which was read at the piece's start.
    ///
    /// # Errors
    /// The index of the first wrong byte, and what should be there.
    pub fn verify(&self, file: u32, buf: &[u8]) -> Result<(), (usize, u8)> {
        match self.sequence {
            Some(sequence) => Content::new(file, sequence).verify(self.range.start, buf),
            None => verify_zeros(buf),
        }
    }

    /// Where the bytes come from, for messages.
    pub fn origin(&self) -> String {
        match self.sequence {
            None => "never written".into(),
            Some(0) => "there from the start".into(),
            Some(n) => format!("call {} of the trace", n - 1),
        }
    }
}

/// What the files hold.
#[derive(Debug, Clone, Default)]
pub struct Model {
    files: Vec<FileModel>,
}

#[derive(Debug, Clone, Default)]
struct FileModel {
    size: u64,
    writes: Ranges<u64>,
}

impl Model {
    /// `files` empty files.
    pub fn new(files: usize) -> Model {
        Model {
            files: vec![FileModel::default(); files],
        }
    }

    /// Bytes `range` of `file` now come from write `sequence`.
    pub fn write(&mut self, file: u32, range: Range<u64>, sequence: u64) {
        if !range.is_empty() {
            let file = &mut self.files[file as usize];
            file.size = file.size.max(range.end);
            file.writes.set(range, sequence);
        }
    }

    /// The file is at least this long.
    pub fn extend(&mut self, file: u32, size: u64) {
        let file = &mut self.files[file as usize];
        file.size = file.size.max(size);
    }

    /// Size of the file in bytes.
    pub fn size(&self, file: u32) -> u64 {
        self.files[file as usize].size
    }

    /// What a read of `range` returns: all of it below the file's size, in pieces.
    pub fn read(&self, file: u32, range: Range<u64>) -> Vec<OriginPiece> {
        let file = &self.files[file as usize];
        let range = range.start..range.end.min(file.size);
        let parts = file.writes.cover(range);
        parts
            .into_iter()
            .map(|(range, sequence)| OriginPiece { range, sequence })
            .collect()
    }

    /// The parts of a file that are no holes, neighbours of different writes joined.
    pub fn written(&self, file: u32) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for (range, _) in self.files[file as usize].writes.iter() {
            match out.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => out.push(range),
            }
        }
        out
    }
}
