//! Directory trees, compared in all that a copy has to keep.
use rustix::fs::{lgetxattr, llistxattr};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// All that a tree has below its top, by path, with what is kept of each but its content: kind and mode, owners, links (not of a directory),
/// device, time of change, size or target, extended attributes.
///
/// # Errors
/// Of the system.
pub fn listing(top: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(top.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                left.push(path.clone());
            }
            let described = describe(&entry.path())?;
            found.insert(path, described);
        }
    }
    Ok(found)
}

fn describe(path: &Path) -> io::Result<String> {
    let m = std::fs::symlink_metadata(path)?;
    let mut names = vec![0; 1 << 16];
    let n = llistxattr(path, &mut names)?;
    let mut xattrs = BTreeMap::new();
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let n = lgetxattr(path, OsStr::from_bytes(name), &mut value)?;
        xattrs.insert(
            String::from_utf8_lossy(name).into_owned(),
            value[..n].to_vec(),
        );
    }
    let content = match m.file_type() {
        t if t.is_file() => format!("{} bytes", m.size()),
        t if t.is_symlink() => format!("-> {:?}", std::fs::read_link(path)?),
        _ => String::new(),
    };
    Ok(format!(
        "{:o} {}:{} links {} device {:x} time {}.{} {content} {xattrs:?}",
        m.mode(),
        m.uid(),
        m.gid(),
        if m.is_dir() { 0 } else { m.nlink() },
        m.rdev(),
        m.mtime(),
        m.mtime_nsec(),
    ))
}

/// The first byte in which two files of one size differ.
fn first_difference(a: &Path, b: &Path) -> io::Result<Option<u64>> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let n = a.read(&mut left)?;
        b.read_exact(&mut right[..n])?;
        if left[..n] != right[..n] {
            let first = left.iter().zip(&right).position(|(a, b)| a != b);
            return Ok(first.map(|first| at + first as u64));
        }
        if n == 0 {
            return Ok(None);
        }
        at += n as u64;
    }
}

/// Compares two trees, or two files, in all that is kept.
///
/// # Panics
/// If they differ: names the path and says in what. If they cannot be read.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path) {
    let described = |path: &Path| match path.is_dir() {
        true => listing(path),
        false => describe(path).map(|text| [(PathBuf::new(), text)].into()),
    };
    let described = |path| described(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (left, right) = (described(a), described(b));
    let names = |all: &BTreeMap<PathBuf, String>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right), "{a:?} and {b:?}");
    for (path, text) in &left {
        let name = path.display();
        assert_eq!(text, &right[path], "{name} of {a:?} and of {b:?}");
        // `join` of nothing would end in a slash.
        let [a, b] = [a, b].map(|top| match path.as_os_str().is_empty() {
            true => top.to_path_buf(),
            false => top.join(path),
        });
        let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_file());
        if is_file(&a) {
            match first_difference(&a, &b) {
                Ok(at) => assert_eq!(at, None, "the byte in which {a:?} and {b:?} differ"),
                Err(e) => panic!("{a:?} and {b:?}: {e}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn trees_that_differ_in_anything_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let make = |top: &str| {
            std::fs::create_dir_all(at(top).join("d")).unwrap();
            let path = at(top).join("d/f");
            std::fs::write(&path, vec![7; 3 << 20]).unwrap();
            std::os::unix::fs::symlink("f", at(top).join("d/link")).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            let then = std::time::SystemTime::UNIX_EPOCH;
            file.set_modified(then).unwrap();
            // Links and directories have times of their own making.
            let times = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                last_modification: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
            };
            for name in ["d/link", "d"] {
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                let path = at(top).join(name);
                rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
            }
        };
        make("a");
        make("b");
        let same = || catch_unwind(|| assert_same(&at("a"), &at("b"))).is_ok();
        assert!(same());
        let f = at("b").join("d/f");
        let change = |byte: u8| {
            use std::os::unix::fs::FileExt;
            let file = File::options().write(true).open(&f).unwrap();
            file.write_all_at(&[byte], (2 << 20) + 5).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        };
        change(8);
        assert_eq!(
            first_difference(&at("a").join("d/f"), &f).unwrap(),
            Some((2 << 20) + 5)
        );
        assert!(!same());
        change(7);
        assert!(same());
        std::fs::set_permissions(&f, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert!(!same());
        std::fs::remove_file(&f).unwrap();
        assert!(!same());
    }
}
