//! Decides whether the kernel uses the writeback cache of FUSE: it then keeps written pages in its page cache and sends them later.
//!
//! A program's small writes then cost no request each. Before a close or an fsync reaches the mount, the kernel sends the pages,
//! size and times of the file, so both commit what they promise. Until then only this kernel knows them, and it ignores the size
//! and times that replies carry.
//!
//! Invariant: it is used only in a service of one member and in commit consistency: there no other node can see or change a page,
//! and no write is promised to be visible before a commit.
use super::dirty_page_budget::DirtyPageBudget;
use crate::options::MountOptions;
use crate::protocol::{InitFlags, KernelConfig};
use forebay_server::Delegate;
use std::sync::OnceLock;

/// What a kernel must offer for it: to see to set-id bits before it keeps a write, to write back before it lets direct I/O look, and to
/// cut a file as it opens it. That is Linux 6.6.
const NEEDED: InitFlags = InitFlags::FUSE_WRITEBACK_CACHE
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC);

/// What speaks for it and against it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteBackConditions {
    pub members: u16,
    /// Each write is to be visible elsewhere before it returns.
    pub posix: bool,
    pub read_only: bool,
    /// Whoever mounts allows it.
    pub allowed: bool,
    /// What the store has room for, bytes.
    pub free: u64,
}

impl WriteBackConditions {
    fn hold(self) -> bool {
        self.members == 1 && !self.posix && !self.read_only && self.allowed
    }
}

/// See the head of this file. Decided once, before the first request.
pub(crate) struct WriteBack {
    conditions: WriteBackConditions,
    pub budget: DirtyPageBudget,
    taken: OnceLock<bool>,
}

impl WriteBack {
    pub fn new(delegate: &Delegate, options: &MountOptions) -> WriteBack {
        WriteBack::for_conditions(WriteBackConditions {
            members: delegate.members(),
            posix: delegate.is_posix(),
            read_only: options.read_only,
            allowed: options.write_back,
            free: delegate.write_back.room().unwrap_or(0),
        })
    }

    pub(super) fn for_conditions(conditions: WriteBackConditions) -> WriteBack {
        WriteBack {
            conditions,
            budget: DirtyPageBudget::default(),
            taken: OnceLock::new(),
        }
    }

    /// Asks the kernel for it, if the conditions hold.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) {
        let wanted = self.conditions.hold();
        if wanted && !self.budget.is_enough(self.conditions.free) {
            tracing::info!(
                free = self.conditions.free,
                "the store has too little room for pages that the kernel would keep: each write is a request"
            );
            let _ = self.taken.set(false);
            return;
        }
        let taken = wanted && config.add_capabilities(NEEDED).is_ok();
        match (wanted, *self.taken.get_or_init(|| taken)) {
            (_, true) => {
                tracing::info!("the kernel keeps written pages until they are synced or closed");
            }
            (true, false) => {
                tracing::info!(
                    "this kernel cannot keep written pages: each write is a request; Linux 6.6 and later can"
                );
            }
            (false, false) => {
                tracing::debug!(conditions = ?self.conditions, "the kernel keeps no written pages");
            }
        }
    }

    pub fn is_on(&self) -> bool {
        self.taken.get().copied().unwrap_or(false)
    }
}
