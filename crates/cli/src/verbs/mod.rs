//! The verbs, one file each; `demo` is a module of its own.
pub mod about;
pub mod config;
pub mod convert;
pub mod fsck;
pub mod laminate;
mod library;
pub mod mount;
mod on_mount;
mod patterns;
#[cfg(feature = "png")]
mod picture;
pub mod plot;
pub mod record;
pub mod replay;
pub mod serve;
pub mod stage;
pub mod stage_paths;
pub mod stage_status;
pub mod stat;
mod stat_text;
pub mod status;
mod status_columns;
mod status_text;
pub mod trace;
pub mod umount;
