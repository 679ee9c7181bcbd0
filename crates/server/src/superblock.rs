//! The superblock: what a store directory is, of which service, and which member.
//!
//! 64 bytes, numbers big-endian, written once and replaced only by a rename:
//!
//! ```text
//!  0  | "FOREBAY\n" 8        | what it is, also for someone who looks at it with `head`
//!  8  | version 4            | of everything in the directory; a newer one is refused
//! 12  | role 1               | 0 service, 1 member
//! 13  | state 1              | 0 being made, 1 ready
//! 14  | member 2             | this member's number (0 for the service)
//! 16  | members 2            | how many the service has
//! 18  | zero 10              |
//! 28  | service id 16        | the same in the service's superblock and in all its members'
//! 44  | store id 16          | this directory's own
//! 60  | CRC32C 4             | of bytes 0..60
//! ```
//!
//! A service directory is made in this order: its own superblock (being made), each member's, its own again (ready). Cut
//! off anywhere, the next start goes on where it stopped. Once it is ready, a missing member is refused, never made again.
//!
//! It stands in two files, `superblock` and `superblock.copy`, replaced in this order, each by a rename that is on disk before
//! the next begins. So at every moment one of them is whole; both are the same, or the first is newer. The first counts if it
//! is whole, and the copy if not. The next start writes what is damaged or missing again. A file is damaged if its checksum is
//! wrong: only a whole one says that the directory is of another version.
use crate::{Error, Member, Result};
use forebay_storage::Io;
use std::path::Path;

/// The version of the directory's layout and of all formats in it. Version 1 kept extents as entries of the key-value store, where
/// this program would not find them; version 2 had one copy of superblock and manifest; version 3 kept nothing of its tables
/// twice; version 4 knew raw spans only, and would give containers back as bytes that nothing names; version 5
/// knew no encoded containers, and would take them for damaged; version 6 knew none that are encoded against others.
pub const VERSION: u32 = 7;
/// The name of the file.
pub const FILE_NAME: &str = "superblock";
/// The name of its copy.
pub const COPY_NAME: &str = "superblock.copy";
/// A superblock being written, renamed into place when whole.
pub const TEMPORARY_NAME: &str = "superblock.new";
const MAGIC: &[u8; 8] = b"FOREBAY\n";
const LEN: usize = 64;
const CHECKSUMMED: usize = 60;

/// A random 128-bit name.
pub type Uuid = [u8; 16];

/// Whose directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRole {
    /// The directory of a whole service.
    Service,
    /// The store of one member.
    Member(Member),
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Whose directory.
    pub role: StoreRole,
    /// Making it is finished.
    pub ready: bool,
    /// How many members the service has.
    pub members: u16,
    /// Names the service.
    pub service: Uuid,
    /// Names this directory.
    pub store: Uuid,
}

impl Superblock {
    /// A new directory of this service.
    pub fn new(role: StoreRole, members: u16, service: Uuid) -> Superblock {
        Superblock {
            role,
            ready: role != StoreRole::Service,
            members,
            service,
            store: random_id(),
        }
    }

    fn encode(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        let (role, member) = match self.role {
            StoreRole::Service => (0, 0),
            StoreRole::Member(member) => (1, member),
        };
        b[0..8].copy_from_slice(MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_be_bytes());
        b[12] = role;
        b[13] = u8::from(self.ready);
        b[14..16].copy_from_slice(&member.to_be_bytes());
        b[16..18].copy_from_slice(&self.members.to_be_bytes());
        b[28..44].copy_from_slice(&self.service);
        b[44..60].copy_from_slice(&self.store);
        let sum = forebay_checksum::crc32c(&b[..CHECKSUMMED]);
        b[CHECKSUMMED..].copy_from_slice(&sum.to_be_bytes());
        b
    }

