//! From a path to a file: the walk through directories and symbolic links.
//!
//! Invariants: `..` is the parent of the directory reached, not of the text before it; at most [`MAX_LINKS`] symbolic
//! links are followed; every path starts at the root of the file system, also one without a leading slash.
use forebay_server::{Attr, Delegate, Fid, Kind, Result};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Symbolic links followed on one walk before `ELOOP`, as in Linux.
pub(crate) const MAX_LINKS: u32 = 40;
/// The longest path in bytes before `ENAMETOOLONG`, as in Linux.
const MAX_PATH: usize = 4095;

/// Refuses a walk the directories that it may not look names up in.
pub(crate) type EnterCheck<'a> = &'a dyn Fn(&Attr) -> Result<()>;

/// Where a walk ended.
pub(crate) struct PathWalk {
    /// The directory that holds the last name.
    pub parent: Fid,
    /// The last name; empty if the path ended in `.`, `..` or the root.
    pub name: Vec<u8>,
    /// The file, if there is one.
    pub found: Option<Attr>,
    /// The path ended in a slash, so it can only name a directory.
    pub slash: bool,
}

impl PathWalk {
    /// The file, or `ENOENT`.
    pub fn file(self) -> Result<Attr> {
        Ok(self.found.ok_or(Errno::NOENT)?)
    }

    /// The directory and the name in it, for calls that make or remove a name; `end` if the path ended in a directory
    /// reached by `.`, `..` or the root.
    pub fn entry(self, end: Errno) -> Result<(Fid, Vec<u8>)> {
        if self.name.is_empty() {
            Err(end.into())
        } else {
            Ok((self.parent, self.name))
        }
    }
}

/// The attributes of what was found, with all that programs of this node's mount have written to it.
pub(crate) fn brought_back(delegate: &Delegate, found: Attr) -> Result<Attr> {
    if found.kind != Kind::File || !delegate.kernel_pages.write_back_dirty(found.fid) {
        return Ok(found);
    }
    delegate.names.getattr(found.fid)
}

/// Walks `path`; `follow` says whether a symbolic link as the last name is followed (a trailing slash always does).
pub(crate) fn walk(delegate: &Delegate, path: &Path, follow: bool) -> Result<PathWalk> {
    walk_by(delegate, path, follow, None)
}

/// The same; `enter` is asked about each directory before a name is looked up in it, `.` and `..` included, and may refuse.
pub(crate) fn walk_by(
    delegate: &Delegate,
    path: &Path,
    follow: bool,
    enter: Option<EnterCheck<'_>>,
) -> Result<PathWalk> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if bytes.len() > MAX_PATH {
        return Err(Errno::NAMETOOLONG.into());
    }
    if bytes.contains(&0) {
        return Err(Errno::INVAL.into());
    }
    let mut slash = bytes.ends_with(b"/");
    // Names still to visit, the next one last.
    let mut names = Vec::new();
    push(&mut names, bytes);
    let (mut at, mut at_attr) = (Fid::ROOT, None);
    let mut links = 0;
    let (name, found) = loop {
        let Some(name) = names.pop() else {
            let attr = match at_attr {
                Some(attr) => attr,
                None => delegate.names.getattr(at)?,
            };
            break (Vec::new(), Some(attr));
        };
        if let Some(enter) = enter {
            let attr = match at_attr.take() {
                Some(attr) => attr,
                None => delegate.names.getattr(at)?,
            };
            enter(&attr)?;
            at_attr = Some(attr);
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            at = delegate.names.parent(at)?;
            at_attr = None;
            continue;
        }
        let last = names.is_empty();
        let attr = match delegate.names.lookup(at, &name) {
            Ok(attr) => attr,
            Err(e) if last && e.errno() == Errno::NOENT => break (name, None),
            Err(e) => return Err(e),
        };
        match attr.kind {
            Kind::Symlink if !last || follow || slash => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = delegate.names.readlink(attr.fid)?;
                if target.first() == Some(&b'/') {
                    at = Fid::ROOT;
                    at_attr = None;
                }
                slash |= last && target.ends_with(b"/");
                push(&mut names, &target);
            }
            Kind::Dir if !last => {
                at = attr.fid;
                at_attr = Some(attr);
            }
            kind if !last || (slash && kind != Kind::Dir) => return Err(Errno::NOTDIR.into()),
            _ => break (name, Some(attr)),
        }
    };
    Ok(PathWalk {
        parent: at,
        name,
        found,
        slash,
    })
}

fn push(names: &mut Vec<Vec<u8>>, path: &[u8]) {
    names.extend(
        path.split(|b| *b == b'/')
            .rev()
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec),
    );
}

#[cfg(test)]
mod tests {
    use super::push;

    #[test]
    fn names_of_a_target_come_before_the_rest() {
        let mut names = Vec::new();
        push(&mut names, b"/x/y");
        names.pop();
        push(&mut names, b"a//b/");
        assert_eq!(names, [b"y".to_vec(), b"b".to_vec(), b"a".to_vec()]);
    }
}
