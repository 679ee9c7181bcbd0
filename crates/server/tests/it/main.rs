//! A service as a whole: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod appends;
mod attributes;
mod codec_hints;
mod combining;
mod commit_is_whole;
mod common;
mod crashes;
mod damaged_members;
mod figures;
mod file_versions;
mod finely_strided;
mod fsync_syncs;
mod full_disk;
mod full_quota;
mod histories;
mod index_damage;
mod kernel_pages;
mod late_fsync;
mod locks;
mod lost_messages;
mod lost_opens;
mod many_open_files;
mod model;
mod older_handle_closes_last;
mod page_fills;
mod pattern_histories;
mod patterns;
mod prefetch;
mod read_only_mode;
mod reclaimed_bytes;
mod shared_file_threads;
mod survey;
mod table_damage;
mod wire_fuzz;
