//! `forebay umount`: stops the service of a mount point or store, and waits until it has let go of the store.
use crate::args::UmountArgs;
use crate::control::{Answer, Ask, Client, NoServer};
use crate::fail::{Failure, Result};
use crate::mount_table::{self, How, Mounted};
use crate::output::{name, print};
use crate::units::counted;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A server ends its own stop after `stop_limit`, which may be longer than this only if the user said so.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs the verb.
///
/// # Errors
/// If files are open, nothing of ours is there, or the service does not stop.
pub fn run(args: &UmountArgs) -> Result {
    let path = mount_table::absolute(&args.path)?;
    let mounts = mount_table::all()?;
    let store = store_of(&mounts, &path)?.unwrap_or(path);
    let ours: Vec<&Mounted> = mounts
        .iter()
        .filter(|m| mount_table::store(m).as_ref() == Some(&store))
        .collect();
    match Client::connect(&store) {
        Ok(mut client) => {
            let pid = client.pid;
            match client.ask(&Ask::Stop { force: args.force }, LIMIT) {
                Ok(Answer::Stopped) => {}
                Ok(_) => {
                    return Err(Failure::new(
                        "the service gave an unknown answer",
                        "use the same version of forebay",
                    ));
                }
                // It may have been stopping already, and is gone now.
                Err(_) if !crate::processes::lives(pid) => {}
                Err(failure) => return Err(failure),
            }
            gone(pid, &store)?;
            print(format!(
                "{} is unmounted and its service has stopped\n",
                name(&store)
            ))
        }
        Err(NoServer::Failed(failure)) => Err(failure),
        Err(NoServer::NotRunning) if ours.is_empty() => Err(Failure::new(
            format!(
                "no Forebay service runs for {}, and nothing is mounted from it",
                store.display()
            ),
            "`findmnt -t fuse.forebay` lists the mounts",
        )),
        Err(NoServer::NotRunning) => {
            for mount in &ours {
                mount_table::unmount(&mount.point, How::Detach)?;
            }
            print(format!(
                "detached {} of {}: its service had ended; the next start recovers\n",
                counted(ours.len() as u64, "dead mount"),
                name(&store)
            ))
        }
    }
}

/// The store mounted at `path` or in directories right below it; `None` if nothing of ours is there.
///
/// # Errors
/// If several stores are mounted below, or another file system is mounted here.
pub fn store_of(mounts: &[Mounted], path: &Path) -> Result<Option<PathBuf>> {
    if let Some(store) = mount_table::at(mounts, path).and_then(mount_table::store) {
        return Ok(Some(store));
    }
    let mut below: Vec<PathBuf> = mounts
        .iter()
        .filter(|m| m.point.parent() == Some(path))
        .filter_map(mount_table::store)
        .collect();
    below.sort();
    below.dedup();
    match below.len() {
        0 | 1 => Ok(below.pop()),
        n => Err(Failure::new(
            format!("{n} stores are mounted below {}", path.display()),
            "name one mount point",
        )),
    }
}

/// Waits until the process has ended, so that the store is free for the next one.
fn gone(pid: u32, store: &Path) -> Result {
    let end = Instant::now() + Duration::from_secs(10);
    while crate::processes::lives(pid) {
        if Instant::now() > end {
            return Err(Failure::new(
                format!(
                    "the service of {} has closed the store but its process {pid} still runs",
                    store.display()
                ),
                format!("see {}/log", store.display()),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_found_from_a_mount_point_or_the_directory_above() {
        let mount = |point: &str, store: &str| mount_table::entry(point, Path::new(store));
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
