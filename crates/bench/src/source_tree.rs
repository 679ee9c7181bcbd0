//! A tree of many small files, as the sources of a large program are, in an archive that `tar` unpacks.
//!
//! The tree follows from a seed. Sizes are distributed log-normally around `MEDIAN_BYTES`, as in source trees: few files are
//! large, and the mean is about twice the median. Directories hold a dozen files on average and lie in each other.
//! Every file and directory has a time in the past, and one file in twenty may be executed, so unpacking sets modes and times.
use crate::fail::{Context, Result};
use crate::harness::run_program;
use forebay_testkit::random::Random;
use std::fs::{File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

const SEED: u64 = 14;
const MEDIAN_BYTES: f64 = 4000.0;
/// Standard deviation of the logarithm of a size.
const SIZE_SPREAD: f64 = 1.2;
const MOST_BYTES: u64 = 1 << 20;
const FILES_A_DIRECTORY: u64 = 12;
/// Directories in each other, at most.
const DEPTH: usize = 6;
/// 2020-01-01; files have times up to a year later.
const OLDEST: u64 = 1_577_836_800;
const YEAR: u64 = 365 * 24 * 3600;

/// An archive, and what is in it.
pub struct SourceTree {
    /// The archive.
    archive: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
}

impl SourceTree {
    /// Makes a tree of so many files in `dir`, and an archive of it there; the tree itself is removed.
    ///
    /// # Errors
    /// If the files cannot be written, or `tar` is not there or fails.
    pub fn make(dir: &Path, files: u64) -> Result<SourceTree> {
        let (tree, archive) = (dir.join("source-tree"), dir.join("source-tree.tar"));
        let bytes = make_files(&tree, files)?;
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--file"])
            .arg(&archive);
        run_program(tar.arg("--directory").arg(&tree).arg("."))?;
        std::fs::remove_dir_all(&tree).doing(tree.display())?;
        Ok(SourceTree { archive, bytes })
    }

    /// Reads the archive, so that unpacking finds it in memory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn warm(&self) -> Result<()> {
        let mut file = File::open(&self.archive).doing(self.archive.display())?;
        let copied = std::io::copy(&mut file, &mut std::io::sink());
        copied.map(drop).doing(self.archive.display())
    }

    /// Unpacks it into a directory.
    ///
    /// # Errors
    /// What `tar` said.
    pub fn unpack(&self, to: &Path) -> Result<()> {
        self.tar(&["--extract", "--preserve-permissions"], to)
    }

    /// Checks that a directory has every file of it with its bytes, mode and time.
    ///
    /// # Errors
    /// Names the files that differ.
    pub fn compare(&self, with: &Path) -> Result<()> {
        self.tar(&["--compare"], with)
    }

    fn tar(&self, what: &[&str], dir: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(what).arg("--file").arg(&self.archive);
        run_program(tar.arg("--directory").arg(dir))
    }
}

/// Makes the files; how many bytes they have.
fn make_files(tree: &Path, files: u64) -> Result<u64> {
    let mut random = Random::new(SEED);
    let dirs = directories(&mut random, files.div_ceil(FILES_A_DIRECTORY));
    for dir in &dirs {
        let dir = tree.join(dir);
        std::fs::create_dir_all(&dir).doing(dir.display())?;
    }
    let mut total = 0;
    let mut bytes = Vec::new();
    for n in 0..files {
        let dir = &dirs[random.below(dirs.len() as u64) as usize];
        let path = tree.join(dir).join(format!("file{n}.c"));
        bytes.resize(size(&mut random) as usize, 0);
        random.fill(&mut bytes);
        let mode = if random.below(20) == 0 { 0o755 } else { 0o644 };
        write(&path, &bytes, mode, time(&mut random)).doing(path.display())?;
        total += bytes.len() as u64;
    }
    // After the files, because what comes into a directory changes its time.
    for dir in &dirs {
        let dir = tree.join(dir);
        let times = FileTimes::new().set_modified(time(&mut random));
        let set = File::open(&dir).and_then(|d| d.set_times(times));
        set.doing(dir.display())?;
    }
    Ok(total)
}

fn write(path: &Path, bytes: &[u8], mode: u32, time: SystemTime) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.set_times(FileTimes::new().set_modified(time))
}

/// So many directories, each after the one that it lies in.
fn directories(random: &mut Random, count: u64) -> Vec<PathBuf> {
    let mut dirs = vec![PathBuf::new()];
    for n in 1..count {
        let parent = &dirs[random.below(n) as usize];
        let parent = match parent.components().count() < DEPTH {
            true => parent.as_path(),
            false => Path::new(""),
        };
        dirs.push(parent.join(format!("dir{n}")));
    }
    dirs
}

/// Bytes of a file.
fn size(random: &mut Random) -> u64 {
    // Twelve numbers between 0 and 1 less 6 are nearly normally distributed (Irwin and Hall).
    let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    let bytes = MEDIAN_BYTES * (SIZE_SPREAD * normal).exp();
    (bytes as u64).min(MOST_BYTES)
}

fn time(random: &mut Random) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(OLDEST + random.below(YEAR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_seed_gives_one_tree_with_the_sizes_of_sources() {
        let mut random = Random::new(SEED);
        let mut sizes: Vec<u64> = (0..15_000).map(|_| size(&mut random)).collect();
        let mean = sizes.iter().sum::<u64>() / 15_000;
        sizes.sort_unstable();
        assert!((3_600..4_400).contains(&sizes[7_500]), "{}", sizes[7_500]);
        assert!((7_000..9_500).contains(&mean), "{mean}");
        let dirs = |seed| directories(&mut Random::new(seed), 1250);
        assert!(dirs(1) == dirs(1) && dirs(1) != dirs(2));
        let depths = dirs(1).into_iter().map(|d| d.components().count());
        assert_eq!(depths.max(), Some(DEPTH));
    }

    #[test]
    fn the_archive_unpacks_with_modes_and_times_and_a_change_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let tree = SourceTree::make(dir.path(), 60).unwrap();
        tree.warm().unwrap();
        let to = dir.path().join("to");
        std::fs::create_dir(&to).unwrap();
        tree.unpack(&to).unwrap();
        tree.compare(&to).unwrap();
        let mut pending = vec![to];
        let mut files = Vec::new();
        while let Some(dir) = pending.pop() {
            for entry in dir.read_dir().unwrap().map(|e| e.unwrap()) {
                match entry.file_type().unwrap().is_dir() {
                    true => pending.push(entry.path()),
                    false => files.push(entry),
                }
            }
        }
        let found: Vec<_> = files.iter().map(|f| f.metadata().unwrap()).collect();
        assert_eq!(found.len(), 60);
        assert_eq!(found.iter().map(|m| m.len()).sum::<u64>(), tree.bytes);
        let past = OLDEST as i64..(OLDEST + YEAR) as i64;
        assert!(found.iter().all(|m| past.contains(&m.mtime())));
        assert!(found.iter().any(|m| m.mode() & 0o777 == 0o755));
        std::fs::write(files[0].path(), "x").unwrap();
        let name = files[0].file_name().into_string().unwrap();
        assert!(
            tree.compare(&dir.path().join("to"))
                .is_err_and(|e| e.0.contains(&name))
        );
    }
}
