//! How an extent is stored: one entry of the keyspace.
//!
//! ```text
//! key    0        8        16
//!        | fid    | offset |          u64 big-endian each: keys sort by file, then by offset
//! value  0    1
//!        | v  | len | member | log | addr | seq |
//!          |    each a varint: 7 bits a byte, low bits first, top bit set on all bytes but the last
//!          version of this layout, now 1
//! ```
//!
//! Varints, because most lengths, members, logs and sequences are small: a value is 8 to 15 bytes, not 42. No
//! checksum here: the store's log records and blocks carry one. Decoding still checks every field, so that a
//! program error cannot turn into wrong bytes of a file.

use crate::{Extent, MAX_EXTENT, extent};
use forebay_storage::{Error, Result};
use std::path::PathBuf;

const VERSION: u8 = 1;
/// Length of a key in bytes.
pub(crate) const KEY: usize = 16;

/// The key of the extent of `fid` that starts at `offset`.
pub(crate) fn key(fid: u64, offset: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&fid.to_be_bytes());
    key[8..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The value of an extent; its offset is in the key.
pub(crate) fn value(extent: &Extent) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.push(VERSION);
    let member = u64::from(extent.member);
    for field in [extent.len, member, extent.log, extent.addr, extent.seq] {
        put_varint(&mut out, field);
    }
    out
}

/// The file and the extent of one entry.
///
/// # Errors
/// [`Error::Format`] when the entry is of another version, or no extent that this crate would have stored.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(u64, Extent)> {
    let (Some((fid, rest)), Some((&version, mut fields))) =
        (key.split_first_chunk::<8>(), value.split_first())
    else {
        return Err(bad(key, "too short"));
    };
    let Ok(offset) = <[u8; 8]>::try_from(rest) else {
        return Err(bad(key, "its key is not 16 bytes"));
    };
    if version != VERSION {
        let reason =
            format!("it has version {version}, this program knows {VERSION}; use a newer Forebay");
        return Err(bad(key, &reason));
    }
    let mut next = || take_varint(&mut fields).ok_or_else(|| bad(key, "its value is cut short"));
    let (len, member, log, addr, seq) = (next()?, next()?, next()?, next()?, next()?);
    if !fields.is_empty() {
        return Err(bad(key, "bytes follow its value"));
    }
    let member = u16::try_from(member).map_err(|_| bad(key, "no such member number"))?;
    let (fid, offset) = (u64::from_be_bytes(*fid), u64::from_be_bytes(offset));
    let room = extent::slice_end(offset) - offset;
    if len == 0 || len > MAX_EXTENT.min(room) {
        return Err(bad(key, "its length breaks the index's rules"));
    }
    Ok((
        fid,
        Extent {
            offset,
            len,
            member,
            log,
            addr,
            seq,
        },
    ))
}

fn bad(key: &[u8], reason: &str) -> Error {
    let name = match <[u8; KEY]>::try_from(key) {
        Ok(k) => {
            let key = u128::from_be_bytes(k);
            format!("fid {} offset {}", key >> 64, key as u64)
        }
        Err(_) => format!("key {key:02x?}"),
    };
    Error::Format {
        path: PathBuf::from("extent index"),
        reason: format!("the entry of {name} is not an extent: {reason}; run `forebay fsck`"),
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// `None` when the bytes end inside the number or it does not fit 64 bits.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}
