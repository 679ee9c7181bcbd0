//! How a mount behaves; every field has a default that suits a compute node.

/// Settings of one mount; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Other users may use the mount, as far as permission bits let them. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// What the mount table shows as the source, so that the service behind a mount can be found without asking it.
    pub source: String,
    /// Threads that answer requests; `None`: twice the cores, at most 8.
    pub threads: Option<usize>,
    /// Most bytes of one write request; the kernel may allow less (1 MiB unless `fs.fuse.max_pages_limit` was raised).
    pub max_write: u32,
    /// Bytes the kernel reads ahead on sequential reads. More than 128 KiB takes effect only where this process may set it
    /// (as root, or with a writable `/sys/class/bdi`).
    pub readahead: u32,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            allow_other: false,
            read_only: false,
            source: String::from("forebay"),
            threads: None,
            max_write: 1 << 20,
            readahead: 4 << 20,
        }
    }
}

impl MountOptions {
    /// The number of answering threads, at least 1.
    pub fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        self.threads.unwrap_or((cores * 2).min(8)).max(1)
    }
}
