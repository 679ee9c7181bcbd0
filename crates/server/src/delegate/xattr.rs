//! Extended attributes: passed on to the owner.
use super::Delegate;
use crate::{Fid, Result};
use forebay_proto::meta;

impl Delegate {
    /// A value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>> {
        let _at = self.counters.other();
        let request = meta::GetXattr {
            fid,
            name: name.to_vec(),
        };
        self.node.peers.call(fid.owner(), request)
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
        let request = meta::SetXattr {
            fid,
            name: name.to_vec(),
            value: value.to_vec(),
            create,
            replace,
        };
        self.node.peers.call(fid.owner(), request)
    }

    /// All names.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let _at = self.counters.other();
        let request = meta::ListXattrs { fid };
        self.node.peers.call(fid.owner(), request)
    }

    /// Removes a value.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn removexattr(&self, fid: Fid, name: &[u8]) -> Result<()> {
        let _at = self.counters.other();
        let request = meta::RemoveXattr {
            fid,
            name: name.to_vec(),
        };
        self.node.peers.call(fid.owner(), request)
    }
}
