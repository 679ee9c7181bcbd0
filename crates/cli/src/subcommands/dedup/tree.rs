//! The regular files of a path, in the order of their names, each once.
use crate::output::name;
use std::collections::HashSet;
use std::fs::{Metadata, ReadDir};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files with several names that are remembered; more of them may count twice.
const MOST_LINKED: usize = 1 << 20;
/// Names of a directory that are sorted. Of a larger one they come as the file system lists them.
const MOST_SORTED: usize = 1 << 16;

/// A file to be read.
pub struct FoundFile {
    pub path: PathBuf,
    pub len: u64,
}

/// Remembers files with several names.
#[derive(Default)]
pub struct Files {
    linked: HashSet<(u64, u64)>,
}

impl Files {
    /// The files of a path that were not found before.
    pub fn below(&mut self, path: &Path) -> FilesBelow {
        FilesBelow {
            files: std::mem::take(self),
            open: vec![Directory::Sorted(vec![path.to_path_buf()])],
        }
    }
}

/// A directory of which some entries are still to be looked at.
enum Directory {
    /// The last first.
    Sorted(Vec<PathBuf>),
    Listed(ReadDir, PathBuf),
}

/// See [`Files::below`].
pub struct FilesBelow {
    files: Files,
    open: Vec<Directory>,
}

impl FilesBelow {
    /// The next file, or what could not be read in its place.
    pub fn next_file(&mut self) -> Option<Result<FoundFile, String>> {
        loop {
            let next = match self.open.last_mut()? {
                Directory::Sorted(paths) => paths.pop().map(Ok),
                Directory::Listed(list, path) => list.next().map(|entry| match entry {
                    Ok(entry) => Ok(entry.path()),
                    Err(e) => Err(format!("cannot read {}: {e}", name(path))),
                }),
            };
            let path = match next {
                Some(Ok(path)) => path,
                Some(Err(text)) => return Some(Err(text)),
                None => {
                    self.open.pop();
                    continue;
                }
            };
            let failed = |e| Some(Err(format!("cannot read {}: {e}", name(&path))));
            let found = match path.symlink_metadata() {
                Ok(found) => found,
                Err(e) => return failed(e),
            };
            if found.is_dir() {
                match Directory::open(&path) {
                    Ok(directory) => self.open.push(directory),
                    Err(e) => return failed(e),
                }
            } else if found.is_file() && self.is_new(&found) {
                let len = found.len();
                return Some(Ok(FoundFile { path, len }));
            }
        }
    }

    /// What is remembered, for the next path.
    pub fn into_files(self) -> Files {
        self.files
    }

    fn is_new(&mut self, found: &Metadata) -> bool {
        let linked = &mut self.files.linked;
        found.nlink() < 2
            || linked.len() == MOST_LINKED && !linked.contains(&(found.dev(), found.ino()))
            || linked.insert((found.dev(), found.ino()))
    }
}

impl Directory {
    fn open(path: &Path) -> std::io::Result<Directory> {
        let mut paths = Vec::new();
        for entry in path.read_dir()? {
            if paths.len() == MOST_SORTED {
                return Ok(Directory::Listed(path.read_dir()?, path.to_path_buf()));
            }
            paths.push(entry?.path());
        }
        paths.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Directory::Sorted(paths))
    }
}