    fn decode(path: &Path, b: &[u8]) -> Result<Superblock> {
        let at = path.display();
        if b.len() < 12 || !b.starts_with(MAGIC) {
            return refuse(format!(
                "{at} is not a superblock of Forebay, or damaged; choose another directory for the store; if this is one, put back a copy of this file, or run `forebay fsck --repair`"
            ));
        }
        if !is_whole(b) {
            return refuse(format!(
                "{at} is damaged (its checksum does not match); put back a copy of it, or run `forebay fsck --repair`"
            ));
        }
        let version = u32::from_be_bytes([b[8], b[9], b[10], b[11]]);
        if version > VERSION {
            return refuse(format!(
                "{at} is of version {version}, this program knows versions up to {VERSION}; use the newer Forebay that made it"
            ));
        }
        if version < VERSION {
            return refuse(format!(
                "{at} is of version {version}, which this program does not read; copy the files out with the Forebay that made it"
            ));
        }
        let role = match b[12] {
            0 => StoreRole::Service,
            _ => StoreRole::Member(u16::from_be_bytes([b[14], b[15]])),
        };
        let (mut service, mut store) = (Uuid::default(), Uuid::default());
        service.copy_from_slice(&b[28..44]);
        store.copy_from_slice(&b[44..60]);
        Ok(Superblock {
            role,
            ready: b[13] == 1,
            members: u16::from_be_bytes([b[16], b[17]]),
            service,
            store,
        })
    }

    /// Reads the superblock in `dir`, or its copy where that is damaged or missing; `None` if there is neither.
    ///
    /// # Errors
    /// `Refused` for one that is foreign or of another version, if both are damaged, or cannot be read.
    pub fn read(io: &dyn Io, dir: &Path) -> Result<Option<Superblock>> {
        match Superblock::find(io, dir)? {
            FoundSuperblock::Whole(block) => Ok(Some(block)),
            FoundSuperblock::Missing => Ok(None),
            FoundSuperblock::Damaged(e) => Err(e),
        }
    }

    /// As [`read`](Superblock::read), and tells damage of both copies from other errors.
    ///
    /// # Errors
    /// `Refused` for one of another version, and if one cannot be read.
    pub fn find(io: &dyn Io, dir: &Path) -> Result<FoundSuperblock> {
        let [first, copy] = read_both(io, dir)?;
        Ok(match (first.fault(), copy) {
            (Some(what), copy @ FoundSuperblock::Whole(_)) => {
                let file = dir.join(FILE_NAME);
                tracing::warn!(file = %file.display(), "the superblock is {what}; its copy is used");
                copy
            }
            (_, copy) => match first {
                FoundSuperblock::Missing => copy,
                first => first,
            },
        })
    }

    /// As [`read`](Superblock::read), and writes a file that is damaged, missing or older again. The directory must be locked. What was
    /// wrong is said for people.
    ///
    /// # Errors
    /// As [`read`](Superblock::read).
    pub fn read_and_repair(io: &dyn Io, dir: &Path) -> Result<(Option<Superblock>, Vec<String>)> {
        let Some(block) = Superblock::read(io, dir)? else {
            return Ok((None, Vec::new()));
        };
        let found = read_both(io, dir)?;
        let whole = |f: &FoundSuperblock| matches!(f, FoundSuperblock::Whole(b) if *b == block);
        if found.iter().all(whole) {
            return Ok((Some(block), Vec::new()));
        }
        // The store can be used without: a full disk takes no copy now.
        let outcome = match block.write(io, dir) {
            Ok(()) => "it was made again from the other copy".to_string(),
            Err(e) => format!("it could not be made again from the other copy: {e}"),
        };
        let said = |(found, name): (&FoundSuperblock, &str)| {
            let file = dir.join(name);
            let what = found.fault()?;
            Some(format!("{} was {what}; {outcome}", file.display()))
        };
        let files = found.iter().zip([FILE_NAME, COPY_NAME]);
        let said: Vec<String> = files.filter_map(said).collect();
        said.iter().for_each(|text| tracing::warn!("{text}"));
        Ok((Some(block), said))
    }

