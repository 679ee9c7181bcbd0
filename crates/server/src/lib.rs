//! A node server: attributes, ranges, the data plane, and the delegate that speaks to the node's own clients.
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | `meta` | names, directories, attributes that this member owns | extents, logs |
//! | `files` | content of the files it owns: sequences, commits, extents of its slices | names, log bytes |
//! | `team` | clients of several nodes that act together | what about |
//! | `locks` | advisory locks on the files it owns; what its node waits for | what a file holds |
//! | `delegate` | every file operation of the node's clients | what another member stores, and how |
//! | `outbox` | messages that must arrive | what a file holds |
//! | `node` | the parts of one member, wired to each other and to the other members | what requests mean |
//! | `node_server` | one member as it runs: the steps of its start and stop | how many run in this process |
//! | `service`, `layout` | a service in one process and its directory | |
//! | `joined_member`, `member_barrier`, `member_directory` | one member among members in other processes, and its directory | how they talk |
//! | `superblock`, `config`, `index_config` | what a directory is; settings | |
//! | `fsck`, `index_files` | work on the stores of a service that does not run | how a running one is reached |
//!
//! Architecture invariant: parts of different members meet only through requests of the crate `proto`; so members can become
//! processes without a change in `meta`, `files` and `delegate`.

mod cached_stats;
pub mod config;
pub mod delegate;
pub mod escape;
pub mod files;
pub mod fsck;
mod index_config;
pub mod index_files;
pub mod inodes;
mod joined_member;
pub mod keys;
pub mod layout;
pub mod locks;
mod member_barrier;
pub mod member_directory;
pub mod meta;
mod node;
pub mod node_server;
pub mod outbox;
mod paths;
mod prefetch_config;
pub mod rebuild;
pub mod record_subject;
pub mod repair;
pub mod repair_under_way;
pub mod salvage;
pub mod service;
mod stats_scans;
mod status;
mod stopped;
pub mod superblock;
pub mod team;
#[cfg(test)]
mod tests;
mod worker_thread;

pub use config::{Config, Consistency, LEAST_MEMORY};
pub use delegate::Delegate;
pub use forebay_index::csm::RECORD as INDEX_RECORD;
pub use forebay_index::csm::engine::Stats as IndexStats;
pub use forebay_proto as proto;
pub use forebay_proto::{
    Attr, Caller, DirEntry, Error, ExtentLayout, Fid, InvalidationDone, KernelInvalidation, Kind,
    LOST_LOG, Lamination, Member, NewNode, OpenFlags, Peers, RenameFlags, Result, SetAttr, SetTime,
    SpaceTotals, Time,
};
pub use index_config::{Alpha, IndexConfig};
pub use joined_member::JoinedMember;
pub use member_barrier::MemberBarrier;
pub use member_directory::MemberDirectory;
pub use node::Node;
pub use node_server::NodeServer;
pub use prefetch_config::PrefetchConfig;
pub use service::Service;
pub use status::MemberStatus;
