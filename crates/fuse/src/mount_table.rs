//! The mount table of this process, as the kernel prints it.
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file system type of a Forebay mount in the mount table.
pub(crate) const TYPE: &str = "fuse.forebay";

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The file system type, such as `ext4` or `fuse.forebay`.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// The device number, `major:minor`; names the mount under `/sys/class/bdi`.
    pub device: String,
}

impl MountEntry {
    /// Whether it is a mount of Forebay.
    pub fn is_forebay(&self) -> bool {
        self.kind == TYPE
    }
    /// Whether a server process stands behind it.
    pub(crate) fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind == "fuseblk" || self.kind.starts_with("fuse.")
    }
}

/// The mount table of this process, oldest first; of several mounts on one point the last is visible.
///
/// # Errors
/// If `/proc/self/mountinfo` cannot be read.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// What is visible on `point`, in a table as [`mounts`] reads it.
pub fn mounted_on<'a>(table: &'a [MountEntry], point: &Path) -> Option<&'a MountEntry> {
    table.iter().rev().find(|e| e.point == point)
}

fn parse(table: &[u8]) -> Vec<MountEntry> {
    table
        .split(|b| *b == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `id parent major:minor root point options [fields] - type source super-options`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().skip(6).position(|f| *f == b"-")? + 6;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(MountEntry {
        point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: text(fields.get(dash + 1)?),
        source: text(fields.get(dash + 2)?),
        device: text(fields.get(2)?),
    })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&b, tail)) = rest.split_first() {
        match tail {
            [
                x @ b'0'..=b'3',
                y @ b'0'..=b'7',
                z @ b'0'..=b'7',
                after @ ..,
            ] if b == b'\\' => {
                out.push((x - b'0') << 6 | (y - b'0') << 3 | (z - b'0'));
                rest = after;
            }
            _ => {
                out.push(b);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_with_optional_fields_and_escapes() {
        let table =
            b"36 35 98:0 / /mnt\\040a\\134b rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
            37 36 0:45 / /m rw - fuse.forebay forebay rw,user_id=0\nbroken line\n";
        let entries = parse(table);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].point, Path::new("/mnt a\\b"));
        assert!(!entries[0].is_fuse());
        assert_eq!(entries[1].device, "0:45");
        assert!(entries[1].is_forebay() && entries[1].is_fuse());
    }

    #[test]
    fn the_running_table_has_a_root() {
        assert!(mounts().unwrap().iter().any(|e| e.point == Path::new("/")));
    }
}
