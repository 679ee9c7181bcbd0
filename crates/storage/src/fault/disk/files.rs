//! Calls on open files: bytes, lengths, pages, syncs.
use super::{Change, Disk, PAGE, apply};
use std::io::{self, ErrorKind};

impl Disk {
    pub fn write_at(&mut self, number: u64, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Err(e) = self.faults.call("write_at") {
            let part = self.draws.below(buf.len() as u64) as usize;
            // The process that was stopped for good writes nothing more, except at the very call where it stopped.
            if !self.faults.was_stopped_before() {
                self.write_part(number, &buf[..part], offset)?;
            }
            return Err(e);
        }
        let room = self.room(number, offset, buf.len() as u64)?;
        if room < buf.len() as u64 {
            self.write_part(number, &buf[..room as usize], offset)?;
            return Err(ErrorKind::StorageFull.into());
        }
        self.write_part(number, buf, offset)
    }

    /// How many of `length` bytes at `offset` fit on the disk.
    fn room(&mut self, number: u64, offset: u64, length: u64) -> io::Result<u64> {
        let mut free = (self.capacity / PAGE).saturating_sub(self.used_pages);
        let inode = self.inode(number)?;
        for page in offset / PAGE..(offset + length).div_ceil(PAGE) {
            if !inode.pages.contains(&page) {
                if free == 0 {
                    return Ok((page * PAGE).saturating_sub(offset));
                }
                free -= 1;
            }
        }
        Ok(length)
    }

    fn own(&mut self, number: u64, offset: u64, length: u64) -> io::Result<()> {
        let inode = self.inode(number)?;
        let before = inode.pages.len();
        inode
            .pages
            .extend(offset / PAGE..(offset + length).div_ceil(PAGE));
        let added = inode.pages.len() - before;
        self.used_pages += added as u64;
        Ok(())
    }

    fn write_part(&mut self, number: u64, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        self.own(number, offset, buf.len() as u64)?;
        let inode = self.inode(number)?;
        apply(&mut inode.live, &Change::Write(offset, buf.to_vec()));
        inode.changes.push(Change::Write(offset, buf.to_vec()));
        Ok(())
    }

    /// Changes the length, or zeroes a range; both may free pages.
    pub fn change(&mut self, number: u64, change: Change) -> io::Result<()> {
        let inode = self.inode(number)?;
        let before = inode.pages.len();
        match &change {
            Change::Length(len) => drop(inode.pages.split_off(&len.div_ceil(PAGE))),
            Change::Zero(from, len) => inode
                .pages
                .retain(|p| *p < from.div_ceil(PAGE) || *p >= (from + len) / PAGE),
            Change::Write(..) => {}
        }
        let freed = before - inode.pages.len();
        apply(&mut inode.live, &change);
        inode.changes.push(change);
        self.used_pages -= freed as u64;
        Ok(())
    }

    pub fn allocate(&mut self, number: u64, offset: u64, length: u64) -> io::Result<()> {
        if self.room(number, offset, length)? < length {
            return Err(ErrorKind::StorageFull.into());
        }
        self.own(number, offset, length)?;
        let inode = self.inode(number)?;
        if (inode.live.len() as u64) < offset + length {
            inode.live.resize((offset + length) as usize, 0);
            inode.changes.push(Change::Length(offset + length));
        }
        Ok(())
    }

    pub fn sync(&mut self, number: u64) -> io::Result<()> {
        let result = self.faults.call("sync");
        let stopped = self.faults.is_stopped();
        let inode = self.inode(number)?;
        match result {
            Ok(()) => inode
                .changes
                .drain(..)
                .for_each(|c| apply(&mut inode.durable, &c)),
            // The pages count as clean although they never reached the disk.
            Err(e) if !stopped => {
                inode.changes.clear();
                return Err(e);
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }
}
