//! `forebay umount`: stops the service of a mount point or store, and waits until it has let go of the store.
use crate::args::UmountArgs;
use crate::output::{escaped, name, print, print_error_line};
use forebay_node::control::{ConnectError, ControlClient, DeadMember, store_holder};
use forebay_node::failure::{Failure, Result};
use forebay_node::mount_table::{self, MountEntry};
use forebay_node::process_handle::{ProcessHandle, wait_for_exit};
use forebay_node::units::counted;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server ends its own stop after `stop_limit`, which may be longer than this only if the user said so.
const STOP_REPLY_TIMEOUT: Duration = Duration::from_secs(90);

/// Runs the subcommand: well if every process of the service has ended and those that lived have closed their stores, whichever members had
/// died before.
///
/// # Errors
/// If files are open, nothing of ours is there, or the service does not stop.
pub fn run(args: &UmountArgs) -> Result {
    let mounts = mount_table::all()?;
    let store = store_named(&mounts, &args.path)?;
    let ours: Vec<&MountEntry> = mounts
        .iter()
        .filter(|m| mount_table::store(m).as_ref() == Some(&store))
        .collect();
    match ControlClient::connect(&store) {
        Ok(mut client) => {
            let pid = client.pid;
            let dead = match client.stop(args.force, STOP_REPLY_TIMEOUT) {
                Ok(dead) => dead,
                // It may have been stopping already, and is gone now.
                Err(_) if !forebay_node::processes::is_alive(pid) => Vec::new(),
                Err(_) if client.is_silent() && args.force => {
                    return end_silent(&store, DEAD_STOP_LIMIT);
                }
                Err(failure) => return Err(failure),
            };
            wait_until_gone(pid, &store)?;
            let told = end_dead(&dead, &store, args.force)?;
            print(format!(
                "{} is unmounted and its service has stopped{told}\n",
                name(&store)
            ))
        }
        Err(ConnectError::Silent(_)) if args.force => end_silent(&store, DEAD_STOP_LIMIT),
        Err(ConnectError::Silent(failure) | ConnectError::Failed(failure)) => Err(failure),
        Err(ConnectError::NotRunning) if ours.is_empty() => Err(Failure::new(
            format!(
                "no Forebay service runs for {}, and nothing is mounted from it",
                store.display()
            ),
            "`findmnt -t fuse.forebay` lists the mounts",
        )),
        Err(ConnectError::NotRunning) => {
            // A store that was moved, or whose socket was removed, is not found by its path; its server may well run.
            if let Some(mount) = ours.iter().find(|m| mount_table::is_served(&m.point)) {
                return Err(Failure::new(
                    format!(
                        "a server still answers at {}, but nothing listens at {}: its store was moved, or its socket was removed",
                        name(&mount.point),
                        name(&store)
                    ),
                    "put the store back where it was, or end the server (`pgrep -af forebay` shows it) with SIGTERM, which commits what is open",
                ));
            }
            for mount in &ours {
                mount_table::detach(&mount.point)?;
            }
            print(format!(
                "detached {} of {}: its service had ended; the next start recovers\n",
                counted(ours.len() as u64, "dead mount"),
                name(&store)
            ))
        }
    }
}

/// The store that a path on the command line names: itself, or by a mount point of its service.
///
/// # Errors
/// As [`store_of`].
pub fn store_named(mounts: &[MountEntry], path: &Path) -> Result<PathBuf> {
    let path = mount_table::absolute(path)?;
    Ok(store_of(mounts, &path)?.unwrap_or(path))
}

/// The stores that these are mounts of, each once.
pub fn stores<'a>(mounts: impl IntoIterator<Item = &'a MountEntry>) -> Vec<PathBuf> {
    let stores: BTreeSet<PathBuf> = mounts.into_iter().filter_map(mount_table::store).collect();
    stores.into_iter().collect()
}

