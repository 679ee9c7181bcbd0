//! `forebay trace record`: has the servers of mounts record every request while a command runs, and makes one trace of it.
use super::convert;
use super::stage_paths;
use super::umount::{self, store_named};
use crate::args::RecordArgs;
use crate::output::{name, print_error_line};
use crate::run::{Guard, Signals};
use crate::scratch_dir::ScratchDir;
use forebay_node::control::{ControlClient, RecordPart, RecordSpec};
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::mount_table;
use forebay_node::units::count;
use forebay_trace::record::{NodeRecording, clock, merge};
use forebay_trace::{Recording, format};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a service may take to start or end a recording.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most files that are looked at to find the names of those that were known before the recording began.
const MAX_WALKED_FILES: usize = 200_000;

/// Exit codes of a command that was not allowed to run, or is not there; as of a shell.
const NOT_RUN_CODES: [u8; 2] = [126, 127];

/// A service that records.
struct Service {
    store: PathBuf,
    client: ControlClient,
    parts: Vec<RecordPart>,
}

/// Runs the subcommand.
///
/// # Errors
/// Wrong arguments (2); a service that does not record, a trace that cannot be written (1); the command's own exit code.
pub fn run(args: &RecordArgs) -> Result {
    let output = output(args)?;
    let stores = stores(args)?;
    let parts = part_dir(&output)?;
    let signals = Signals::catch()?;
    let begun = clock();
    let spec = RecordSpec {
        // Two that begin in the same nanosecond would have to be one process.
        id: begun ^ u64::from(std::process::id()) << 40,
        name: command_name(args),
        dir: parts.path().to_path_buf(),
        begun,
        threads: args.threads,
        exact: !args.cached,
        asker: std::process::id(),
    };
    let mut services = start(stores, &spec)?;
    let code = command(args, &signals);
    let mut problems = Vec::new();
    for service in &mut services {
        problems.extend(stop(service, spec.id));
    }
    let code = code?;
    let recording = join(&spec, &services, &mut problems);
    if recording.calls.is_empty() && NOT_RUN_CODES.contains(&code) {
        print_error_line("forebay: nothing was recorded; no trace was written");
        return Err(Failure::silent_with(code));
    }
    convert::write(&recording, &output)?;
    print_error_line(format!(
        "{}: {} calls of {} ranks on {} files",
        name(&output),
        count(recording.calls.len() as u64),
        count(recording.processes.len().max(recording.ranks as usize) as u64),
        count(recording.files.len() as u64)
    ));
    let whole = problems.is_empty();
    for problem in problems {
        print_error_line(format!("forebay: {problem}"));
    }
    match code {
        0 if whole => Ok(()),
        0 => Err(Failure::silent()),
        code => Err(Failure::silent_with(code)),
    }
}

fn command_name(args: &RecordArgs) -> String {
    let program = args.command.first().map(Path::new);
    let name = program.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Where the trace goes: on no Forebay mount, for its server would wait for itself.
fn output(args: &RecordArgs) -> Result<PathBuf> {
    let named = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.trace", command_name(args))),
    };
    let mounts = mount_table::all()?;
    // A link in the last place is not followed: it may be anybody's.
    let path = stage_paths::absolute(&mounts, &named)?;
    if path.is_symlink() {
        return Err(Failure::usage(
            format!("{} is a symbolic link", named.display()),
            "name the file that it leads to, or another, with -o",
        ));
    }
    if mount_table::below(&mounts, &path).is_some_and(|m| mount_table::store(m).is_some()) {
        return Err(Failure::usage(
            format!(
                "{} is on a Forebay mount, which cannot record into itself",
                named.display()
            ),
            "name a file elsewhere with -o",
        ));
    }
    if path.exists() && args.output.is_none() {
        return Err(Failure::usage(
            format!("{} is there already", named.display()),
            "name the file with -o to replace it",
        ));
    }
    Ok(path)
}

/// The stores whose mounts are recorded.
fn stores(args: &RecordArgs) -> Result<Vec<PathBuf>> {
    let mounts = mount_table::all()?;
    if args.mounts.is_empty() {
        return Ok(umount::stores(&mounts));
    }
    let named = args.mounts.iter().map(|path| store_named(&mounts, path));
    Ok(named
        .collect::<Result<BTreeSet<_>>>()?
        .into_iter()
        .collect())
}

