//! Extended attributes: passed on to the owner.
use super::{Delegate, expect_reply};
use crate::meta::proto::{MetaReply, MetaRequest};
use crate::{Fid, Result};

impl Delegate {
    /// A value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
        let _at = self.counters.other();
        let request = MetaRequest::GetXattr {
            fid,
            name: name.to_vec(),
        };
        expect_reply!(fid.owner(), self.node.peers.meta(fid.owner(), request), MetaReply::Bytes(value) => value)
    }

    /// Sets a value. `create`: only a new one; `replace`: only one that exists.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ERANGE`, `E2BIG`, `EOPNOTSUPP`.
    pub fn setxattr(
        &self,
        fid: Fid,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        let _at = self.counters.other();
        let request = MetaRequest::SetXattr {
            fid,
            name: name.to_vec(),
            value: value.to_vec(),
            create,
            replace,
        };
        expect_reply!(fid.owner(), self.node.peers.meta(fid.owner(), request), MetaReply::Done | MetaReply::Attr(_) => ())
    }

    /// All names.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let _at = self.counters.other();
        let request = MetaRequest::ListXattr { fid };
        expect_reply!(fid.owner(), self.node.peers.meta(fid.owner(), request), MetaReply::Names(names) => names)
    }

    /// Removes a value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn removexattr(&self, fid: Fid, name: &[u8]) -> Result<()> {
        let _at = self.counters.other();
        let request = MetaRequest::RemoveXattr {
            fid,
            name: name.to_vec(),
        };
        expect_reply!(fid.owner(), self.node.peers.meta(fid.owner(), request), MetaReply::Done | MetaReply::Attr(_) => ())
    }
}