/// The store mounted at `path` or in directories right below it; `None` if nothing of ours is there.
///
/// # Errors
/// If several stores are mounted below, or another file system is mounted here.
fn store_of(mounts: &[MountEntry], path: &Path) -> Result<Option<PathBuf>> {
    if let Some(store) = mount_table::at(mounts, path).and_then(mount_table::store) {
        return Ok(Some(store));
    }
    let below = mounts.iter().filter(|m| m.point.parent() == Some(path));
    let mut below = stores(below);
    match below.len() {
        0 | 1 => Ok(below.pop()),
        n => Err(Failure::new(
            format!("{n} stores are mounted below {}", path.display()),
            "name one mount point",
        )),
    }
}

/// Ends what still runs of members that had been declared dead, on this machine; what is to be said of them.
///
/// # Errors
/// If a process of the service runs on, or may do so.
fn end_dead(dead: &[DeadMember], store: &Path, force: bool) -> Result<String> {
    let mut left = Vec::new();
    for DeadMember { member, host, pid } in dead {
        if *host != forebay_node::spec::host() {
            left.push(format!(
                "member {member}, declared dead, may still run on {} (pid {pid})",
                escaped(host)
            ));
        } else if !end_server(*pid, force) {
            left.push(format!(
                "member {member}, declared dead, still runs (pid {pid})"
            ));
        }
    }
    if left.is_empty() {
        let members: Vec<String> = dead.iter().map(|d| d.member.to_string()).collect();
        return Ok(match members.len() {
            0 => String::new(),
            n => format!(
                "; {} {} had died: what was not committed then is lost",
                if n == 1 { "member" } else { "members" },
                members.join(", ")
            ),
        });
    }
    Err(Failure::new(
        format!(
            "{} is unmounted and its server has stopped, but not all of the service: {}",
            store.display(),
            left.join("; ")
        ),
        "run `forebay umount` on their hosts, or end them with `kill -KILL`; one that finds out that it is dead ends by itself",
    ))
}

/// Ends the server of a store that does not answer, and clears its mounts. One that is only stopped by a signal is woken, and commits what
/// is open; one that has not ended `limit` after it was told to is killed.
///
/// # Errors
/// If it cannot be told which process it is, or it does not end; each says so.
fn end_silent(store: &Path, limit: Duration) -> Result {
    let shown = name(store);
    let holder = store_holder(store)?;
    let pid = holder.pid;
    print_error_line(format!(
        "forebay: the service of {shown} (pid {pid}) does not answer; it is woken and told to stop, and killed if it still runs after {} s",
        limit.as_secs_f32()
    ));
    let killed = !terminated(&holder, limit);
    if killed && !was_killed(&holder) {
        return Err(Failure::new(
            format!(
                "process {pid}, the service of {shown}, was killed and has not ended yet: it waits for the kernel, perhaps for a disk"
            ),
            format!(
                "`cat /proc/{pid}/wchan` says for what; run `forebay umount --force {shown}` again once it is gone"
            ),
        ));
    }
    wait_until_gone(pid, store)?;
    for mount in mount_table::of_store(store)? {
        mount_table::detach(&mount.point)?;
    }
    print(match killed {
        true => format!(
            "{shown} is unmounted; its service did not answer and was killed: what it had acknowledged is kept as its durability says, and \
             the next start recovers\n"
        ),
        false => format!(
            "{shown} is unmounted; its service did not answer, was told to stop and has ended: {shown}/log says how\n"
        ),
    })
}

/// Time for a server that was declared dead to stop when it is told to.
const DEAD_STOP_LIMIT: Duration = Duration::from_secs(20);
/// The same when it is killed.
const KILLED_STOP_LIMIT: Duration = Duration::from_secs(5);
/// The same when it has closed its store: a server of `run` then goes on until the programs of the command have ended, for as long as a
/// stop may take.
const CLOSED_STOP_LIMIT: Duration = STOP_REPLY_TIMEOUT;

/// Ends a server of this machine that the others do without, also if it was stopped by a signal; whether it has ended.
fn end_server(pid: u32, force: bool) -> bool {
    let Some(process) = ProcessHandle::open(pid).ok().filter(|_| is_server(pid)) else {
        return !is_server(pid);
    };
    terminated(&process, DEAD_STOP_LIMIT) || (force && was_killed(&process))
}

