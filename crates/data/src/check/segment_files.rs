//! The segment files of one member of a stopped service, kept open during a check.
use crate::segment_header;
use forebay_storage::{File, Io};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files kept open, at most.
const OPEN_FILES: usize = 64;

/// See the head of this file.
pub struct SegmentFiles<'a> {
    io: &'a dyn Io,
    data: &'a Path,
    open: HashMap<u32, Arc<dyn File>>,
}

impl<'a> SegmentFiles<'a> {
    /// The segment files in the directory `data`.
    pub fn new(io: &'a dyn Io, data: &'a Path) -> SegmentFiles<'a> {
        SegmentFiles {
            io,
            data,
            open: HashMap::new(),
        }
    }

    /// The path of a segment file.
    pub fn path(&self, number: u32) -> PathBuf {
        self.data.join(segment_header::name(number))
    }

    /// The file of this number; `None` if there is none.
    ///
    /// # Errors
    /// As the disk.
    pub fn get(&mut self, number: u32) -> std::io::Result<Option<Arc<dyn File>>> {
        if let Some(file) = self.open.get(&number) {
            return Ok(Some(file.clone()));
        }
        if self.open.len() >= OPEN_FILES {
            self.open.clear();
        }
        match self.io.open(&self.path(number)) {
            Ok(file) => {
                self.open.insert(number, file.clone());
                Ok(Some(file))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
