//! The table of settings: what each is called, means and defaults to, and which value it becomes.
//!
//! A row is key, flag, placeholder of the value, default, the field that it sets with how its text is read, and the help.
use super::values;
use forebay_node::metrics::Address;
pub use forebay_node::settings::Settings;
use forebay_node::units::parse_size;

/// One setting. Its text form is the only form that travels between processes.
pub struct Setting {
    /// Key in the configuration file; the environment variable is derived from it.
    pub key: &'static str,
    /// The same with dashes: the flag.
    pub flag: &'static str,
    /// Placeholder of the value in the help; empty for a switch.
    pub value: &'static str,
    /// What holds if nobody says otherwise.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Setting {
    /// `start_limit` -> `FOREBAY_START_LIMIT`.
    pub fn env(&self) -> String {
        format!("FOREBAY_{}", self.key.to_ascii_uppercase())
    }
}

/// The table from its rows. After each setting it is looked whether those of the index are possible together.
macro_rules! settings {
    ($($key:literal $flag:literal $value:literal = $default:literal, $($field:ident).+ = $read:expr; $help:literal)*) => {
        /// All settings, in the order of the documentation.
        pub const TABLE: &[Setting] = &[$(Setting {
            key: $key,
            flag: $flag,
            value: $value,
            default: $default,
            help: $help,
            set: |settings, text| {
                settings.$($field).+ = $read(text)?;
                settings.service.index.check().map_err(|(_, why)| why)
            },
        }),*];
    };
}

settings! {
    "nodes" "nodes" "N" = "1", service.nodes = values::nodes;
        "Node servers in the service, one mount each; fixed when the store is created"
    "durability" "durability" "LEVEL" = "process", service.durability = values::durability;
        "What an acknowledged change survives: none, process (a killed process) or disk (a power cut)"
    "consistency" "consistency" "MODE" = "commit", service.consistency = values::consistency;
        "When other nodes see a write: commit (after fsync or close) or posix (before write returns)"
    "patterns" "patterns" "ON|OFF" = "on", service.patterns = values::on_off;
        "Commit rows of writes as patterns, some bytes each, instead of an index record for each write: on or off"
    "quota" "quota" "SIZE" = "none", service.quota = values::quota;
        "Most file data each node stores; none: what the disk has"
    "settle" "settle" "MODE" = "off", service.settle.enabled = values::settle;
        "Deduplicate file data in the background: auto (out of a burst's way) or off"
    "chunk_size" "chunk-size" "SIZE" = "4KiB", service.settle.chunk = values::chunk_size;
        "Deduplicate in chunks of this size: 4KiB to 64KiB, a power of two"
    "fingerprint" "fingerprint" "HASH" = "blake3", service.settle.fingerprint = values::fingerprint;
        "What tells chunks apart: blake3, or sha1, which also compares bytes"
    "settle_backlog" "settle-backlog" "SIZE" = "auto", service.settle.backlog = values::budget;
        "File data that may wait to be deduplicated before writes wait for it; auto: a quarter of the quota, or of the disk"
    "codec_when" "codec-when" "MODE" = "off", service.codec.when = values::codec_when;
        "Encode file data by the codecs of files: auto (where the disk is slower than the codec when it is written, else when it settles), inline (always when it is written), settle (when it settles) or off"
    "codec_names" "codec-names" "PATTERNS" = "none", service.codec.names = values::codec_names;
        "Codecs of new files by name, where neither file nor directory has the attribute user.forebay.codec, such as `*.nc=field,f32; ckpt/*.bf16=auto,bf16`: the first pattern that fits decides; one with a slash is a path below the root, ** any directories; in the file also a list of strings"
    "memory" "memory" "SIZE" = "192MiB", service.memory = values::memory;
        "Memory budget of each node, caches and buffers together; at least 16MiB"
    "index_alpha" "index-alpha" "FACTOR" = "0.8", service.index.alpha = values::alpha;
        "Blocks of the index are read at once if at least this part of them is asked for; above 0, at most 1"
    "index_block" "index-block" "SIZE" = "4KiB", service.index.block = parse_size;
        "Records of the index are compressed in blocks of this size: 512 to 1MiB"
    "index_table_blocks" "index-table-blocks" "N" = "256", service.index.table_blocks = values::table_blocks;
        "Most blocks of a table file of the index"
    "index_memtable" "index-memtable" "SIZE" = "auto", service.index.memtable = values::budget;
        "New records of the index are compressed once they take this much; auto: a 64th of memory"
    "index_buffer" "index-buffer" "SIZE" = "auto", service.index.buffer = values::budget;
        "Compressed blocks of the index are written to disk once they take this much; auto: a 16th of memory"
    "index_cache" "index-cache" "SIZE" = "auto", service.index.cache = values::budget;
        "Compressed blocks of the index that are kept, beside what the two above leave free; auto: an eighth of memory"
    "index_coverage" "index-coverage" "SIZE" = "auto", service.index.coverage = values::budget;
        "Knowledge of stored ranges that is kept, so that a write need not look into the index; auto: a 64th of memory"
    "prefetch" "prefetch" "WAY" = "pattern", service.prefetch.policy = str::parse;
        "How reads are foreseen and fetched before they are asked for: pattern, readahead, markov, perfect (needs prefetch_trace) or none"
    "prefetch_cache" "prefetch-cache" "SIZE" = "auto", service.prefetch.cache = values::budget;
        "Bytes fetched ahead that are kept until they are read: 64KiB to a quarter of memory; auto: a 16th of memory"
    "prefetch_depth" "prefetch-depth" "N" = "64", service.prefetch.depth = values::prefetch_depth;
        "Most requests fetched ahead of one reader: 1 to 4096; fewer where fewer are enough"
    "prefetch_trace" "prefetch-trace" "FILE" = "none", service.prefetch.future = values::future;
        "Trace whose reads perfect prefetching knows beforehand: a recording or a DXT export; name it from the root"
    "deadline" "deadline" "TIME" = "10s", service.deadline = values::positive;
        "A request to another node fails with EIO after this long, and a node that is silent for so long is dead"
    "allow_other" "allow-other" "" = "false", allow_other = values::switch;
        "Let other users into the mount, as far as file modes let them"
    "writeback" "writeback" "ON|OFF" = "on", write_back = values::on_off;
        "Have the kernel keep written bytes until fsync or close, in a service of one node with commit consistency: on or off"
    "start_limit" "start-limit" "TIME" = "60s", start_limit = values::positive;
        "Give up starting after this long"
    "stop_limit" "stop-limit" "TIME" = "60s", stop_limit = values::positive;
        "Give up stopping cleanly after this long"
    "metrics" "metrics" "ADDRESS" = "none", metrics = Address::parse;
        "Serve Prometheus metrics: none, a loopback address such as 127.0.0.1:9470, or unix:PATH; +{rank} behind the port adds the number of the server, {rank} in the path becomes it"
    "log" "log" "FILTER" = "info", log = values::log_filter;
        "What goes to the log: error, warn, info, debug, trace, or a filter such as forebay_server=debug"
}

/// The row of a key.
pub fn find(key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|s| s.key == key)
}
