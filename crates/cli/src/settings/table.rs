//! The table of settings: what each is called, means and defaults to, and which value it becomes.
use super::values::{budget, future, index, positive};
use forebay_node::metrics::Address;
pub use forebay_node::settings::Settings;
use forebay_node::units::parse_size;
use forebay_server::{Alpha, Consistency};
use forebay_storage::Durability;
use std::time::Duration;

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

/// All settings, in the order of the documentation.
pub const TABLE: &[Setting] = &[
    Setting {
        key: "nodes",
        flag: "nodes",
        value: "N",
        default: "1",
        help: "Node servers in the service, one mount each; fixed when the store is created",
        set: |s, text| {
            s.service.nodes = text
                .parse()
                .ok()
                .filter(|n| (1..=64).contains(n))
                .ok_or_else(|| {
                    format!("'{text}' is not a number of nodes; write a number from 1 to 64")
                })?;
            Ok(())
        },
    },
    Setting {
        key: "durability",
        flag: "durability",
        value: "LEVEL",
        default: "process",
        help: "What an acknowledged change survives: none, process (a killed process) or disk (a power cut)",
        set: |s, text| {
            s.service.durability = match text {
                "none" => Durability::None,
                "process" => Durability::Process,
                "disk" => Durability::Disk,
                _ => {
                    return Err(format!(
                        "'{text}' is not a durability level; write none, process or disk"
                    ));
                }
            };
            Ok(())
        },
    },
    Setting {
        key: "consistency",
        flag: "consistency",
        value: "MODE",
        default: "commit",
        help: "When other nodes see a write: commit (after fsync or close) or posix (before write returns)",
        set: |s, text| {
            s.service.consistency = match text {
                "commit" => Consistency::Commit,
                "posix" => Consistency::Posix,
                _ => {
                    return Err(format!(
                        "'{text}' is not a consistency mode; write commit or posix"
                    ));
                }
            };
            Ok(())
        },
    },
    Setting {
        key: "patterns",
        flag: "patterns",
        value: "ON|OFF",
        default: "on",
        help: "Commit rows of writes as patterns, some bytes each, instead of an index record for each write: on or off",
        set: |s, text| {
            s.service.patterns = match text {
                "on" => true,
                "off" => false,
                _ => return Err(format!("'{text}' is neither; write on or off")),
            };
            Ok(())
        },
    },
    Setting {
        key: "quota",
        flag: "quota",
        value: "SIZE",
        default: "none",
        help: "Most file data each node stores; none: what the disk has",
        set: |s, text| {
            s.service.quota = if text == "none" {
                None
            } else {
                let bytes = parse_size(text)?;
                if bytes == 0 {
                    return Err(format!(
                        "'{text}' leaves no room for any file; write a size such as 10G, or none for no quota"
                    ));
                }
                Some(bytes)
            };
            Ok(())
        },
    },
    Setting {
        key: "memory",
        flag: "memory",
        value: "SIZE",
        default: "192MiB",
        help: "Memory budget of each node, caches and buffers together; at least 16MiB",
        set: |s, text| {
            let bytes = parse_size(text)?;
            if bytes < 16 << 20 {
                return Err(format!(
                    "'{text}' is too little memory; give each node at least 16MiB"
                ));
            }
            s.service.memory = bytes;
            Ok(())
        },
    },
    Setting {
        key: "index_alpha",
        flag: "index-alpha",
        value: "FACTOR",
        default: "0.8",
        help: "Blocks of the index are read at once if at least this part of them is asked for; above 0, at most 1",
        set: |s, text| {
            let alpha = text.parse().ok().and_then(Alpha::new);
            s.service.index.alpha = alpha.ok_or_else(|| {
                format!("'{text}' is no locality factor; write a number above 0 and at most 1, such as 0.8")
            })?;
            Ok(())
        },
    },
    Setting {
        key: "index_block",
        flag: "index-block",
        value: "SIZE",
        default: "4KiB",
        help: "Records of the index are compressed in blocks of this size: 512 to 1MiB",
        set: |s, text| {
            s.service.index.block = parse_size(text)?;
            index(s)
        },
    },
    Setting {
        key: "index_table_blocks",
        flag: "index-table-blocks",
        value: "N",
        default: "256",
        help: "Most blocks of a table file of the index",
        set: |s, text| {
            let wrong = |_| format!("'{text}' is no number of blocks; write one such as 256");
            s.service.index.table_blocks = text.parse().map_err(wrong)?;
            index(s)
        },
    },
    Setting {
        key: "index_memtable",
        flag: "index-memtable",
        value: "SIZE",
        default: "auto",
        help: "New records of the index are compressed once they take this much; auto: a 64th of memory",
        set: |s, text| {
            s.service.index.memtable = budget(text)?;
            index(s)
        },
    },
    Setting {
        key: "index_buffer",
        flag: "index-buffer",
        value: "SIZE",
        default: "auto",
        help: "Compressed blocks of the index are written to disk once they take this much; auto: a 16th of memory",
        set: |s, text| {
            s.service.index.buffer = budget(text)?;
            index(s)
        },
    },
    Setting {
        key: "index_cache",
        flag: "index-cache",
        value: "SIZE",
        default: "auto",
        help: "Compressed blocks of the index that are kept, beside what the two above leave free; auto: an eighth of memory",
        set: |s, text| {
            s.service.index.cache = budget(text)?;
            index(s)
        },
    },
    Setting {
        key: "index_coverage",
        flag: "index-coverage",
        value: "SIZE",
        default: "auto",
        help: "Knowledge of stored ranges that is kept, so that a write need not look into the index; auto: a 64th of memory",
        set: |s, text| {
            s.service.index.coverage = budget(text)?;
            index(s)
        },
    },
    Setting {
        key: "prefetch",
        flag: "prefetch",
        value: "WAY",
        default: "pattern",
        help: "How reads are foreseen and fetched before they are asked for: pattern, readahead, markov, perfect (needs prefetch_trace) or none",
        set: |s, text| {
            s.service.prefetch.policy = text.parse()?;
            Ok(())
        },
    },
    Setting {
        key: "prefetch_cache",
        flag: "prefetch-cache",
        value: "SIZE",
        default: "auto",
        help: "Bytes fetched ahead that are kept until they are read: 64KiB to a quarter of memory; auto: a 16th of memory",
        set: |s, text| {
            s.service.prefetch.cache = budget(text)?;
            Ok(())
        },
    },
    Setting {
        key: "prefetch_depth",
        flag: "prefetch-depth",
        value: "N",
        default: "64",
        help: "Most requests fetched ahead of one reader: 1 to 4096; fewer where fewer are enough",
        set: |s, text| {
            let wrong = |_| format!("'{text}' is no number of requests; write 1 to 4096");
            s.service.prefetch.depth = text.parse().map_err(wrong)?;
            Ok(())
        },
    },
    Setting {
        key: "prefetch_trace",
        flag: "prefetch-trace",
        value: "FILE",
        default: "none",
        help: "Trace whose reads perfect prefetching knows beforehand: a recording or a DXT export; name it from the root",
        set: |s, text| {
            s.service.prefetch.future = future(text)?;
            Ok(())
        },
    },
    Setting {
        key: "deadline",
        flag: "deadline",
        value: "TIME",
        default: "10s",
        help: "A request to another node fails with EIO after this long, and a node that is silent for so long is dead",
        set: |s, text| {
            s.service.deadline = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "allow_other",
        flag: "allow-other",
        value: "",
        default: "false",
        help: "Let other users into the mount, as far as file modes let them",
        set: |s, text| {
            s.allow_other = match text {
                "true" => true,
                "false" => false,
                _ => return Err(format!("'{text}' is not a switch; write true or false")),
            };
            Ok(())
        },
    },
    Setting {
        key: "start_limit",
        flag: "start-limit",
        value: "TIME",
        default: "60s",
        help: "Give up starting after this long",
        set: |s, text| {
            s.start_limit = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "stop_limit",
        flag: "stop-limit",
        value: "TIME",
        default: "60s",
        help: "Give up stopping cleanly after this long",
        set: |s, text| {
            s.stop_limit = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "metrics",
        flag: "metrics",
        value: "ADDRESS",
        default: "none",
        help: "Serve Prometheus metrics: none, a loopback address such as 127.0.0.1:9470, or unix:PATH; +{rank} behind the port adds the number of the server, {rank} in the path becomes it",
        set: |s, text| {
            s.metrics = Address::parse(text)?;
            Ok(())
        },
    },
    Setting {
        key: "log",
        flag: "log",
        value: "FILTER",
        default: "info",
        help: "What goes to the log: error, warn, info, debug, trace, or a filter such as forebay_server=debug",
        set: |s, text| {
            text.parse::<tracing_subscriber::filter::Targets>()
                .map_err(|e| {
                    format!("'{text}' is not a log filter ({e}); write a level such as info")
                })?;
            s.log = text.to_string();
            Ok(())
        },
    },
];

/// The row of a key.
pub fn find(key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|s| s.key == key)
}

/// Before any row has been applied; every field is set by some row.
pub(super) fn unset() -> Settings {
    Settings {
        service: forebay_server::Config::default(),
        allow_other: false,
        start_limit: Duration::ZERO,
        stop_limit: Duration::ZERO,
        metrics: None,
        log: String::new(),
    }
}
