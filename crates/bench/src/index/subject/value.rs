//! Keys and values of the peers: fixed fields, 46 bytes a record.
//!
//! ```text
//! key    fid u64 BE | offset u64 BE                                            16 bytes, in the order of the file
//! value  member u16 LE | log u64 LE | addr u64 LE | len u32 LE | seq u64 LE    30 bytes
//! ```
use super::{FID, Record, RecordLocation};

/// Bytes of a key.
pub const KEY: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 30;

/// The key of the record at `offset`.
pub fn key(offset: u64) -> [u8; KEY] {
    let mut out = [0; KEY];
    out[..8].copy_from_slice(&FID.to_be_bytes());
    out[8..].copy_from_slice(&offset.to_be_bytes());
    out
}

/// The value of a record.
pub fn value(r: &Record) -> [u8; VALUE] {
    let mut out = [0; VALUE];
    out[..2].copy_from_slice(&r.member.to_le_bytes());
    out[2..10].copy_from_slice(&r.log.to_le_bytes());
    out[10..18].copy_from_slice(&r.addr.to_le_bytes());
    out[18..22].copy_from_slice(&r.len.to_le_bytes());
    out[22..].copy_from_slice(&r.seq.to_le_bytes());
    out
}

/// What a value says; `None` if it is none.
pub fn answer(bytes: &[u8]) -> Option<RecordLocation> {
    let bytes: &[u8; VALUE] = bytes.try_into().ok()?;
    Some(RecordLocation {
        member: u16::from_le_bytes(bytes[..2].try_into().ok()?),
        log: u64::from_le_bytes(bytes[2..10].try_into().ok()?),
        addr: u64::from_le_bytes(bytes[10..18].try_into().ok()?),
        len: u32::from_le_bytes(bytes[18..22].try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_keys_sort_as_offsets() {
        let record = Record {
            offset: 300,
            len: 4096,
            member: 2,
            log: u64::MAX - 1,
            addr: 1 << 40,
            seq: 9,
        };
        assert_eq!(answer(&value(&record)), Some(RecordLocation::of(&record)));
        assert_eq!(answer(&[0; 29]), None);
        assert!(key(255) < key(256) && key(256) < key(1 << 40));
    }
}