    /// Writes the superblock and its copy into `dir`, in place of older ones, on disk when it returns.
    ///
    /// # Errors
    /// `Refused` naming what the disk said.
    pub fn write(&self, io: &dyn Io, dir: &Path) -> Result<()> {
        let new = dir.join(TEMPORARY_NAME);
        [FILE_NAME, COPY_NAME].iter().try_for_each(|name| {
            let path = dir.join(name);
            let written = (|| {
                if io.exists(&new)? {
                    // Left by a crash in the middle of this.
                    io.remove(&new)?;
                }
                let file = io.create(&new)?;
                file.write_at(&self.encode(), 0)?;
                file.sync()?;
                io.rename(&new, &path)?;
                io.sync_dir(dir)
            })();
            written.map_err(|e| unwritable(&path, &e))
        })
    }
}

/// Whether there is a superblock in `dir`, or a copy of one.
///
/// # Errors
/// Those of looking.
pub fn is_in(io: &dyn Io, dir: &Path) -> std::io::Result<bool> {
    Ok(io.exists(&dir.join(FILE_NAME))? || io.exists(&dir.join(COPY_NAME))?)
}

/// What is found of a superblock, or of one of its two files.
pub enum FoundSuperblock {
    /// It is not there.
    Missing,
    /// It can be read.
    Whole(Superblock),
    /// It is there, and what is wrong with it.
    Damaged(Error),
}

impl FoundSuperblock {
    /// What is wrong, if anything is.
    fn fault(&self) -> Option<&'static str> {
        match self {
            FoundSuperblock::Whole(_) => None,
            FoundSuperblock::Missing => Some("missing"),
            FoundSuperblock::Damaged(_) => Some("damaged"),
        }
    }
}

/// The superblock and its copy.
fn read_both(io: &dyn Io, dir: &Path) -> Result<[FoundSuperblock; 2]> {
    Ok([
        read_file(io, &dir.join(FILE_NAME))?,
        read_file(io, &dir.join(COPY_NAME))?,
    ])
}

/// # Errors
/// If it cannot be read, or is whole and of another version.
fn read_file(io: &dyn Io, path: &Path) -> Result<FoundSuperblock> {
    let unreadable = |e| refused_at(path, &e, "check who may read the store directory");
    if !io.exists(path).map_err(unreadable)? {
        return Ok(FoundSuperblock::Missing);
    }
    let file = io.open_to_read(path).map_err(unreadable)?;
    let mut bytes = [0; LEN + 1];
    let len = file.read_at(&mut bytes, 0).map_err(unreadable)?;
    let bytes = &bytes[..len];
    match Superblock::decode(path, bytes) {
        Ok(block) => Ok(FoundSuperblock::Whole(block)),
        Err(e) if is_whole(bytes) => Err(e),
        Err(e) => Ok(FoundSuperblock::Damaged(e)),
    }
}

/// Whether the bytes are a superblock as some version wrote it.
fn is_whole(b: &[u8]) -> bool {
    b.len() == LEN && b[CHECKSUMMED..] == forebay_checksum::crc32c(&b[..CHECKSUMMED]).to_be_bytes()
}

pub(crate) fn refuse<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// The refusal of a disk that takes nothing.
pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    refused_at(path, error, "check the disk and who may write there")
}

/// The refusal of what went wrong at a path, and what to do.
pub(crate) fn refused_at(path: &Path, error: &std::io::Error, advice: &str) -> Error {
    Error::Refused(format!("{}: {error}; {advice}", path.display()))
}

