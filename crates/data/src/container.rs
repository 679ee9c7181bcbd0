//! Containers (the unique value log of DenKV): chunks of up to 1 MiB in all that lie together in a segment, each kept once.
//!
//! | module | what it owns |
//! |---|---|
//! | `record` | where a container lies, its chunks, their checksums |
//! | `encoded_parts` | the stored parts of an encoded container |
//! | `encoder` | encodes containers as their files' hints say, and verifies what it encoded |
//! | `reader` | reads chunks, from plain and encoded containers; parsed heads in memory |
//! | `bases` | what containers are encoded against, and how it is kept |
//! | `counts` | how often spans and holds of bases name each chunk |
//! | `fingerprints` | what its chunks are known by |
//! | `table` | the records of all containers, decoded ones in memory, and what they count for |
//! | `locked` | containers whose chunks a batch counts up and down |
//! | `damaged` | chunks that were read in vain |
//! | `decoded_cache` | decoded pieces in memory |
//! | `keys` | the keys of their records |
//!
//! A container is a space of **positions**, from 0 to the lengths of its chunks together. Runs of spans name positions; they
//! stay as they are when the container moves, also when it leaves out chunks that nobody names any more, and when it is encoded.
//! An **encoded** container stores its chunks as one array, in pieces that a codec made of 4 KiB each (`forebay_codec`); a **plain**
//! one stores them as they are.
//!
//! Counts are kept in one place, a record of their own, and change in the batch that changes the spans or holds. A chunk whose count is
//! 0 is gone for good: nothing names it again, and its bytes are reclaimed once that batch is on disk. A container without
//! a counted chunk has no records.
mod bases;
mod counts;
mod damaged;
mod decoded_cache;
mod encoded_parts;
pub(crate) mod encoder;
mod fingerprints;
pub mod keys;
mod locked;
mod reader;
mod record;
mod table;

pub use bases::{
    BaseHolds, FoundHold, HeldBase, all_holds, containers_of, hold_value, load_hold, needed_holds,
    with_records_only,
};
pub use counts::ChunkCounts;
pub use damaged::DamagedChunks;
pub use encoded_parts::EncodedParts;
pub use fingerprints::{Fingerprints, fingerprint_tag};
pub use locked::{LockedContainers, NewContainer};
pub use record::{Container, StoredChunk};
pub use table::{
    ContainerMove, ContainerTable, EncodedBytes, all, all_bases_first, load, load_counts,
    load_fingerprints,
};

/// Names a container. Numbers are never used twice.
pub type ContainerId = u64;

/// The largest container, bytes.
pub const MAX_CONTAINER_BYTES: u64 = 1 << 20;
