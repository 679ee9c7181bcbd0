//! The status of a service as a table: one line a node, and one with all together.
//!
//! Invariant: the blocks of the narrow form fit 130 columns with large figures and mount points of 20 characters.
use super::status_columns::{
    ACTIVITY_COLUMNS, Column, INDEX, MEMORY, PATTERNS, PREFETCH_COLUMNS, SETTLE_COLUMNS,
    TOTAL_COLUMNS, USAGE_COLUMNS,
};
use crate::output::{escaped, name};
use crate::table::Table;
use forebay_node::control::{Health, MemberEntry, MissingMember, Status};
use forebay_node::units::{counted, size};
use std::fmt::Write as _;

/// The age from which on counts are said to be old, seconds.
const STALE_COUNT_SECONDS: f64 = 3.0;

/// How a member stands: what the others say of one that answered, or why one is missing.
fn health(status: &Status, member: u16) -> String {
    match status.seen(member) {
        (_, 0) => String::from("alive"),
        (alive, not) => format!("dead to {not} of {}", alive + not),
    }
}

fn missing_health(missing: &MissingMember) -> String {
    let word = match missing.health {
        Some(Health::Dead) => "dead",
        Some(Health::Left) => "left",
        Some(Health::Alive) | None => "silent",
    };
    match missing.silent_seconds {
        Some(seconds) if seconds >= 1.0 => format!("{word} {seconds:.0} s"),
        _ => word.to_string(),
    }
}

/// One block: the columns of all members, the missing ones in their places, and the total.
fn block(status: &Status, columns: &[Column], first: bool, hosts: bool) -> Table {
    let mut header = vec!["node"];
    if hosts {
        header.push("host");
    }
    if first {
        header.extend(["health", "mount"]);
    }
    header.extend(columns.iter().map(|(name, _)| *name));
    let mut rows: Vec<(u16, Vec<String>)> = Vec::new();
    for member in &status.members {
        let number = member.figures.member;
        let mut row = vec![number.to_string()];
        if hosts {
            let host = status.process_of(number).map(|p| p.host.clone());
            row.push(host.unwrap_or_default());
        }
        if first {
            let mount = status.mounts.iter().find(|m| m.member == number);
            let mount = mount.map(|m| name(&m.path));
            row.extend([health(status, number), mount.unwrap_or_else(|| "-".into())]);
        }
        row.extend(columns.iter().map(|(_, cell)| cell(member)));
        rows.push((number, row));
    }
    for (number, missing) in status.missing.iter().filter(|_| first) {
        let host = hosts.then(|| String::from("?"));
        let mut row = vec![number.to_string()];
        row.extend(host);
        row.push(missing_health(missing));
        rows.push((*number, row));
    }
    rows.sort_by_key(|(number, _)| *number);
    let mut table = Table::new(&header);
    let lines = rows.len();
    rows.into_iter().for_each(|(_, row)| table.row(row));
    if lines > 1 {
        let mut row = vec![String::from("all")];
        row.resize(header.len() - columns.len(), String::new());
        let total = MemberEntry::total(&status.members);
        row.extend(columns.iter().map(|(_, cell)| cell(&total)));
        table.row(row);
    }
    table
}

