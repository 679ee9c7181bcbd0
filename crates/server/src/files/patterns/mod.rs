//! Patterns of the files that this member owns: stored in place of the extents that they describe, resolved together with holes and
//! with what the index has.
//!
//! | module | what |
//! |---|---|
//! | `store` | `PatternStore`, which owns all of this |
//! | `records` | what is on disk |
//! | `segment`, `table`, `holes` | the same decoded, and what it says of an offset |
//! | `commit`, `overwrite`, `cut_out` | changes, and the log bytes that they free |
//! | `index_overlay` | extents of the index over patterns |
//! | `record_writer` | the records that a change adds and deletes |
//! | `rewrite`, `join` | the same in fewer records |
//! | `resolve` | extents and patterns for readers |
//! | `table_cache` | decoded tables kept in memory |
//! | `check` | what `forebay fsck` looks at |
//!
//! # Invariants
//! 1. All of a file's records change under the inode's lock, in the batch of the commit. Tables in memory are read and replaced
//!    under it. Slow work is done before, under the file's commit lock alone. Only a lamination changes a table without the commit
//!    lock. So under the inode's lock the table is compared with the one that the work began with: if it changed, a commit does the
//!    work again, and a compaction drops it.
//! 2. Where the index has an extent of the file, that is newer than any pattern there.
pub(super) mod check;
mod commit;
mod cut_out;
mod holes;
mod index_overlay;
mod join;
mod overwrite;
mod record_writer;
mod records;
mod resolve;
mod rewrite;
mod segment;
mod store;
mod table;
mod table_cache;

pub(super) use commit::PreparedPatterns;
pub(crate) use records::extents_of;
pub(super) use store::PatternStore;