/// 128 bits that nobody can guess, for they serve as secrets too: from the operating system's randomness, which seeds the standard hasher.
pub fn random_id() -> Uuid {
    use std::hash::{BuildHasher, RandomState};
    let mut id = Uuid::default();
    for half in id.chunks_mut(8) {
        half.copy_from_slice(
            &RandomState::new()
                .hash_one(std::process::id())
                .to_be_bytes(),
        );
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;
    use proptest::prelude::*;

    fn sample() -> Superblock {
        Superblock::new(StoreRole::Member(3), 7, random_id())
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_refused(at in 0..LEN, bit in 0..8u8) {
            let mut bytes = sample().encode();
            bytes[at] ^= 1 << bit;
            prop_assert!(matches!(Superblock::decode(Path::new("x"), &bytes), Err(Error::Refused(_))));
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Superblock::decode(Path::new("x"), &bytes).is_err());
        }
    }

    #[test]
    fn what_is_written_is_read_also_over_an_older_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Superblock::read(&OsIo, dir.path()).unwrap(), None);
        sample().write(&OsIo, dir.path()).unwrap();
        let second = sample();
        second.write(&OsIo, dir.path()).unwrap();
        assert_eq!(Superblock::read(&OsIo, dir.path()).unwrap(), Some(second));
    }

    #[test]
    fn one_damaged_missing_or_older_copy_costs_nothing_and_is_made_again() {
        let (dir, block) = (tempfile::tempdir().unwrap(), sample());
        for name in [FILE_NAME, COPY_NAME] {
            let path = dir.path().join(name);
            for harm in 0..LEN * 8 + 3 {
                block.write(&OsIo, dir.path()).unwrap();
                let mut bytes = block.encode().to_vec();
                match harm.checked_sub(3) {
                    Some(bit) => {
                        bytes[bit / 8] ^= 1 << (bit % 8);
                        std::fs::write(&path, bytes).unwrap();
                    }
                    None if harm == 0 => std::fs::remove_file(&path).unwrap(),
                    None => std::fs::write(&path, &bytes[..(harm - 1) * 20]).unwrap(),
                }
                let found = Superblock::read(&OsIo, dir.path());
                assert_eq!(found.unwrap().as_ref(), Some(&block), "{name} {harm}");
                assert!(is_in(&OsIo, dir.path()).unwrap());
                let (found, said) = Superblock::read_and_repair(&OsIo, dir.path()).unwrap();
                assert_eq!(found.as_ref(), Some(&block));
                assert!(said.len() == 1 && said[0].contains(name), "{said:?}");
                for name in [FILE_NAME, COPY_NAME] {
                    assert_eq!(
                        std::fs::read(dir.path().join(name)).unwrap(),
                        block.encode()
                    );
                }
                let (_, said) = Superblock::read_and_repair(&OsIo, dir.path()).unwrap();
                assert!(said.is_empty(), "{said:?}");
            }
        }
        // A crash between both: the first is newer.
        let newer = sample();
        std::fs::write(dir.path().join(FILE_NAME), newer.encode()).unwrap();
        let (found, said) = Superblock::read_and_repair(&OsIo, dir.path()).unwrap();
        assert_eq!((found.as_ref(), said.len()), (Some(&newer), 0));
        assert_eq!(
            std::fs::read(dir.path().join(COPY_NAME)).unwrap(),
            newer.encode()
        );
        // Both damaged.
        for name in [FILE_NAME, COPY_NAME] {
            std::fs::write(dir.path().join(name), &newer.encode()[..50]).unwrap();
        }
        assert!(Superblock::read(&OsIo, dir.path()).is_err());
    }

    #[test]
    fn a_crash_at_any_call_leaves_the_older_or_the_newer_one() {
        use forebay_storage::fault::FaultIo;
        let dir = Path::new("/store");
        let (older, newer) = (sample(), sample());
        for call in 1.. {
            let io = FaultIo::new(call);
            io.create_dir_all(dir).unwrap();
            io.sync_dir(Path::new("/")).unwrap();
            older.write(&io, dir).unwrap();
            io.stop_after(call);
            let done = newer.write(&io, dir).is_ok();
            let io = FaultIo::with_image(&io.crash(), 1);
            let found = Superblock::read(&io, dir).unwrap();
            assert!(found == Some(newer.clone()) || !done && found == Some(older.clone()));
            let (again, _) = Superblock::read_and_repair(&io, dir).unwrap();
            assert_eq!(again, found, "call {call}");
            if done {
                break;
            }
        }
    }

    #[test]
    fn another_version_says_so() {
        for (version, advice) in [(9u32, "newer Forebay"), (2, "copy the files out")] {
            let mut bytes = sample().encode();
            bytes[8..12].copy_from_slice(&version.to_be_bytes());
            let sum = forebay_checksum::crc32c(&bytes[..CHECKSUMMED]);
            bytes[CHECKSUMMED..].copy_from_slice(&sum.to_be_bytes());
            let error = Superblock::decode(Path::new("x"), &bytes).unwrap_err();
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
