//! The context that the parts of a mount share.
use super::bypass_changes::BypassChanges;
use super::cache_policy::CachePolicy;
use super::page_fill_threads::PageFillThreads;
use super::write_back::WriteBack;
use crate::caller_groups::CallerGroups;
use crate::kernel_caches::KernelCaches;
use crate::open_handles::OpenHandles;
use crate::options::MountOptions;
use crate::recording::MountRecording;
use forebay_server::Delegate;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// See the head of this file.
pub(crate) struct MountContext {
    pub delegate: Arc<Delegate>,
    pub policy: CachePolicy,
    /// What makes the kernel's caches new; connected before the first request.
    pub caches: KernelCaches,
    /// Of files, past this mount.
    pub changes: BypassChanges,
    pub page_fill_threads: PageFillThreads,
    pub recording: Arc<MountRecording>,
    /// What is open.
    pub handles: Arc<OpenHandles>,
    /// Once it is set, every request fails with `ENOTCONN`.
    pub refused: Arc<AtomicBool>,
    /// Who has asked for anything.
    pub callers: Arc<CallerGroups>,
}

impl MountContext {
    pub fn new(delegate: Arc<Delegate>, options: &MountOptions) -> Arc<MountContext> {
        let recording = Arc::<MountRecording>::default();
        Arc::new(MountContext {
            policy: CachePolicy {
                alone: delegate.members() == 1,
                write_back: WriteBack::new(&delegate, options),
                recording: recording.clone(),
                entries_expire: AtomicBool::default(),
            },
            delegate,
            caches: KernelCaches::default(),
            changes: BypassChanges::default(),
            page_fill_threads: PageFillThreads::default(),
            recording,
            handles: Arc::default(),
            refused: Arc::default(),
            callers: Arc::default(),
        })
    }
}
