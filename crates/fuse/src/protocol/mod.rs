//! The kernel's FUSE protocol, version 7, as much of it as a mount uses: requests are read and decoded, a [`Handler`] is asked,
//! and its answers are encoded. It knows the types that the service shows (`Fid`, `Attr`), and nothing of how a request is answered.
//!
//! ```text
//! request  | length 4 | opcode 4 | unique 8 | inode 8 | user 4 | group 4 | process 4 | 0 4 | arguments, names, bytes ... |
//! reply    | length 4 | -errno 4 | unique 8 | answer ... |
//! notice   | length 4 | code 4   | 0 8      | what ...   |
//! ```
//!
//! Numbers are the machine's own; each module draws what it reads or writes. The protocol is the kernel's user interface
//! (`linux/fuse.h`), and never changes what it has.
//!
//! Invariants:
//! - A reply goes to the descriptor that its request was read from. A [`Reply`] that is dropped has said `EIO`,
//!   so no request stays without an answer.
//! - What the kernel sends is not trusted to be whole: a request that is too short is answered `EIO`, an unknown one `ENOSYS`,
//!   upon which the kernel does without it.

mod arguments;
mod caller_processor;
mod dispatch;
#[cfg(test)]
mod fuzz;
mod kept_reply;
mod kernel_config;
mod opcode;
mod readers;
mod reading_threads;
mod reply;
mod request_polling;
mod session;
mod single_caller;
mod types;

pub(crate) use arguments::{
    AllocateRequest, CopyRequest, CreateRequest, LockRequest, ReadRequest, RenameRequest,
    SetAttrRequest, WriteRequest,
};
pub(crate) use dispatch::{Handler, OpenedHandle};
pub(crate) use kernel_config::KernelConfig;
pub(crate) use reply::{
    Answer, DirectoryEntries, EntryAnswer, IoctlAnswer, LockAnswer, Reply, XattrAnswer,
};
pub(crate) use session::{Notifier, ReadingRule, Session, join};
pub(crate) use types::{
    FileHandle, FopenFlags, InitFlags, OpenFlags, RenameFlags, Request, WriteFlags,
};
