//! Making files, directories, symlinks, FIFOs, sockets and device files.
use super::attempt::AttemptError;
use super::operations::NamespaceOperations;
use super::plan::{NameInDirectory, OperationPlan};
use super::steps::{EntryTarget, Precondition};
use super::{entries, names};
use crate::inodes::leases::LeasedObject;
use crate::{Caller, Error, Fid, Kind, Member, NewInode, Result, Time, inodes::Inode};
use forebay_proto::meta::{AllocateFids, Create, CreateReply, NewOpen};
use rustix::io::Errno;

const SETGID: u32 = 0o2000;
/// Fids asked of another member at once.
const FIDS_PER_REQUEST: u32 = 64;

impl NamespaceOperations {
    pub fn create(&self, request: &Create, by: Member) -> Result<CreateReply> {
        let Create { parent, new, .. } = request;
        let (parent, name) = (*parent, &request.name[..]);
        names::check(name)?;
        if new.kind == Kind::Symlink {
            match new.target.len() {
                0 => return Err(Errno::NOENT.into()),
                1..=names::TARGET_MAX => {}
                _ => return Err(Errno::NAMETOOLONG.into()),
            }
        }
        let mut home = match new.kind {
            Kind::Dir => names::directory_member(parent, name, self.members.peers.members()),
            _ => self.local.member(),
        };
        self.retry(|| {
            let dir = self.local.directory(parent)?;
            if let Some(entry) = entries::get(&self.local.store, parent, name)? {
                return self.existing(entry, new.kind, request.exclusive);
            }
            let inode = inode(parent, &dir, new, request.caller, self.local.now());
            let for_whom = (by, request.open);
            match self.make(parent, name, home, &inode, for_whom) {
                // The member that should get the directory is down: this one can hold it as well.
                Err(AttemptError::Fail(Error::Fabric(_))) if home != self.local.member() => {
                    home = self.local.member();
                    Err(AttemptError::Changed)
                }
                other => other,
            }
        })
    }

    fn existing(
        &self,
        entry: EntryTarget,
        kind: Kind,
        exclusive: bool,
    ) -> Result<CreateReply, AttemptError> {
        if exclusive || kind != Kind::File {
            return Err(Errno::EXIST.into());
        }
        if entry.kind == Kind::Dir {
            return Err(Errno::ISDIR.into());
        }
        Ok(CreateReply {
            attr: self.attr_of_entry(entry)?,
            made: false,
            opened: false,
            leased: false,
        })
    }

    fn make(
        &self,
        dir: Fid,
        name: &[u8],
        home: Member,
        inode: &Inode,
        (by, open): (Member, Option<NewOpen>),
    ) -> Result<CreateReply, AttemptError> {
        let fid = self.unused_fid(home)?;
        let kind = inode.kind;
        let mut plan = OperationPlan::default();
        plan.change_entry(
            NameInDirectory { dir, name },
            None,
            Some(EntryTarget { fid, kind }),
            inode.ctime,
        );
        plan.require(Precondition::Make {
            fid,
            inode: Box::new(inode.clone()),
        });
        plan.open = open.filter(|_| kind == Kind::File).map(|open| (fid, open));
        // Before anybody else can find it, and change it.
        let leases = &self.local.inodes.leases;
        let grant = |(fid, open): (Fid, NewOpen)| {
            open.lease && leases.grant(LeasedObject::Attributes(fid), by)
        };
        Ok(CreateReply {
            leased: plan.open.is_some_and(grant),
            opened: self.coordinator.run(&plan, by)?,
            attr: inode.attr(fid),
            made: true,
        })
    }

    /// A fid of member `home` that was never used. Those of others are asked for many at a time.
    fn unused_fid(&self, home: Member) -> Result<Fid> {
        if home == self.local.member() {
            return self.local.inodes.allocate_fid();
        }
        if let Some(fid) = self.fids.lock().get_mut(&home).and_then(Vec::pop) {
            return Ok(fid);
        }
        let mut fids = self.members.call(
            home,
            AllocateFids {
                count: FIDS_PER_REQUEST,
            },
        )?;
        let fid = fids.pop().ok_or_else(|| Error::Peer {
            member: home,
            reason: "gave none of its fids for a new directory".into(),
        })?;
        self.fids.lock().entry(home).or_default().extend(fids);
        Ok(fid)
    }
}

/// A new inode in directory `dir`: in a set-group-id directory it takes the directory's group, and a directory also
/// the bit. Files and directories take the directory's codec hint; where it has none, a file that of its name.
fn inode(parent: Fid, dir: &Inode, new: &NewInode, caller: Caller, now: Time) -> Inode {
    let is_dir = new.kind == Kind::Dir;
    let inherit = dir.mode & SETGID != 0;
    let mode = match new.kind {
        Kind::Symlink => 0o777,
        Kind::Dir if inherit => new.mode | SETGID,
        _ => new.mode,
    };
    let gid = if inherit { dir.gid } else { caller.gid };
    let codec = match new.kind {
        Kind::File => dir.codec.or(new.codec),
        Kind::Dir => dir.codec,
        _ => None,
    };
    Inode {
        codec,
        nlink: if is_dir { 2 } else { 1 },
        rdev: new.rdev,
        parent: if is_dir { parent } else { Fid(0) },
        target: new.target.clone(),
        ..Inode::new(new.kind, mode, caller.uid, gid, now)
    }
}
