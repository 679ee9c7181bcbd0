//! A node server: names and attributes, commits and extents, locks, recovery and repair, and the delegate that serves the
//! node's own clients.
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | `meta` | names, directories, attributes that this member owns | extents, logs |
//! | `files` | content of the files it owns: sequences, commits, extents of its slices | names, log bytes |
//! | `team` | clients of several nodes that act together | what the operation is |
//! | `locks` | advisory locks on the files it owns; what its node waits for | what a file holds |
//! | `delegate` | every file operation of the node's clients | what another member stores, and how |
//! | `outbox` | messages that must arrive | what a file holds |
//! | `log_ranges` | sets of log addresses | |
//! | `inodes`, `keys` | inode records and their locks; the keyspaces of a member's store | what an operation is |
//! | `member_parts` | the parts of one member, wired to each other and to the other members | what requests mean |
//! | `node_server` | one member as it runs: the steps of its start and stop | how many run in this process |
//! | `service`, `service_directory` | a service in one process and its directory | |
//! | `joined_member`, `member_barrier`, `member_directory` | one member among members in other processes, and its directory | which transport they use |
//! | `superblock`, `config`, `index_config`, `prefetch_config`, `settle_config`, `codec_config` | what a directory is; settings | |
//! | `codec_names` | codec hints by the names of files | what a hint does |
//! | `status`, `merged_stats`, `cached_stats`, `stats_scans` | the statistics of a member, and the scans that some of them take | how they are shown |
//! | `worker_thread`, `escape` | a background thread of a part; texts from outside, made safe to show | |
//! | `offline_stores`, `fsck`, `finding`, `index_files` | opening and checking the stores of a service that does not run | how a running one is reached |
//! | `rebuild`, `repair`, `repair_marker`, `salvage` | new records for damaged stores, put in their place or served beside them | how a running one is reached |
//! | `paths`, `record_subject` | the path of an inode, and what a record describes, for reports of damage | |
//!
//! Architecture invariant: parts of different members meet only through requests of the crate `proto`; so `meta`, `files`
//! and `delegate` are the same whether members share a process or not.

mod cached_stats;
mod codec_config;
mod codec_names;
pub mod config;
pub mod delegate;
pub mod escape;
pub mod files;
pub mod finding;
pub mod fsck;
mod index_config;
pub mod index_files;
pub mod inodes;
mod joined_member;
pub mod keys;
pub mod locks;
mod log_ranges;
mod member_barrier;
pub mod member_directory;
mod member_parts;
mod merged_stats;
pub mod meta;
pub mod node_server;
mod offline_stores;
pub mod outbox;
mod paths;
mod prefetch_config;
pub mod rebuild;
pub mod record_subject;
pub mod repair;
pub mod repair_marker;
pub mod salvage;
pub mod service;
pub mod service_directory;
mod settle_config;
mod stats_scans;
mod status;
pub mod superblock;
pub mod team;
#[cfg(test)]
mod tests;
mod worker_thread;

pub use codec_config::{CodecConfig, CodecWhen};
pub use codec_names::{CodecNames, CodecNamesError};
pub use config::{Config, Consistency, LEAST_MEMORY};
pub use delegate::Delegate;
pub use forebay_data::chunk::ChunkSize;
pub use forebay_data::fingerprint::FingerprintKind;
pub use forebay_index::RECORD as INDEX_RECORD;
pub use forebay_index::Stats as IndexStats;
pub use forebay_proto as proto;
pub use forebay_proto::{
    Attr, Caller, DirEntry, Error, ExtentLayout, Fid, InvalidationDone, KernelInvalidation, Kind,
    LOST_LOG, Lamination, Member, NewInode, OpenFlags, Peers, RenameFlags, Result, SetAttr,
    SetTime, SpaceTotals, Time,
};
pub use index_config::{Alpha, IndexConfig};
pub use inodes::without_set_ids;
pub use joined_member::JoinedMember;
pub use member_barrier::MemberBarrier;
pub use member_directory::MemberDirectory;
pub use member_parts::MemberParts;
pub use meta::CODEC_XATTR;
pub use node_server::NodeServer;
pub use prefetch_config::PrefetchConfig;
pub use service::Service;
pub use settle_config::SettleConfig;
pub use status::MemberStatus;
