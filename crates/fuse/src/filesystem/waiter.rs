//! Threads that wait in the place of those that answer requests.

/// Stack of such a thread; it does little.
const WAITER_STACK: usize = 256 << 10;

/// Does `work` on a thread of its own. If there is none, `work` is dropped, and a reply in it has said `EIO`; the log says that there
/// was none `purpose` ("to ...").
pub(super) fn spawn_waiter(name: &str, purpose: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into());
    if let Err(error) = thread.stack_size(WAITER_STACK).spawn(work) {
        tracing::error!(%error, "no thread {purpose}; raise the limit of processes");
    }
}
