//! The files of a chain: made once for a case, the same for all subjects.
use super::chain::{Chain, ChainShape};
use crate::fail::{Context, Failure, Result};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a read or write call.
pub const COPY_BYTES: usize = 1 << 20;

/// The files, oldest first.
pub struct SourceFiles {
    /// Their directory.
    pub dir: PathBuf,
    /// Name and length of each.
    pub files: Vec<(String, u64)>,
    /// Distinct bytes of all files.
    pub distinct: u64,
}

impl SourceFiles {
    /// Writes them into a new directory.
    ///
    /// # Errors
    /// If the disk has no room.
    pub fn make(dir: &Path, shape: ChainShape, size: u64, seed: u64) -> Result<SourceFiles> {
        std::fs::create_dir_all(dir).doing(dir.display())?;
        let mut chain = Chain::new(shape, size, seed);
        let mut files = Vec::new();
        for n in 0..shape.checkpoints {
            if n > 0 {
                chain.advance();
            }
            let name = format!("checkpoint-{n:02}");
            let path = dir.join(&name);
            let write = || {
                let mut out = BufWriter::new(File::create(&path)?);
                chain.write(&mut out)?;
                out.flush()
            };
            write().doing(path.display())?;
            files.push((name, chain.header_bytes() + size));
        }
        Ok(SourceFiles {
            dir: dir.to_owned(),
            files,
            distinct: chain.distinct_bytes(),
        })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Reads one, so that whoever takes it finds it in memory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn warm(&self, name: &str) -> Result<()> {
        let mut file = self.open(name)?;
        each_piece(&mut file, |_| Ok(())).map(drop).doing(name)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If it is gone.
    pub fn open(&self, name: &str) -> Result<File> {
        let path = self.dir.join(name);
        File::open(&path).doing(path.display())
    }

    /// Something to give what a subject reads of one piece by piece; then [`Comparison::end`].
    ///
    /// # Errors
    /// If it is gone.
    pub fn comparison(&self, name: &str) -> Result<Comparison> {
        let file = BufReader::with_capacity(COPY_BYTES, self.open(name)?);
        let name = name.to_owned();
        Ok(Comparison { name, file })
    }
}

/// What was read so far is what was written.
pub struct Comparison {
    name: String,
    file: BufReader<File>,
}

impl Comparison {
    /// Compares the next bytes.
    ///
    /// # Errors
    /// If they differ.
    pub fn next(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut expected = vec![0; piece.len()];
        self.file.read_exact(&mut expected)?;
        match expected == piece {
            true => Ok(()),
            false => Err(io::Error::other("not the bytes that were written")),
        }
    }

    /// Checks that no bytes are missing.
    ///
    /// # Errors
    /// If it is.
    pub fn end(mut self) -> Result<()> {
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(Failure::new(format!("{}: bytes are missing", self.name))),
        }
    }
}

/// Reads to the end; how many bytes came.
///
/// # Errors
/// As `from` and `take`.
pub fn each_piece(
    from: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut piece = vec![0; COPY_BYTES];
    let mut total = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(n) => {
                take(&piece[..n])?;
                total += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::CHAIN_INPLACE;
    use super::*;

    #[test]
    fn what_is_read_is_compared_to_its_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let source = SourceFiles::make(dir.path(), CHAIN_INPLACE, 100_000, 1).unwrap();
        assert_eq!((source.files.len(), source.bytes()), (5, 500_000));
        let name = source.files[3].0.clone();
        let mut bytes = std::fs::read(dir.path().join(&name)).unwrap();
        let compare = |bytes: &[u8]| {
            let mut comparison = source.comparison(&name).unwrap();
            comparison.next(bytes).doing("compare")?;
            comparison.end()
        };
        compare(&bytes).unwrap();
        assert!(compare(&bytes[1..]).is_err() && compare(&bytes[..99_999]).is_err());
        bytes.push(0);
        assert!(compare(&bytes).is_err());
    }
}
