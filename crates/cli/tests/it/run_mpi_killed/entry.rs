//! A piece of content that one worker has: a small file, or a slot in a slice of a large sparse one; what it may hold.
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a slice of a file's offsets.
const SLICE: u64 = 64 << 20;

/// What was begun and has not returned well.
#[derive(Debug, Clone)]
pub enum PendingMount {
    /// These bytes over the old ones, made durable.
    Write(Vec<u8>),
    /// The file removed.
    Remove,
}

/// See the head of this file.
pub struct Entry {
    /// The directory, by the member that owns it.
    pub dir: usize,
    /// The file's name there.
    pub name: String,
    /// 0: the file is a small one. Else the slot is in this slice, and other entries have the other slices.
    pub slice: usize,
    /// Length of the content.
    pub len: usize,
    /// Acknowledged; `None`: there is no such file.
    pub content: Option<Vec<u8>>,
    /// Uncertain; nothing is written there any more.
    pub pending: Option<PendingMount>,
}

impl Entry {
    /// A small file that is not there yet.
    pub fn small(dir: usize, name: String, len: usize) -> Entry {
        Entry {
            dir,
            name,
            slice: 0,
            len,
            content: None,
            pending: None,
        }
    }

    /// A slot that reads as zeros.
    pub fn slot(dir: usize, name: String, slice: usize) -> Entry {
        Entry {
            dir,
            name,
            slice,
            len: 4096,
            content: Some(vec![0; 4096]),
            pending: None,
        }
    }

    /// The members that hold its directory, its attributes and its extents.
    pub fn members(&self, all: usize) -> [usize; 2] {
        [self.dir, (self.dir + self.slice) % all]
    }

    fn offset(&self) -> u64 {
        self.slice as u64 * SLICE
    }

    /// Writes and makes durable.
    pub fn write(&self, dir: &std::fs::File, bytes: &[u8]) -> io::Result<()> {
        use rustix::fs::OFlags;
        let file = std::fs::File::from(self.open(dir, OFlags::WRONLY | OFlags::CREATE)?);
        file.write_all_at(bytes, self.offset())?;
        file.sync_all()
    }

    /// Removes the file.
    pub fn remove(&self, dir: &std::fs::File) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            dir,
            &*self.name,
            rustix::fs::AtFlags::empty(),
        )?)
    }

    /// What is there; a slot that is not there yet reads as zeros.
    pub fn read(&self, dir: &std::fs::File) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open(dir, rustix::fs::OFlags::RDONLY) {
            Ok(file) => std::fs::File::from(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok((self.slice > 0).then(|| vec![0; self.len]));
            }
            Err(e) => return Err(e),
        };
        // One more than there should be, to notice what should not be there.
        let mut bytes = vec![0; self.len + usize::from(self.slice == 0)];
        let mut got = 0;
        while got < bytes.len() {
            match file.read_at(&mut bytes[got..], self.offset() + got as u64)? {
                0 => break,
                n => got += n,
            }
        }
        if self.slice == 0 {
            bytes.truncate(got);
        }
        Ok(Some(bytes))
    }

    fn open(&self, dir: &std::fs::File, flags: rustix::fs::OFlags) -> io::Result<OwnedFd> {
        let flags = flags | rustix::fs::OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, &*self.name, flags, 0o600.into())?)
    }

    /// Whether this may be found: exactly what was acknowledged; of what did not return, old or new byte by byte, for it was
    /// never committed as a whole.
    pub fn check(&self, found: &Option<Vec<u8>>) -> Result<(), String> {
        let name = format!(
            "{} in directory {}, slice {}",
            self.name, self.dir, self.slice
        );
        if *found == self.content {
            return Ok(());
        }
        let Some(pending) = &self.pending else {
            return Err(format!("{name}: {}", difference(&self.content, found)));
        };
        match (pending, found) {
            (PendingMount::Remove, None) => Ok(()),
            (PendingMount::Write(new), Some(seen)) => {
                let old = self.content.as_deref().unwrap_or_default();
                let at = |bytes: &[u8], i: usize| bytes.get(i).copied().unwrap_or(0);
                let wrong = |i: &usize| seen[*i] != at(old, *i) && seen[*i] != at(new, *i);
                match (0..seen.len()).find(wrong) {
                    Some(i) => Err(format!("{name}: byte {i} is neither old nor new")),
                    None if seen.len() < old.len() || seen.len() > new.len() => {
                        Err(format!("{name}: {} bytes", seen.len()))
                    }
                    None => Ok(()),
                }
            }
            (pending, _) => Err(format!(
                "{name}: neither as before nor as after {pending:.40?}"
            )),
        }
    }
}

fn difference(expected: &Option<Vec<u8>>, found: &Option<Vec<u8>>) -> String {
    match (expected, found) {
        (Some(_), None) => String::from("is missing"),
        (None, Some(_)) => String::from("is there again"),
        (Some(a), Some(b)) if a.len() != b.len() => format!("{} bytes, not {}", b.len(), a.len()),
        (Some(a), Some(b)) => format!(
            "wrong from byte {} on",
            (0..a.len()).find(|i| a[*i] != b[*i]).unwrap_or(0)
        ),
        (None, None) => String::from("as it should be"),
    }
}
