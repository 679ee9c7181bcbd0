//! The record of one inode (keyspace `INODES`, key: fid, 8 bytes big-endian):
//!
//! ```text
//! 0         1
//! +---------+------------------------------------------------+
//! | version | the fields of `Inode` in order, as postcard    |
//! +---------+------------------------------------------------+
//! ```
//!
//! The version is 4. Version 3 has no codec hint, the last field: it is read as none. Version 2 has no device files either. Version
//! 1 has no layout, the field before: it is read as `BySlice` if anything was ever published, else as `OwnerOnly`. Another one is
//! refused: it is a store of a newer Forebay. The store's blocks and log records carry the checksums.
use crate::{Error, ExtentLayout, Fid, Result};
pub use forebay_proto::Inode;

pub(super) const VERSION: u8 = 4;
/// Without the codec hint.
pub(super) const VERSION_3: u8 = 3;
/// The same fields, without device files.
pub(super) const VERSION_2: u8 = 2;
/// Without the layout.
pub(super) const VERSION_1: u8 = 1;

/// Writes a record of keyspace `INODES`.
#[expect(clippy::expect_used, reason = "proved beside the call")]
pub(crate) fn encode(inode: &Inode) -> Vec<u8> {
    // postcard fails only for sequences of unknown length and full fixed buffers: an inode has neither.
    postcard::to_extend(inode, vec![VERSION]).expect("an inode has no type that postcard refuses")
}

/// Reads a record of keyspace `INODES`.
pub(crate) fn decode(fid: Fid, value: &[u8]) -> Result<Inode> {
    let fields = |bytes: &[u8]| {
        postcard::from_bytes::<Inode>(bytes)
            .map_err(|e| Error::Corrupt(format!("inode {fid:#x}: {e}; run `forebay fsck`")))
    };
    match value.split_first() {
        Some((&VERSION, rest)) => fields(rest),
        // The hint is the last field: one byte, of none.
        Some((&(VERSION_3 | VERSION_2), rest)) => fields(&[rest, &[0]].concat()),
        Some((&VERSION_1, rest)) => {
            // The layout is the field before: one byte, of the first kind.
            let mut inode = fields(&[rest, &[0, 0]].concat())?;
            if inode.seq > 0 {
                inode.layout = ExtentLayout::BySlice;
            }
            Ok(inode)
        }
        Some((version, _)) => Err(Error::Corrupt(format!(
            "inode {fid:#x}: record version {version}, known is {VERSION}; use the newer Forebay that wrote it"
        ))),
        None => Err(Error::Corrupt(format!(
            "inode {fid:#x}: empty record; run `forebay fsck`"
        ))),
    }
}
