//! Making reads cold, the same way for every subject.
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZero;
use std::path::Path;

/// How reads are made cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheDropping {
    /// All of the kernel's caches are dropped (root).
    Dropped,
    /// The pages of the benchmark's files are dropped by `posix_fadvise`; names and attributes stay.
    Advised,
}

impl CacheDropping {
    /// The most thorough way that this process is allowed.
    pub fn choose() -> CacheDropping {
        rustix::fs::sync();
        match std::fs::write("/proc/sys/vm/drop_caches", "3") {
            Ok(()) => CacheDropping::Dropped,
            Err(_) => CacheDropping::Advised,
        }
    }

    /// Its description, for the header.
    pub fn text(self) -> &'static str {
        match self {
            CacheDropping::Dropped => "cold (sync, then /proc/sys/vm/drop_caches)",
            CacheDropping::Advised => {
                "pages cold (sync, then posix_fadvise on every file), names and attributes warm; be root for cold ones"
            }
        }
    }

    /// Everything on disk, nothing in memory. `places`: directories whose files are read next, or lie below what is read.
    pub fn drop_caches(self, places: &[&Path]) {
        rustix::fs::sync();
        if self == CacheDropping::Dropped && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
        {
            return;
        }
        places.iter().for_each(|p| advise(p));
    }
}

/// Drops the clean pages of a file, or of the files below a directory.
fn advise(path: &Path) {
    let Ok(meta) = path.symlink_metadata() else {
        return;
    };
    if meta.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|e| advise(&e.path()));
    } else if meta.is_file()
        && let Ok(file) = File::open(path)
    {
        let _ = rustix::fs::fadvise(file, 0, None::<NonZero<u64>>, Advice::DontNeed);
    }
}
