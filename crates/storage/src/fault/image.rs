//! A snapshot of a disk: files by path. A test can damage it, or write it to a real directory.
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Files (with their bytes) and directories (without) by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub(super) entries: BTreeMap<PathBuf, Option<Vec<u8>>>,
}

impl Image {
    /// Reads a real directory, with its directories. Paths keep `dir` in front.
    pub fn load(dir: &Path) -> io::Result<Image> {
        let mut image = Image::default();
        image.load_into(dir)?;
        Ok(image)
    }

    fn load_into(&mut self, dir: &Path) -> io::Result<()> {
        self.entries.insert(dir.to_path_buf(), None);
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                self.load_into(&path)?;
            } else {
                self.entries
                    .insert(path.clone(), Some(std::fs::read(&path)?));
            }
        }
        Ok(())
    }

    /// Writes everything below the real directory `dir`, each path relative to `base`.
    pub fn save(&self, base: &Path, dir: &Path) -> io::Result<()> {
        for (path, bytes) in &self.entries {
            let Ok(relative) = path.strip_prefix(base) else {
                continue;
            };
            let to = dir.join(relative);
            match bytes {
                None => std::fs::create_dir_all(&to)?,
                Some(bytes) => {
                    if let Some(parent) = to.parent() {
                        std::fs::create_dir_all(parent)?;
                    }
                    std::fs::write(&to, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// The files, in path order.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.entries
            .iter()
            .filter_map(|(p, b)| Some((&**p, b.as_deref()?)))
    }

    /// A file's bytes, to be changed; `None` if there is no such file.
    pub fn bytes_mut(&mut self, path: &Path) -> Option<&mut Vec<u8>> {
        self.entries.get_mut(path)?.as_mut()
    }

    /// Flips one bit (counted from the file's start). Returns whether the file is that long.
    pub fn flip_bit(&mut self, path: &Path, bit: u64) -> bool {
        let byte = self
            .bytes_mut(path)
            .and_then(|b| b.get_mut((bit / 8) as usize));
        if let Some(byte) = byte {
            *byte ^= 1 << (bit % 8);
            return true;
        }
        false
    }

    /// Puts a file, in place of one that is there.
    pub fn set(&mut self, path: &Path, bytes: Vec<u8>) {
        self.entries.insert(path.to_path_buf(), Some(bytes));
    }

    /// Removes a file. Returns whether it was there.
    pub fn remove(&mut self, path: &Path) -> bool {
        self.entries.remove(path).is_some()
    }
}
