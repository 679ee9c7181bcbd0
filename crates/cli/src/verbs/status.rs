//! `forebay status`: what a running service holds and uses.
use crate::args::StatusArgs;
use crate::control::{Answer, Ask, Client, NoServer, Status};
use crate::fail::{Context, Failure, Result};
use crate::mount_table;
use crate::table::Table;
use crate::units::{count, size};
use crate::verbs::umount::store_of;
use forebay_server::MemberStatus;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Runs the verb.
///
/// # Errors
/// If no service runs on the store, or it does not answer.
pub fn run(args: &StatusArgs) -> Result {
    let path = mount_table::absolute(&args.store)?;
    let store = store_of(&mount_table::all()?, &path)?.unwrap_or(path);
    let mut client = match Client::connect(&store) {
        Ok(client) => client,
        Err(NoServer::Failed(failure)) => return Err(failure),
        Err(NoServer::NotRunning) => {
            let shown = store.display();
            return Err(Failure::new(
                format!("no Forebay service runs on {shown}"),
                format!("start it with `forebay mount {shown} MOUNTPOINT`"),
            ));
        }
    };
    let Answer::Status(status) = client.ask(&Ask::Status, Duration::from_secs(30))? else {
        return Err(Failure::new(
            "the service gave an unknown answer",
            "use the same version of forebay",
        ));
    };
    let text = if args.json {
        json(&status)?
    } else {
        text(&status)
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .or_fail("cannot write to standard output", "look at where it leads")
}

fn json(status: &Status) -> Result<String> {
    let mut value =
        serde_json::to_value(status).or_fail("cannot write the status", "report this")?;
    value["total"] = serde_json::to_value(total(&status.members))
        .or_fail("cannot write the status", "report this")?;
    Ok(format!("{value}\n"))
}

fn text(status: &Status) -> String {
    let mut table = Table::new(&[
        "node", "mount", "files", "open", "data", "extents", "index", "segments", "memory", "of",
        "writes", "written", "reads", "read",
    ]);
    let row = |name: String, mount: String, m: &MemberStatus| {
        vec![
            name,
            mount,
            count(m.files),
            count(m.open_files),
            size(m.data_bytes),
            count(m.extents),
            size(m.index_bytes),
            count(m.segments),
            size(m.memory_bytes),
            size(m.memory_budget),
            count(m.writes),
            size(m.written_bytes),
            count(m.reads),
            size(m.read_bytes),
        ]
    };
    for member in &status.members {
        let mount = status.mounts.iter().find(|m| m.member == member.member);
        let mount = mount.map_or(String::from("-"), |m| m.path.display().to_string());
        table.row(row(member.member.to_string(), mount, member));
    }
    if status.members.len() > 1 {
        table.row(row(
            String::from("all"),
            String::new(),
            &total(&status.members),
        ));
    }
    let mut out = table.to_string();
    for (member, why) in &status.missing {
        let _ = writeln!(out, "node {member} is missing: {why}");
    }
    let _ = writeln!(
        out,
        "store {}, forebay {}, pid {}, up {} s, process memory {} (peak {})",
        status.store.display(),
        status.program,
        status.pid,
        status.uptime_seconds,
        size(status.memory.resident),
        size(status.memory.peak)
    );
    out
}

/// The sum over all members.
pub fn total(members: &[MemberStatus]) -> MemberStatus {
    members
        .iter()
        .fold(MemberStatus::default(), |sum, m| MemberStatus {
            member: sum.member,
            files: sum.files + m.files,
            open_files: sum.open_files + m.open_files,
            extents: sum.extents + m.extents,
            data_bytes: sum.data_bytes + m.data_bytes,
            index_bytes: sum.index_bytes + m.index_bytes,
            memory_bytes: sum.memory_bytes + m.memory_bytes,
            memory_budget: sum.memory_budget + m.memory_budget,
            segments: sum.segments + m.segments,
            reads: sum.reads + m.reads,
            writes: sum.writes + m.writes,
            read_bytes: sum.read_bytes + m.read_bytes,
            written_bytes: sum.written_bytes + m.written_bytes,
        })
}
