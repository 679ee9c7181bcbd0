//! Real paths as a target: a directory for each node, such as the mounts of one service.

use super::Target;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Directories that show the same files: node `n` works in the `n`th.
#[derive(Debug, Clone)]
pub struct PathTarget {
    dirs: Vec<PathBuf>,
}

impl PathTarget {
    /// The files of these directories, which must exist.
    ///
    /// # Errors
    /// If there is none, or one is no directory.
    pub fn new(dirs: Vec<PathBuf>) -> io::Result<PathTarget> {
        if dirs.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no directory to replay in",
            ));
        }
        for dir in &dirs {
            if !dir.is_dir() {
                let reason = format!("{} is no directory; create or mount it", dir.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, reason));
            }
        }
        Ok(PathTarget { dirs })
    }

    fn path(&self, node: u32, name: &str) -> PathBuf {
        self.dirs[node as usize % self.dirs.len()].join(name)
    }
}

impl Target for PathTarget {
    type Handle = File;

    fn nodes(&self) -> u32 {
        self.dirs.len() as u32
    }

    fn create(&self, node: u32, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.open(self.path(node, name))
    }

    fn open(&self, node: u32, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path(node, name))
    }

    fn read(&self, file: &mut File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match file.read_at(buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn write(&self, file: &mut File, offset: u64, buf: &[u8]) -> io::Result<()> {
        file.write_all_at(buf, offset)
    }

    fn set_len(&self, file: &mut File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn len(&self, file: &mut File) -> io::Result<u64> {
        Ok(file.metadata()?.len())
    }

    fn fsync(&self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn close(&self, file: File) -> io::Result<()> {
        // Dropping would hide the error, and closing is what publishes.
        // SAFETY: the descriptor was ours alone and is not used again, whatever close returns.
        match unsafe { libc::close(file.into_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
