//! Options of a mount; every field has a default that suits a compute node.

/// Bytes the kernel reads ahead on sequential reads. More than 128 KiB takes effect only where this process may set it (as root, or
/// with a writable `/sys/class/bdi`).
pub(crate) const READAHEAD: u32 = 4 << 20;

/// Settings of one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Other users may use the mount, as far as permission bits let them. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// The kernel may keep dirty pages until they are synced or closed, where no other node can see or change them (a service of one
    /// member, in commit consistency).
    pub write_back: bool,
    /// What the mount table shows as the source, so that the service behind a mount can be found without asking it.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            allow_other: false,
            read_only: false,
            write_back: true,
            source: String::from("forebay"),
        }
    }
}

/// How many threads answer the requests of a mount: two a core, and no more than 8.
pub fn answering_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    (cores * 2).min(8)
}