/// The whole status.
pub fn text(status: &Status, wide: bool) -> String {
    let mut out = if wide {
        let columns = USAGE_COLUMNS
            .iter()
            .chain(&MEMORY)
            .chain(&SETTLE_COLUMNS)
            .chain(&PATTERNS)
            .chain(&INDEX);
        let columns = columns
            .chain(&ACTIVITY_COLUMNS)
            .chain(&PREFETCH_COLUMNS)
            .chain(&TOTAL_COLUMNS);
        let columns: Vec<Column> = columns.copied().collect();
        block(status, &columns, true, true).to_string()
    } else {
        format!(
            "{}\n{}",
            block(status, &USAGE_COLUMNS, true, false),
            block(status, &ACTIVITY_COLUMNS, false, false)
        )
    };
    out.push('\n');
    for (member, missing) in &status.missing {
        let _ = writeln!(out, "node {member} is missing: {}", escaped(&missing.why));
    }
    for member in &status.members {
        for damage in &member.figures.damage {
            let number = member.figures.member;
            let _ = writeln!(out, "node {number} has damage: {}", escaped(damage));
        }
        for note in &member.figures.notes {
            let number = member.figures.member;
            let note = escaped(note);
            let _ = writeln!(out, "node {number}, when it was opened: {note}");
        }
    }
    let age = status
        .members
        .iter()
        .map(|m| m.figures.counted_seconds_ago)
        .fold(0.0, f64::max);
    if age >= STALE_COUNT_SECONDS {
        let _ = writeln!(out, "files and extents were counted {age:.0} s ago");
    }
    for process in &status.processes {
        let nodes = match process.members.as_slice() {
            [one] => format!("node {one}"),
            [first, .., last] => format!("nodes {first} to {last}"),
            [] => String::from("no node"),
        };
        let _ = write!(
            out,
            "{nodes}: store {}, forebay {}, pid {} on {}, up {} s, process memory {}",
            name(&process.store),
            escaped(&process.program),
            process.pid,
            escaped(&process.host),
            process.uptime_seconds,
            process.memory.map_or("unknown".into(), |m| format!(
                "{} (peak {})",
                size(m.resident),
                size(m.peak)
            )),
        );
        if process.link_clients > 0 {
            let clients = counted(process.link_clients, "client");
            let files = counted(process.link_open_files, "open file");
            let _ = write!(out, ", {clients} over the link with {files}");
        }
        if process.stage_jobs > 0 {
            let jobs = counted(process.stage_jobs, "stage job");
            let _ = write!(out, ", {jobs}");
        }
        if let Some(metrics) = &process.metrics {
            let _ = write!(out, ", metrics on {}", escaped(metrics));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_node::control::{MountStatus, PeerHealth, ProcessStatus, Rates};
    use forebay_server::delegate::Traffic;
    use forebay_server::{IndexStats, MemberStatus};
    use std::collections::BTreeMap;

    /// Members 0 to 2 in processes of their own, with large figures; member 3 is dead to all of them.
    fn three_of_four() -> Status {
        let large = 3_000_000_000_000;
        let member = |member| MemberEntry {
            figures: MemberStatus {
                member,
                files: Some(12_345_678),
                extents: Some(12_345_678),
                patterns: Some(1_234_567),
                pattern_bytes: Some(100 << 20),
                pattern_extents: Some(2_000_000_000),
                traffic: Traffic {
                    folded: 1_111,
                    ..Traffic::default()
                },
                logical_bytes: Some(large),
                data_bytes: 4 * large,
                stored_bytes: large,
                disk_bytes: Some(large),
                index_bytes: large,
                index_memory_bytes: 200 << 20,
                cache_memory_bytes: 200 << 20,
                buffer_memory_bytes: 200 << 20,
                memory_bytes: 600 << 20,
                memory_budget: 200 << 20,
                counted_seconds_ago: 7.0,
                index: IndexStats {
                    table_bytes: 4_500,
                    table_records: 3_000,
                    puts: 4_321,
                    stall_nanos: 1_200_000_000,
                    gets: 5_432,
                    blocks_asked: 1_000,
                    cache_hits: 875,
                    coverage_bytes: 7 << 20,
                    ..IndexStats::default()
                },
                index_bytes_per_record: Some(1.5),
                ..MemberStatus::default()
            },
            rates: Rates {
                seconds: 10.0,
                reads: 123_456.0,
                writes: 0.25,
                others: 123_456.0,
                read_bytes: 1e9,
                written_bytes: 1e9,
            },
        };
        let process = |own: u16| ProcessStatus {
            pid: 4711 + u32::from(own),
            host: "node17".into(),
            store: "/local/s".into(),
            program: "0.1.0".into(),
            uptime_seconds: 5,
            memory: None,
            members: vec![own],
            metrics: None,
            stage_jobs: 0,
            link_clients: 0,
            link_open_files: 0,
            peers: (0..4)
                .filter(|peer| *peer != own)
                .map(|member| PeerHealth {
                    member,
                    health: if member == 3 {
                        Health::Dead
                    } else {
                        Health::Alive
                    },
                    silent_seconds: 12.0,
                })
                .collect(),
        };
        let missing = MissingMember {
            why: "member 3 has ended; see its log".into(),
            health: Some(Health::Dead),
            silent_seconds: Some(12.3),
        };
        Status {
            store: "/local/s".into(),
            pid: 4711,
            program: "0.1.0".into(),
            uptime_seconds: 5,
            memory: None,
            settings: BTreeMap::new(),
            mounts: (0..3)
                .map(|member| MountStatus {
                    member,
                    path: format!("/mnt/forebay-node-{member:02}").into(),
                })
                .collect(),
            members: (0..3).map(member).collect(),
            missing: BTreeMap::from([(3, missing)]),
            processes: (0..3).map(process).collect(),
        }
    }

    #[test]
    fn a_dead_node_is_named_and_in_no_sum() {
        let shown = text(&three_of_four(), false);
        let line = |start: &str| {
            let found = shown.lines().find(|l| l.starts_with(start));
            found.unwrap_or_else(|| panic!("{start} in {shown}"))
        };
        assert!(line("3 ").contains("dead 12 s"), "{shown}");
        assert!(line("node 3 is missing").contains("has ended"), "{shown}");
        assert!(line("1 ").contains("alive") && line("1 ").contains("/mnt/forebay-node-01"));
        assert!(line("all").contains("37,037,034"), "{shown}");
        assert!(line("files and extents").contains("7 s ago"), "{shown}");
        assert!(line("node 2: ").contains("pid 4713 on node17"), "{shown}");
        assert!(
            line("node 2: ").ends_with("process memory unknown"),
            "{shown}"
        );
    }

    #[test]
    fn what_was_found_in_a_store_is_told_of_its_node() {
        let mut status = three_of_four();
        let damage = "wal-0000000002.log: damaged (batches 7 to 9 are missing)";
        status.members[1].figures.damage.push(damage.into());
        let note = "it was not closed; its log wal-0000000003.log was torn";
        status.members[2].figures.notes.push(note.into());
        let line = format!("node 1 has damage: {damage}\n");
        let noted = format!("node 2, when it was opened: {note}\n");
        for wide in [false, true] {
            assert_eq!(text(&status, wide).matches(&line).count(), 1);
            assert_eq!(text(&status, wide).matches(&noted).count(), 1);
        }
    }

    #[test]
    fn a_node_that_answers_one_and_not_the_others_shows_it() {
        let mut status = three_of_four();
        status.processes[0].peers[0].health = Health::Dead;
        let shown = text(&status, false);
        assert!(shown.contains("dead to 1 of 2"), "{shown}");
    }

    #[test]
    fn the_narrow_form_fits_and_the_wide_one_has_a_line_a_node() {
        let status = three_of_four();
        let narrow = text(&status, false);
        let tables: Vec<&str> = narrow.lines().take(11).collect();
        for line in &tables {
            assert!(line.len() <= 130, "{}: {line}", line.len());
        }
        let wide = text(&status, true);
        assert_eq!(wide.lines().filter(|l| l.starts_with("1 ")).count(), 1);
        assert!(wide.lines().next().unwrap().ends_with("failed"));
        let all = wide.lines().find(|l| l.starts_with("all")).unwrap();
        for figure in [
            "1.50",
            "12,963",
            "9,000",
            "3.6 s",
            "16,296",
            "88 %",
            " - ",
            "3,703,701",
            "300.0 MiB",
            "6,000,000,000",
            "3,333",
        ] {
            assert!(all.contains(figure), "{figure} in {all}");
        }
        let cells = |l: &str| l.split("  ").filter(|c| !c.is_empty()).count();
        assert_eq!(
            cells(wide.lines().nth(2).unwrap()),
            4 + 23
                + MEMORY.len()
                + SETTLE_COLUMNS.len()
                + PATTERNS.len()
                + INDEX.len()
                + PREFETCH_COLUMNS.len()
                + TOTAL_COLUMNS.len()
        );
    }

    #[test]
    fn what_is_not_counted_yet_is_not_zero() {
        let mut status = three_of_four();
        status.members[1].figures.files = None;
        let shown = text(&status, false);
        let all = shown.lines().find(|l| l.starts_with("all")).unwrap();
        assert!(all.split_whitespace().nth(1) == Some("?"), "{shown}");
    }

    #[test]
    fn the_documentation_explains_every_column() {
        let page = include_str!("../../../../docs/monitoring.md");
        let (_, section) = page.split_once("\n## The columns\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let explained = section.lines().filter_map(|l| l.strip_prefix("| `"));
        let explained: Vec<&str> = explained.map(|l| l.split('`').next().unwrap()).collect();
        let groups: [&[Column]; 8] = [
            &USAGE_COLUMNS,
            &MEMORY,
            &SETTLE_COLUMNS,
            &PATTERNS,
            &INDEX,
            &ACTIVITY_COLUMNS,
            &PREFETCH_COLUMNS,
            &TOTAL_COLUMNS,
        ];
        let columns = groups.concat();
        let columns: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        assert_eq!(explained, columns);
    }
}
