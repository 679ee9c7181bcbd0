//! The results of the demo, as a table or as JSON.
use super::content::CHANGED_OF;
use crate::output::print;
use crate::table::Table;
use forebay_node::failure::Result;
use forebay_node::units::{count, rate, size};
use forebay_server::{INDEX_RECORD as RECORD, IndexStats, MemberStatus};
use std::fmt::Write as _;
use std::time::Duration;

/// One row: the same work on Forebay and on the plain disk.
pub struct Speed {
    /// For people.
    pub what: String,
    /// For JSON.
    pub key: String,
    /// Time through the mounts.
    pub forebay: Duration,
    /// Time on the plain disk.
    pub plain: Duration,
}

impl Speed {
    /// Of `processes` that did `what` to the shared file.
    pub fn new(what: &str, processes: u64, forebay: Duration, plain: Duration) -> Speed {
        Speed {
            what: format!("{what}, {processes} processes"),
            key: format!("{what}_{processes}"),
            forebay,
            plain,
        }
    }

    /// How fast Forebay is, in multiples of the plain disk.
    fn ratio(&self) -> f64 {
        self.plain.as_secs_f64() / self.forebay.as_secs_f64().max(1e-9)
    }
}

/// A second file that is much like the first.
pub struct SecondCheckpoint {
    /// Time to write it.
    pub write: Duration,
    /// From then on until nothing waited to be deduplicated.
    pub settle: Duration,
    /// Bytes of both files.
    pub data_bytes: u64,
    /// What is stored for them.
    pub stored_bytes: u64,
}

impl SecondCheckpoint {
    fn stored_ratio(&self) -> f64 {
        self.stored_bytes as f64 / self.data_bytes.max(1) as f64
    }
}

/// Everything; sizes in bytes.
pub struct Report {
    /// Size of the shared file.
    pub size: u64,
    /// How many nodes.
    pub nodes: u16,
    /// Whether the page cache was dropped before each step.
    pub cold: bool,
    /// The measured steps.
    pub speeds: Vec<Speed>,
    /// The totals of all members after writing.
    pub members: MemberStatus,
    /// The index alone, all of it brought to table files while the service was down.
    pub index: IndexStats,
    /// The most memory a server process used.
    pub server_peak_bytes: u64,
    /// From starting the killed service until all mounts were ready.
    pub restart: Duration,
    /// Bytes read through the mounts after the restart and compared with what they must be.
    pub verified: u64,
    /// A second checkpoint, if the service deduplicates.
    pub second: Option<SecondCheckpoint>,
    /// The last part, where there is an MPI.
    pub over_mpi: Option<super::over_mpi::OverMpi>,
}

