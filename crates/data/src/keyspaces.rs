//! The keyspaces of a member's store that this crate writes. Their numbers are part of the store's format; the member's
//! table (`keys.rs` of the server) lists those of all crates and fails to compile if two are the same.
use forebay_storage::Keyspace;

/// Where log bytes lie, by (log, live end). Written by `span_table`; `span` draws keys and values.
pub const SPANS: Keyspace = Keyspace(4);
/// Logs not sealed yet: log number, 8 bytes big-endian, to fid, 8 bytes big-endian. Written by `span_table`.
pub const LOGS: Keyspace = Keyspace(9);
/// Ends of reserved blocks of numbers, by the counter's name. Written by `counter`, whoever owns the counter.
pub const COUNTERS: Keyspace = Keyspace(11);
/// Containers of chunks, by (kind of record, container): where each lies, how often its chunks are named, their fingerprints.
/// Written by `container/table`; `container/keys` draws the keys.
pub const CONTAINERS: Keyspace = Keyspace(13);
