//! How a measured process reaches its files: by the kernel, or by Forebay's library over the link.
use crate::fail::{Context, Result};
use forebay_client::{Client, OpenOptions};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Operations on names, and opening.
pub trait FileAccess {
    /// For writing, which creates it, or for reading.
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn OpenData>>;
    /// Makes an empty file that must not be there.
    fn create(&self, path: &Path) -> io::Result<()>;
    /// Looks at the attributes of a name.
    fn stat(&self, path: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Whether it is a directory.
    fn is_dir(&self, path: &Path) -> bool;
}

/// An open file.
pub trait OpenData {
    /// Writes all.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads all that is asked for.
    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Bytes are on disk when it returns.
    fn sync(&self) -> io::Result<()>;
}

/// The access of a process.
///
/// # Errors
/// If there is no server.
pub fn choose(link: Option<&Path>) -> Result<Box<dyn FileAccess>> {
    Ok(match link {
        None => Box::new(ByKernel),
        Some(store) => Box::new(ByLink(Client::connect(store).doing(store.display())?)),
    })
}

/// Any file system of the machine.
pub struct ByKernel;

impl FileAccess for ByKernel {
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn OpenData>> {
        let mut options = std::fs::OpenOptions::new();
        options.read(!write).write(write).create(write);
        Ok(Box::new(options.truncate(false).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).open(path).map(drop)
    }

    fn stat(&self, path: &Path) -> io::Result<()> {
        path.symlink_metadata().map(drop)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

impl OpenData for File {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The server of a store, without the kernel's file systems.
struct ByLink(Client);

impl FileAccess for ByLink {
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn OpenData>> {
        let mut options = OpenOptions::new();
        options.read(!write).write(write).create(write);
        Ok(Box::new(options.open(&self.0, path)?))
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&self.0, path)?;
        Ok(file.close()?)
    }

    fn stat(&self, path: &Path) -> io::Result<()> {
        Ok(self.0.symlink_metadata(path).map(drop)?)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        Ok(self.0.remove_file(path)?)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.0.metadata(path).is_ok_and(|found| found.is_dir())
    }
}

impl OpenData for forebay_client::File {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Ok(self.write_at(bytes, offset)?)
    }

    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(into, offset)? == into.len() {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.commit()?)
    }
}
