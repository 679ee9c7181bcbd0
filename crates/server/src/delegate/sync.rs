//! Bringing to disk what commits have published: this node's logs, and the index of every member involved.
use super::commit::LayerCommitter;
use super::context::DelegateContext;
use super::open_file::{OpenFile, StalePages, UnsyncedParts};
use super::windows::OwnerExtents;
use crate::Result;
use forebay_proto::files::SyncFile;
use std::sync::Arc;

/// Brings files to disk, wherever their parts are.
pub(super) struct FileSyncer {
    pub ctx: Arc<DelegateContext>,
    pub committer: Arc<LayerCommitter>,
    pub extents: Arc<OwnerExtents>,
}

impl FileSyncer {
    /// Commits, and on disk on every member involved when it returns; the kernel's pages, if they may be older than what other nodes had
    /// published by then.
    pub fn sync(&self, file: &OpenFile) -> Result<Option<StalePages>> {
        let publishes = !file.state.lock().pending.is_empty();
        self.committer.publish_synced(file)?;
        if !file.state.lock().sync_state_complete {
            self.complete_sync_state(file)?;
        }
        self.sync_rest(file)?;
        if self.ctx.members() == 1 || self.ctx.posix {
            return Ok(None);
        }
        // A commit that began after this call brought a view that is new enough with it.
        if !publishes {
            self.ctx.refresh(file)?;
        }
        Ok(file.state.lock().stale_pages(file.fid))
    }

    /// The node forgot this file once: all its logs that the file's extents name count as not on disk.
    fn complete_sync_state(&self, file: &OpenFile) -> Result<()> {
        let layout = file.state.lock().attr.layout;
        let unsynced = UnsyncedParts {
            logs: self.extents.own_logs(file.fid, layout)?,
            members: self.extents.extent_members(file.fid, layout).collect(),
        };
        let mut state = file.state.lock();
        state.unsynced.add(unsynced);
        state.sync_state_complete = true;
        Ok(())
    }

    /// What earlier commits did not bring to disk.
    fn sync_rest(&self, file: &OpenFile) -> Result<()> {
        let _one = file.sync_lock.lock();
        let unsynced = std::mem::take(&mut file.state.lock().unsynced);
        if unsynced.is_empty() {
            return Ok(());
        }
        let data = &self.ctx.node.data;
        let mut logs = unsynced.logs.iter();
        let synced = logs.try_for_each(|log| data.sync_bytes(*log));
        let synced = synced.and_then(|()| match unsynced.logs.is_empty() {
            true => Ok(()),
            false => data.sync_records(),
        });
        let synced = synced.and_then(|()| {
            unsynced.members.iter().try_for_each(|member| {
                let request = SyncFile { fid: file.fid };
                self.ctx.call(*member, request)
            })
        });
        if synced.is_err() {
            file.state.lock().unsynced.add(unsynced);
        }
        synced
    }
}