/// Has them all record. Where none is named, those that belong to somebody else or are dead do not matter.
fn start(stores: Vec<PathBuf>, spec: &RecordSpec) -> Result<Vec<Service>> {
    let mut services: Vec<Service> = Vec::new();
    for store in stores {
        match start_one(store, spec) {
            Ok(service) => services.push(service),
            Err(failure) => {
                for service in &mut services {
                    stop(service, spec.id);
                }
                return Err(failure);
            }
        }
    }
    match services.is_empty() {
        false => Ok(services),
        true => Err(Failure::new(
            "nothing is mounted here that could be recorded",
            "`forebay mount` first, or `forebay run ... -- forebay trace record -- CMD`",
        )),
    }
}

fn start_one(store: PathBuf, spec: &RecordSpec) -> Result<Service> {
    let not_running = || {
        let what = format!("no service runs on {}", store.display());
        Failure::new(what, "mount it first: `forebay mount`")
    };
    let mut client = ControlClient::connect(&store).map_err(|e| e.failure(not_running))?;
    let parts = client.start_recording(spec, REPLY_TIMEOUT)?;
    Ok(Service {
        store,
        client,
        parts,
    })
}

/// Runs the command; its exit code.
fn command(args: &RecordArgs, signals: &Signals) -> Result<u8> {
    let guard = Guard::start(&args.command, &[])?;
    signals.pass_to(guard.pid());
    let code = guard.wait();
    signals.pass_to_nobody();
    code
}

fn stop(service: &mut Service, id: u64) -> Vec<String> {
    let stopped = service.client.stop_recording(id, REPLY_TIMEOUT);
    // It may have stopped, and ended the recording; what it left says whether that is whole.
    stopped.unwrap_or_else(|failure| {
        tracing::debug!("{failure}");
        Vec::new()
    })
}

/// One recording of all parts, with names for files that were open or known before it began.
fn join(spec: &RecordSpec, services: &[Service], problems: &mut Vec<String>) -> Recording {
    let mut parts = Vec::new();
    for service in services {
        let mut own = Vec::new();
        for part in &service.parts {
            let read = File::open(&part.path)
                .map_err(|e| e.to_string())
                .and_then(|file| {
                    let recording = format::recover(BufReader::new(file), &part.path);
                    recording.map_err(|e| e.to_string())
                });
            match read {
                Ok(recording) => {
                    if let Some(loss) = &recording.loss {
                        problems.push(format!("the recording of {}: {loss}", part.mount.display()));
                    }
                    own.push(NodeRecording {
                        service: service.store.to_string_lossy().into_owned(),
                        recording,
                    });
                }
                Err(why) => {
                    let mount = part.mount.display();
                    problems.push(format!("the recording of {mount} is lost: {why}"));
                }
            }
        }
        name_files(&mut own, &service.parts);
        parts.extend(own);
    }
    merge(&spec.name, spec.begun, parts)
}

/// Looks for files whose names were not met, on a mount of the service.
fn name_files(parts: &mut [NodeRecording], mounts: &[RecordPart]) {
    let files = || parts.iter().flat_map(|p| &p.recording.files);
    let known: HashSet<u64> = files()
        .filter(|f| !f.path.is_empty())
        .map(|f| f.inode)
        .collect();
    let unknown: HashSet<u64> = files()
        .map(|f| f.inode)
        .filter(|inode| !known.contains(inode))
        .collect();
    let Some(mount) = mounts.iter().map(|m| &m.mount).find(|m| m.is_dir()) else {
        return;
    };
    if unknown.is_empty() {
        return;
    }
    let names = walk(mount, unknown);
    for file in parts.iter_mut().flat_map(|p| &mut p.recording.files) {
        if let (true, Some(name)) = (file.path.is_empty(), names.get(&file.inode)) {
            file.path.clone_from(name);
        }
    }
}

/// Paths of these inodes, as far as they are found among the first files.
fn walk(mount: &Path, mut wanted: HashSet<u64>) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    let mut directories = vec![mount.to_owned()];
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        // One that cannot be listed has no names for us.
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let Ok(metadata) = path.symlink_metadata() else {
                continue;
            };
            if metadata.is_dir() {
                directories.push(path.clone());
            }
            if wanted.remove(&metadata.ino()) {
                let below = path.strip_prefix(mount).unwrap_or(&path);
                names.insert(metadata.ino(), below.to_string_lossy().into_owned());
            }
            seen += 1;
            if wanted.is_empty() || seen >= MAX_WALKED_FILES {
                return names;
            }
        }
    }
    names
}

/// A new directory beside the output, for the files of the servers.
fn part_dir(output: &Path) -> Result<ScratchDir> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let path = output.with_file_name(format!(".{name}.{}", std::process::id()));
    // The servers are this user's; the calls are nobody else's business yet.
    ScratchDir::new(&path).or_fail(
        format!("cannot create {}", path.display()),
        "name a file in a directory of your own with -o",
    )
}
