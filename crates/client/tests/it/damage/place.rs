//! Damage: one place of one file of a store, and the change of its bytes.
use forebay_testkit::random::Random;
use std::fmt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;
/// What is misplaced, bytes.
pub const PAGE: u64 = 4096;

/// How bytes are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// One bit is another.
    Flip,
    /// The end is missing.
    Cut,
    /// Two to eight bytes are others.
    Overwritten,
    /// A sector holds zeros.
    Zeroed,
    /// A page holds what another page of the file holds.
    Misplaced,
}

/// One place of one file, and what is done there.
#[derive(Debug, Clone)]
pub struct DamagedPlace {
    /// By its path in the stores' directory.
    pub file: PathBuf,
    pub bytes: Range<u64>,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    Flip(u8),
    Cut,
    Bytes(Vec<u8>),
    Page(u64),
}

impl fmt::Display for DamagedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, at) = (self.file.display(), self.bytes.start);
        match &self.change {
            Change::Flip(bit) => write!(f, "{file} byte {at} bit {bit}"),
            Change::Cut => write!(f, "{file} cut to {at} bytes"),
            Change::Bytes(bytes) if bytes.is_empty() => write!(f, "{file} sector at {at} zeroed"),
            Change::Bytes(bytes) => write!(f, "{file} {} bytes at {at} overwritten", bytes.len()),
            Change::Page(from) => write!(f, "{file} page at {at} is that at {from}"),
        }
    }
}

impl DamagedPlace {
    /// No damage.
    pub fn nowhere() -> DamagedPlace {
        DamagedPlace {
            file: "nothing".into(),
            bytes: 0..0,
            change: Change::Bytes(Vec::new()),
        }
    }

    /// These bytes of a file are others, each of them.
    pub fn overwritten(file: &Path, bytes: Range<u64>) -> DamagedPlace {
        let len = (bytes.end - bytes.start) as usize;
        DamagedPlace {
            file: file.into(),
            bytes,
            change: Change::Bytes(vec![0x5A; len]),
        }
    }

    /// A random place of a file of `len` bytes, which are not none.
    pub fn random(file: PathBuf, len: u64, kind: DamageKind, random: &mut Random) -> DamagedPlace {
        let at = random.below(len);
        let to = |bytes: u64| at..(at + bytes).min(len);
        let whole = |unit: u64| at / unit * unit..((at / unit + 1) * unit).min(len);
        let (bytes, change) = match kind {
            DamageKind::Flip => (to(1), Change::Flip(random.below(8) as u8)),
            DamageKind::Cut => (at..len, Change::Cut),
            DamageKind::Overwritten => {
                let bytes = to(2 + random.below(7));
                let others = bytes.clone().map(|_| 1 + random.below(255) as u8).collect();
                (bytes, Change::Bytes(others))
            }
            DamageKind::Zeroed => (whole(SECTOR), Change::Bytes(Vec::new())),
            DamageKind::Misplaced => (
                whole(PAGE),
                Change::Page(random.below(len.div_ceil(PAGE)) * PAGE),
            ),
        };
        DamagedPlace {
            file,
            bytes,
            change,
        }
    }

    /// Whether it is one bit.
    pub fn is_flip(&self) -> bool {
        matches!(self.change, Change::Flip(_))
    }

    /// Whether it is in a segment file.
    pub fn is_of_data(&self) -> bool {
        self.file.extension().is_some_and(|e| e == "seg")
    }

    /// Does it to the file in the stores' directory. False if the file is what it was.
    pub fn damage(&self, root: &Path) -> bool {
        let path = root.join(&self.file);
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).open(&path).unwrap();
        if let Change::Cut = self.change {
            file.set_len(self.bytes.start).unwrap();
            return true;
        }
        let mut old = vec![0; (self.bytes.end - self.bytes.start) as usize];
        file.read_exact_at(&mut old, self.bytes.start).unwrap();
        let new = match &self.change {
            Change::Flip(bit) => vec![old[0] ^ 1 << bit],
            // What is there is never added to by zero.
            Change::Bytes(add) if !add.is_empty() => {
                let added = old.iter().zip(add).map(|(a, b)| a.wrapping_add(*b));
                added.collect()
            }
            Change::Bytes(_) | Change::Cut => vec![0; old.len()],
            Change::Page(from) => {
                let mut page = vec![0; old.len()];
                let n = file.read_at(&mut page, *from).unwrap();
                page.truncate(n);
                page.extend_from_slice(&old[n..]);
                page
            }
        };
        file.write_all_at(&new, self.bytes.start).unwrap();
        new != old
    }
}
