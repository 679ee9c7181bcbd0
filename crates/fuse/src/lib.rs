//! The FUSE mount of a node: translates the kernel's requests to calls of the node's delegate.
//!
//! This crate knows FUSE: what the kernel caches and for how long, how requests and replies look, how a file system is
//! mounted and unmounted without touching any other mount. It must not know where bytes lie or how members talk.
//!
//! What the kernel may cache follows from the semantics (README, "What a program may rely on"): dirty pages in a service of one
//! member alone, else every write reaches the delegate before it returns; pages survive an open only if the content is unchanged;
//! names and attributes are kept for a second in a service of one member, with several only while their owner has leased them (those
//! of directories for `LEASE_TERM`, other attributes for one tick of the kernel's clock). Attributes of permanently laminated files
//! are always kept for a second. `filesystem/cache_policy` has the exceptions.

mod attempt;
mod caller_groups;
mod errors;
mod filesystem;
mod kernel_caches;
mod mount;
mod mount_calls;
mod mount_table;
mod mountpoint;
mod open_handles;
mod options;
mod protocol;
mod recording;
mod self_calls;
mod thread_status;

pub use errors::MountError;
pub use mount::{Mount, PendingMount};
pub use mount_table::{MountEntry, mounted_on, mounts};
pub use mountpoint::unmount;
pub use open_handles::{OpenHandles, OpenPath};
pub use options::{MountOptions, answering_threads};
pub use recording::MountRecording;
