//! The calls on a [`FaultIo`] disk: each is counted, and fails if the test asked for that.
use super::FaultIo;
use super::disk::{Change, Disk, NameChange};
use crate::shared_sync::SharedSync;
use crate::{DirEntry, File, Io};
use parking_lot::MutexGuard;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl FaultIo {
    /// The disk, for a call of this name.
    fn call(&self, name: &'static str) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = self.disk.lock();
        disk.faults.call(name)?;
        Ok(disk)
    }

    fn handle(&self, inode: u64) -> Arc<dyn File> {
        Arc::new(Handle {
            disk: self.clone(),
            inode,
            syncs: SharedSync::default(),
        })
    }
}

impl Io for FaultIo {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.call("open")?;
        let number = disk.names.file(path)?;
        disk.inode(number)?.handles += 1;
        Ok(self.handle(number))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.call("create")?;
        if disk.names.live.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        disk.names.need_directory(path.parent())?;
        let number = disk.add_open();
        disk.change_name(NameChange::Link(path.to_path_buf(), Some(number)));
        Ok(self.handle(number))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.call("rename")?;
        let inode = disk.names.file(from)?;
        disk.names.need_directory(to.parent())?;
        if from != to {
            disk.change_name(NameChange::Rename(from.into(), to.into(), inode));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.call("remove")?;
        disk.names.file(path)?;
        disk.change_name(NameChange::Unlink(path.to_path_buf()));
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let disk = self.call("exists")?;
        Ok(disk.names.live.contains_key(path) || path.parent().is_none())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let disk = self.call("list")?;
        disk.names.need_directory(Some(dir))?;
        let names = disk.names.live.iter();
        let inside = names.filter(|(p, _)| p.parent() == Some(dir));
        let entry = |(p, inode): (&PathBuf, &Option<u64>)| DirEntry {
            name: p
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            len: inode.map_or(0, |n| disk.bytes(n).len() as u64),
            is_dir: inode.is_none(),
        };
        Ok(inside.map(entry).collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.call("create_dir_all")?;
        let missing = |d: &&Path| d.parent().is_some() && !disk.names.live.contains_key(*d);
        let mut missing: Vec<_> = dir.ancestors().filter(missing).collect();
        missing.reverse();
        for path in missing {
            disk.change_name(NameChange::Link(path.to_path_buf(), None));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.call("sync_dir")?;
        disk.names.need_directory(Some(dir))?;
        disk.names.sync_dir(dir);
        disk.forget_unreachable();
        Ok(())
    }

    fn space(&self, _dir: &Path) -> io::Result<(u64, u64)> {
        let disk = self.call("space")?;
        Ok((disk.capacity.saturating_sub(disk.used()), disk.capacity))
    }
}

/// An open file.
struct Handle {
    disk: FaultIo,
    inode: u64,
    syncs: SharedSync,
}

impl Handle {
    /// Changes the length, or zeroes a range.
    fn change(&self, change: Change) -> io::Result<()> {
        self.disk.call("change")?.change(self.inode, change)
    }
}

impl File for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.disk.call("read_at")?;
        let live = disk.bytes(self.inode);
        let from = (offset as usize).min(live.len());
        let n = buf.len().min(live.len() - from);
        buf[..n].copy_from_slice(&live[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.disk.disk.lock().write_at(self.inode, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.call("len")?.bytes(self.inode).len() as u64)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.disk.call("allocated")?.allocated(self.inode))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::Length(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut disk = self.disk.call("allocate")?;
        disk.allocate(self.inode, offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Change::Zero(offset, len))
    }

    fn sync(&self) -> io::Result<()> {
        self.syncs.run(|| self.disk.disk.lock().sync(self.inode))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.disk.disk.lock().close(self.inode);
    }
}
