//! The subcommands, one file each; `demo` is a module of its own.
pub mod about;
pub mod config;
pub mod convert;
pub mod dedup;
pub mod fields;
pub mod fsck;
pub mod laminate;
mod library;
pub mod mount;
mod on_mount;
mod patterns;
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

/// A mount of `store` at `point`, as the kernel would list it.
#[cfg(test)]
fn mount_entry(point: &str, store: &std::path::Path) -> forebay_node::mount_table::MountEntry {
    forebay_node::mount_table::MountEntry {
        point: point.into(),
        kind: "fuse.forebay".into(),
        source: forebay_node::mount_table::source(store),
        device: "0:1".into(),
    }
}