impl Report {
    /// Prints it. Only a run without a wrong byte has a report.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn print(&self, json: bool) -> Result {
        let text = if json { self.json() } else { self.text() };
        print(text)
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["one shared file", "forebay", "plain disk", "ratio"]);
        for speed in &self.speeds {
            let rate = |time| rate(self.size, time);
            table.row(vec![
                speed.what.clone(),
                rate(speed.forebay),
                rate(speed.plain),
                format!("{:.2}x", speed.ratio()),
            ]);
        }
        let mut out = format!("{table}\n");
        let mut facts = Table::new(&["", ""]);
        let mut fact = |name: &str, value: String| facts.row(vec![name.to_string(), value]);
        fact("file size", size(self.size));
        fact("nodes, mounts", format!("{0}, {0}", self.nodes));
        let held = &self.members;
        let counted = |figure: Option<u64>| count(figure.unwrap_or_default());
        let (patterns, extents) = (counted(held.patterns), counted(held.pattern_extents));
        let bytes = size(held.pattern_bytes.unwrap_or_default());
        fact(
            "patterns",
            format!("{patterns} for {extents} extents, {bytes}"),
        );
        fact("extents in the index", counted(held.extents));
        fact("all records and their logs", size(held.index_bytes));
        fact("records in table files", count(self.index.table_records));
        fact("table files", size(self.index.table_bytes));
        if let Some(each) = self.index.bytes_per_record() {
            let smaller = match RECORD as f64 / each {
                times if times > 1.0 => format!(" ({times:.0}x smaller)"),
                _ => String::new(),
            };
            fact("a record", format!("{each:.2} B, of {RECORD}{smaller}"));
        }
        fact("data bytes in the store", size(held.data_bytes));
        fact("server memory, peak", size(self.server_peak_bytes));
        fact(
            "restart after SIGKILL",
            format!("{:.2} s", self.restart.as_secs_f64()),
        );
        let cache = if self.cold {
            "dropped before each step"
        } else {
            "warm (only root may drop it)"
        };
        fact("page cache", cache.to_string());
        let _ = write!(out, "{}", facts.to_string().trim_start_matches('\n'));
        let _ = writeln!(
            out,
            "\nKilled, checked and restarted in between; {} verified, every byte right.",
            size(self.verified)
        );
        if let Some(second) = &self.second {
            let _ = writeln!(
                out,
                "A second checkpoint, of which {} % is as in the first, written at {}; {:.1} s later both, {}, were stored in {} ({:.2} of it).",
                100 - 100 / CHANGED_OF,
                rate(self.size, second.write),
                second.settle.as_secs_f64(),
                size(second.data_bytes),
                size(second.stored_bytes),
                second.stored_ratio(),
            );
        }
        if let Some(mpi) = &self.over_mpi {
            let at = |seconds| rate(mpi.size, Duration::from_secs_f64(seconds));
            let _ = writeln!(
                out,
                "Over MPI ({}), {} server processes: {} written at {}, read through other mounts at {}, every byte right.",
                mpi.library,
                mpi.servers,
                size(mpi.size),
                at(mpi.write_seconds),
                at(mpi.read_seconds)
            );
        }
        out
    }

    fn json(&self) -> String {
        let mut value = serde_json::json!({
            "size_bytes": self.size,
            "nodes": self.nodes,
            "cold_cache": self.cold,
            "extents": self.members.extents,
            "patterns": self.members.patterns,
            "pattern_bytes": self.members.pattern_bytes,
            "pattern_extents": self.members.pattern_extents,
            "index_bytes": self.members.index_bytes,
            "index": self.index,
            "index_bytes_per_record": self.index.bytes_per_record(),
            "data_bytes": self.members.data_bytes,
            "server_peak_bytes": self.server_peak_bytes,
            "restart_seconds": self.restart.as_secs_f64(),
            "verified_bytes": self.verified,
        });
        if let Some(second) = &self.second {
            value["second_checkpoint"] = serde_json::json!({
                "write_seconds": second.write.as_secs_f64(),
                "settle_seconds": second.settle.as_secs_f64(),
                "data_bytes": second.data_bytes,
                "stored_bytes": second.stored_bytes,
                "stored_ratio": second.stored_ratio(),
            });
        }
        for speed in &self.speeds {
            let per_second = |time: Duration| self.size as f64 / time.as_secs_f64().max(1e-9);
            value[&speed.key] = serde_json::json!({
                "forebay_bytes_per_s": per_second(speed.forebay),
                "plain_bytes_per_s": per_second(speed.plain),
                "ratio": speed.ratio(),
            });
        }
        if let Some(mpi) = &self.over_mpi {
            value["over_mpi"] = serde_json::json!(mpi);
        }
        format!("{value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_throughput() {
        let report = Report {
            size: 1 << 30,
            nodes: 4,
            cold: true,
            speeds: vec![Speed::new(
                "write",
                16,
                Duration::from_secs(2),
                Duration::from_secs(1),
            )],
            members: MemberStatus {
                extents: Some(1000),
                patterns: Some(12),
                pattern_bytes: Some(345),
                pattern_extents: Some(6_789),
                index_bytes: 40_000,
                data_bytes: 1 << 30,
                ..MemberStatus::default()
            },
            index: IndexStats {
                table_bytes: 2_300,
                table_records: 1_000,
                ..IndexStats::default()
            },
            server_peak_bytes: 1 << 28,
            restart: Duration::from_millis(250),
            verified: 2 << 30,
            second: Some(SecondCheckpoint {
                write: Duration::from_secs(2),
                settle: Duration::from_secs(1),
                data_bytes: 2 << 30,
                stored_bytes: 6 << 28,
            }),
            over_mpi: None,
        };
        let text = report.text();
        assert!(text.contains("2.30 B, of 46 (20x smaller)"), "{text}");
        assert!(text.contains("12 for 6,789 extents, 345 B"), "{text}");
        assert!(
            text.contains("512.0 MiB/s") && text.contains("0.50x") && text.contains("0.25 s"),
            "{text}"
        );
        assert!(
            text.contains("of which 80 % is as in the first") && text.contains("(0.75 of it)"),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["write_16"]["ratio"], 0.5);
        assert_eq!(json["verified_bytes"], 2u64 << 30);
        assert_eq!(json["pattern_extents"], 6_789);
        assert_eq!(json["index_bytes_per_record"], 2.3);
        assert_eq!(json["index"]["table_records"], 1000);
    }
}
