//! Names of entries, and which member a new directory goes to.
use crate::{Fid, Member, Result};
use rustix::io::Errno;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest symlink target, in bytes.
pub const TARGET_MAX: usize = 4095;

/// Refuses what can never be a name.
///
/// # Errors
/// `ENAMETOOLONG` above 255 bytes; `ENOENT` for the empty name; `EINVAL` for `.`, `..`, and names with `/` or NUL.
pub fn check(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    if name == b"." || name == b".." || name.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

/// The member that gets a new directory: a hash of the parent and the name, so that a tree spreads over all members
/// and one directory stays at one. Only a choice: the entry's fid says where the directory really is.
pub fn directory_member(parent: Fid, name: &[u8], members: u16) -> Member {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ parent.0;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The low bits of FNV are weak for short names: mix them before the modulus.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((hash >> 32) % u64::from(members.max(1))) as Member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_posix() {
        assert_eq!(check(b"").unwrap_err().errno(), Errno::NOENT);
        assert_eq!(check(&[b'a'; 256]).unwrap_err().errno(), Errno::NAMETOOLONG);
        assert!(check(&[b'a'; 255]).is_ok());
        for bad in [&b"."[..], b"..", b"a/b", b"a\0b"] {
            assert_eq!(check(bad).unwrap_err().errno(), Errno::INVAL);
        }
        assert!(check(b"...").is_ok());
        assert!(check("zw\u{f6}lf".as_bytes()).is_ok());
    }

    #[test]
    fn directories_spread_over_members() {
        let mut count = [0u32; 4];
        for i in 0..4000 {
            count[usize::from(directory_member(Fid::ROOT, format!("d{i}").as_bytes(), 4))] += 1;
        }
        assert!(count.iter().all(|c| (800..1200).contains(c)), "{count:?}");
    }
}