/// Tells a process to stop, also one that was stopped by a signal; whether it has ended within the limit.
fn terminated(process: &ProcessHandle, limit: Duration) -> bool {
    // Each fails only if it has ended, or is another user's, and then it is seen to run.
    let _ = process.signal(Signal::TERM);
    let _ = process.signal(Signal::CONT);
    process.wait(limit)
}

/// Kills a process; whether it has ended soon.
fn was_killed(process: &ProcessHandle) -> bool {
    let _ = process.signal(Signal::KILL);
    process.wait(KILLED_STOP_LIMIT)
}

/// Whether the number is still that of a server: it may be any process's by now.
fn is_server(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    words.any(|word| word == b"serve") && forebay_node::processes::is_alive(pid)
}

/// Waits until the process has ended, so that the store is free for the next one.
fn wait_until_gone(pid: u32, store: &Path) -> Result {
    if !wait_for_exit(pid, CLOSED_STOP_LIMIT) {
        return Err(Failure::new(
            format!(
                "the service of {} has closed the store but its process {pid} still runs",
                store.display()
            ),
            format!("see {}/log", store.display()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::process::{Child, Command, Stdio};

    /// A program that listens on STORE/control and never answers, nor ends when told to; with a second word it has STORE/lock open.
    const SILENT: &str = "#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    signal(SIGTERM, SIG_IGN);
    if (chdir(argv[1])) return 1;
    strcpy(at.sun_path, \"control\");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(s, (struct sockaddr *)&at, sizeof at) || listen(s, 8)) return 2;
    if (argc > 2 && flock(open(\"lock\", O_RDWR), LOCK_EX)) return 3;
    puts(\"listens\");
    fflush(stdout);
    for (;;) pause();
}
";

    /// Starts it, and waits until it listens.
    fn silent(dir: &Path, locks: bool) -> Child {
        let (source, program) = (dir.join("silent.c"), dir.join("silent"));
        let store = dir.join("s");
        std::fs::write(&source, SILENT).unwrap();
        let mut cc = Command::new("cc");
        assert!(
            cc.arg("-o")
                .arg(&program)
                .arg(&source)
                .status()
                .unwrap()
                .success()
        );
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("lock"), "").unwrap();
        let mut command = Command::new(&program);
        command.arg(&store).args(locks.then_some("lock"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "listens\n");
        child
    }

    #[test]
    fn a_server_that_neither_answers_nor_stops_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = silent(dir.path(), true);
        let ended = end_silent(&dir.path().join("s"), Duration::from_millis(50));
        // Not reaped before: a number that is free again could be another process's.
        let _ = child.kill();
        let status = child.wait().unwrap();
        assert_eq!(ended, Ok(()));
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(Signal::KILL.as_raw())
        );
    }

    #[test]
    fn a_process_that_does_not_hold_the_store_is_not_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = silent(dir.path(), false);
        let ended = end_silent(&dir.path().join("s"), Duration::from_millis(50));
        let runs = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        let failure = ended.unwrap_err();
        assert!(
            runs && failure.text.contains("does not hold its lock"),
            "{failure}"
        );
        assert!(failure.text.contains("kill -KILL"), "{failure}");
    }

    #[test]
    fn the_store_is_found_from_a_mount_point_or_the_directory_above() {
        let mount =
            |point: &str, store: &str| crate::subcommands::mount_entry(point, Path::new(store));
        let mounts = [
            mount("/m/0", "/s"),
            mount("/m/1", "/s"),
            mount("/n", "/t"),
            mount("/k/1", "/s"),
            mount("/k/2", "/t"),
        ];
        let find = |path: &str| store_of(&mounts, Path::new(path));
        assert_eq!(find("/m/1"), Ok(Some("/s".into())));
        assert_eq!(find("/m"), Ok(Some("/s".into())));
        assert_eq!(find("/n"), Ok(Some("/t".into())));
        assert_eq!(find("/s"), Ok(None));
        assert!(find("/k").is_err());
    }
}
