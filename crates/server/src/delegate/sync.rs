//! Bringing to disk what commits have published: this node's logs, and the index of every member involved.
use super::open_file::{OpenFile, Unsynced};
use super::{Delegate, Handle, StalePages};
use crate::{ExtentLayout, Result};
use forebay_proto::files::SyncFile;

impl Delegate {
    /// Commits, and on disk on every member involved when it returns. Reads that follow see what other nodes had published
    /// by then: MPI programs rely on that (sync, barrier, sync). If the answer names stale pages, the kernel has some that
    /// are older than that: drop them, then call [`KernelPages::dropped_pages`](super::KernelPages::dropped_pages), and only then let the program go on.
    ///
    /// # Errors
    /// As flush; `EIO` also if the file's owner is dead.
    pub fn fsync(&self, handle: Handle) -> Result<Option<StalePages>> {
        let _at = self.counters.other();
        let open = self.table.get(handle)?;
        open.used();
        let publishes = !open.file.state.lock().pending.is_empty();
        self.committer.publish(&open.file, true)?;
        if !open.file.state.lock().sync_state_complete {
            self.complete_sync_state(&open.file)?;
        }
        self.sync_rest(&open.file)?;
        if self.node.peers.members() == 1 || self.posix {
            return Ok(None);
        }
        // A commit that began after this call brought a view that is new enough with it.
        if !publishes {
            self.views.refresh(&open.file)?;
        }
        Ok(open.file.state.lock().stale_pages(open.file.fid))
    }

    /// The node forgot this file once: all its logs that the file's extents name count as not on disk.
    fn complete_sync_state(&self, file: &OpenFile) -> Result<()> {
        let mut unsynced = Unsynced::default();
        let layout = file.state.lock().attr.layout;
        if layout == ExtentLayout::Patterned {
            unsynced.members.insert(file.fid.owner());
            unsynced.logs = self.extents.own_logs(file.fid)?;
        } else {
            for member in 0..self.node.peers.members() {
                unsynced.members.insert(member);
                let extents = self.node.all_extents(member, file.fid)?;
                let own = extents
                    .iter()
                    .filter(|e| e.member == self.node.peers.member());
                unsynced.logs.extend(own.map(|e| e.log));
            }
        }
        let mut state = file.state.lock();
        state.unsynced.logs.extend(unsynced.logs);
        state.unsynced.members.extend(unsynced.members);
        state.sync_state_complete = true;
        Ok(())
    }

    /// What earlier commits did not bring to disk.
    fn sync_rest(&self, file: &OpenFile) -> Result<()> {
        let unsynced = std::mem::take(&mut file.state.lock().unsynced);
        if unsynced.is_empty() {
            return Ok(());
        }
        let data = &self.node.data;
        let mut logs = unsynced.logs.iter();
        let synced = logs.try_for_each(|log| data.sync_bytes(*log));
        let synced = synced.and_then(|()| match unsynced.logs.is_empty() {
            true => Ok(()),
            false => data.sync_records(),
        });
        let synced = synced.and_then(|()| {
            unsynced.members.iter().try_for_each(|member| {
                let request = SyncFile { fid: file.fid };
                self.node.peers.call(*member, request)
            })
        });
        if synced.is_err() {
            let mut state = file.state.lock();
            state.unsynced.logs.extend(unsynced.logs);
            state.unsynced.members.extend(unsynced.members);
        }
        synced
    }
}
