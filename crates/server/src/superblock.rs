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
//! off anywhere, the next start goes on where it stopped. Once it is ready, a missing member is refused, never made anew.
use crate::{Error, Member, Result};
use forebay_storage::Io;
use std::path::Path;

/// The version of the directory's layout and of all formats in it. Version 1 kept extents as entries of the key-value store, where
/// this program would not find them.
pub const VERSION: u32 = 2;
/// The name of the file.
pub const NAME: &str = "superblock";
const MAGIC: &[u8; 8] = b"FOREBAY\n";
const LEN: usize = 64;
const SUMMED: usize = 60;

/// A random 128-bit name.
pub type Id = [u8; 16];

/// Whose directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The directory of a whole service.
    Service,
    /// The store of one member.
    Member(Member),
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Whose directory.
    pub role: Role,
    /// Making it is finished.
    pub ready: bool,
    /// How many members the service has.
    pub members: u16,
    /// Names the service.
    pub service: Id,
    /// Names this directory.
    pub store: Id,
}

impl Superblock {
    /// A new directory of this service.
    pub fn new(role: Role, members: u16, service: Id) -> Superblock {
        Superblock {
            role,
            ready: role != Role::Service,
            members,
            service,
            store: random_id(),
        }
    }

    fn encode(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        let (role, member) = match self.role {
            Role::Service => (0, 0),
            Role::Member(member) => (1, member),
        };
        b[0..8].copy_from_slice(MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_be_bytes());
        b[12] = role;
        b[13] = u8::from(self.ready);
        b[14..16].copy_from_slice(&member.to_be_bytes());
        b[16..18].copy_from_slice(&self.members.to_be_bytes());
        b[28..44].copy_from_slice(&self.service);
        b[44..60].copy_from_slice(&self.store);
        let sum = crc32c::crc32c(&b[..SUMMED]);
        b[SUMMED..].copy_from_slice(&sum.to_be_bytes());
        b
    }

    fn decode(path: &Path, b: &[u8]) -> Result<Superblock> {
        let at = path.display();
        if b.len() < 12 || !b.starts_with(MAGIC) {
            return refuse(format!(
                "{at} is not a superblock of Forebay; choose another directory for the store"
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
        let expected = crc32c::crc32c(&b[..SUMMED.min(b.len())]).to_be_bytes();
        if b.len() != LEN || b[SUMMED..] != expected {
            return refuse(format!(
                "{at} is damaged (its checksum does not match); put back a copy of it, or start with a new store directory"
            ));
        }
        let role = match b[12] {
            0 => Role::Service,
            _ => Role::Member(u16::from_be_bytes([b[14], b[15]])),
        };
        let (mut service, mut store) = (Id::default(), Id::default());
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

    /// Reads the superblock in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// `Refused` for one that is foreign, newer, damaged or cannot be read.
    pub fn read(io: &dyn Io, dir: &Path) -> Result<Option<Superblock>> {
        let path = dir.join(NAME);
        let unreadable = |e| {
            Error::Refused(format!(
                "{}: {e}; check who may read the store directory",
                path.display()
            ))
        };
        if !io.exists(&path).map_err(unreadable)? {
            return Ok(None);
        }
        let file = io.open(&path).map_err(unreadable)?;
        let mut bytes = [0; LEN + 1];
        let len = file.read_at(&mut bytes, 0).map_err(unreadable)?;
        Superblock::decode(&path, &bytes[..len]).map(Some)
    }

    /// Writes the superblock into `dir`, in place of an older one, on disk when it returns.
    ///
    /// # Errors
    /// `Refused` naming what the disk said.
    pub fn write(&self, io: &dyn Io, dir: &Path) -> Result<()> {
        let (path, new) = (dir.join(NAME), dir.join("superblock.new"));
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
        written.map_err(|e: std::io::Error| {
            Error::Refused(format!(
                "{}: {e}; check the disk and who may write there",
                path.display()
            ))
        })
    }
}

fn refuse<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// 128 bits from the operating system's randomness (which seeds the standard hasher).
pub fn random_id() -> Id {
    use std::hash::{BuildHasher, RandomState};
    let mut id = Id::default();
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
        Superblock::new(Role::Member(3), 7, random_id())
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
    fn another_version_says_so() {
        for (version, advice) in [(9u32, "newer Forebay"), (1, "copy the files out")] {
            let mut bytes = sample().encode();
            bytes[8..12].copy_from_slice(&version.to_be_bytes());
            let error = Superblock::decode(Path::new("x"), &bytes).unwrap_err();
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
