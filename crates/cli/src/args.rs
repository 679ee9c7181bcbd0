//! The command line: every verb and its own arguments. Settings of the service come from [`crate::settings`].
use crate::settings::SettingArgs;
use crate::units::{parse_duration, parse_size};
use clap::{Args, Parser, Subcommand, ValueHint};
use forebay_trace::replay::Delays;
use std::path::PathBuf;
use std::time::Duration;

/// Storage for a parallel job: one shared file system over the disks of its nodes.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 failed or problems found, 2 wrong usage.\n\
        Start here: `forebay mount ~/store ~/fb`, then use ~/fb as any directory; `forebay umount ~/fb` ends it."
)]
pub struct Cli {
    /// Configuration file [env: FOREBAY_CONFIG] [default: ~/.config/forebay/config.toml if it exists]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write, kill, restart and read one shared file on four nodes, verify every byte, compare with the plain disk
    Demo(DemoArgs),
    /// Start the service of a store and mount it; creates the store if there is none
    Mount(MountArgs),
    /// Start the service, run a command with it, commit, stop; the exit code is the command's
    Run(RunArgs),
    /// One node server of a service over several processes, started by mpirun or srun
    Serve(ServeArgs),
    /// Commit what is pending, unmount, and stop the service
    Umount(UmountArgs),
    /// Show what a running service holds and uses
    Status(StatusArgs),
    /// Make files read-only for ever, so that every node may cache them
    Laminate(LaminateArgs),
    /// Copy files and trees between any directory and a running service, by all nodes at once
    #[command(subcommand)]
    Stage(StageVerb),
    /// Check a store whose service is stopped, every checksum of it
    Fsck(FsckArgs),
    /// Record, make, describe, draw and replay traces of parallel I/O
    #[command(subcommand)]
    Trace(TraceVerb),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// The server process of `mount`; the specification comes on standard input
    #[command(name = "__serve", hide = true)]
    Background,
    /// Detaches the mounts of a server that was killed
    #[command(name = "__watch", hide = true)]
    Watch {
        /// The server's process
        server: u32,
        /// Its store
        store: PathBuf,
        /// Processes that use its mounts
        users: Vec<u32>,
    },
    /// Runs the command of `run` and ends what it leaves behind
    #[command(name = "__guard", hide = true)]
    Guard {
        /// The process of `run`
        parent: u32,
        /// The command
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// The part of `demo` over MPI, below `run`
    #[cfg(feature = "mpi")]
    #[command(name = "__over-mpi", hide = true)]
    OverMpi {
        /// Size of the file, bytes
        size: u64,
    },
    /// A process of `demo` that reads or writes
    #[command(name = "__worker", hide = true)]
    Worker {
        /// What to do, as JSON
        job: String,
    },
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "The demo always runs at least two nodes: four unless --nodes says otherwise. Everything it makes is removed \
        at the end, also after Ctrl-C. Exit code 1 on any wrong byte."
)]
pub struct DemoArgs {
    /// Size of the shared file
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub size: u64,
    /// Directory on the disk to use [default: a new one in /var/tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
#[command(
    after_help = "With --nodes 4 the mounts are MOUNTPOINT/0 to MOUNTPOINT/3, or MOUNTPOINT with {node} replaced. \
        The command returns once all mounts are ready; the service goes on in the background and writes STORE/log."
)]
pub struct MountArgs {
    /// Directory that holds the data
    #[arg(value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// Existing directory to mount on
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Stay in the foreground and log to standard error; Ctrl-C stops cleanly
    #[arg(long)]
    pub foreground: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "The servers run in one process on this machine, unless --hosts or --launcher says otherwise or this is a Slurm \
        job. {rank} in the paths becomes the number of the server. The command finds the mounts of this machine in \
        FOREBAY_MOUNT (the first) and FOREBAY_MOUNTS (all, separated by colons), and in FOREBAY_TEAM the number of the team of \
        all ranks of the job. What the command leaves running is ended. Exit \
        code: the command's, 128 and the number of the signal that ended it, or 1 if the service failed."
)]
pub struct RunArgs {
    /// Directory that holds the data, the same path on every node
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// Existing directory to mount on, the same path on every node
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub mount: PathBuf,
    /// Start one server on each host of this file, with mpirun; a line is HOST or HOST slots=N
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub hosts: Option<PathBuf>,
    /// What starts the servers [default: mpirun with --hosts, srun in a Slurm job, else embedded]
    #[arg(long, value_name = "HOW")]
    pub launcher: Option<Launcher>,
    /// The mpirun program [default: that of the MPI forebay was built for]
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub mpirun: Option<PathBuf>,
    /// Copy SRC to DST in the service before the command starts [default DST: the service's root]; @FILE names a manifest
    #[arg(long, value_name = "SRC[:DST]|@FILE", value_hint = ValueHint::AnyPath)]
    pub stage_in: Vec<String>,
    /// Copy SRC of the service to DST when the command has ended [default SRC: everything]; @FILE names a manifest
    #[arg(long, value_name = "[SRC:]DST|@FILE", value_hint = ValueHint::AnyPath)]
    pub stage_out: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// What starts the servers of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Launcher {
    /// All in one process on this machine
    Embedded,
    /// mpirun of OpenMPI or MPICH
    Mpirun,
    /// srun of Slurm, inside a job
    Srun,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: `mpirun -n 4 forebay serve --store /local/s{rank} --mount /mnt/fb{rank}`. All servers of a job start \
        together, and stop together: by SIGTERM, or `forebay umount` of any of the mounts. Needs a build with `--features mpi`."
)]
pub struct ServeArgs {
    /// Directory that holds this node's data; {rank} becomes the number of the process in its job
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// Existing directory to mount on; {rank} as above
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub mount: PathBuf,
    /// File with the secret of the job, the same for all its servers [default: FOREBAY_SECRET, or none]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub secret_file: Option<PathBuf>,
    /// Report as JSON lines on standard output, and stop when standard input ends
    #[arg(long, hide = true)]
    pub launched: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// A mount point, the directory above the mount points, or the store
    #[arg(value_name = "MOUNTPOINT|STORE", value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// Also if files are open: their programs get errors from then on
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(
    after_help = "One line a node in each block, and a line with all together. Rates are over the last ten seconds; with --watch, since \
        the last look. A node whose server did not answer is named with the reason, and is in no sum.\n\n\
        Files: inodes of all kinds. Logical: sum of the sizes of files. Stored: file data without what was replaced or removed. \
        Disk: what the segment files take, garbage included. Where there are many files they are counted every now and then; a \
        line says how long ago. Queues: requests of the mount, of other nodes (served), to other nodes (sent); requests that wait \
        for locks; background work (flush: MemTables, clean: freed places, outbox: freed bytes to tell, unpub: writes that a \
        close could not publish)."
)]
pub struct StatusArgs {
    /// The store, or a mount point of its service
    #[arg(value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// One table with all columns instead of two blocks
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
    /// Show it again every so many seconds [default without a number: 2], until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2", value_parser = parse_interval)]
    pub watch: Option<Duration>,
}

/// At least a tenth of a second: a look is not free.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    match time < Duration::from_millis(100) {
        true => Err(format!("'{text}' is too short; 0.1 is the shortest")),
        false => Ok(time),
    }
}

/// Arguments of `laminate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Lamination cannot be undone. To make a file read-only for a while, use `chmod a-w`."
)]
pub struct LaminateArgs {
    /// Files on a Forebay mount, closed by all writers
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

/// The verbs of `stage`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "An interrupted job goes on where it was when the same command is run again: finished files are not copied \
        again, unless their source has changed."
)]
pub enum StageVerb {
    /// Copy from a directory into the service
    In(StageArgs),
    /// Copy from the service to a directory
    Out(StageArgs),
    /// Show running, finished and unfinished stage jobs
    Status(StageStatusArgs),
}

/// Arguments of `stage in` and `stage out`.
#[derive(Debug, Args)]
#[command(
    after_help = "One side is a path below a mount point of `forebay mount`, the other any directory of this machine. \
        DST is the name of the copy, not the directory that gets it: `forebay stage out ~/fb/run7 /scratch/run7`. A directory \
        that exists already keeps what it has; files of the same name are replaced. A trailing slash means nothing.\n\n\
        Kept: content, holes, modes, times, owners (as far as this user may), extended attributes, symbolic and hard links, named \
        pipes. Not kept: sockets and devices (each is named), access control lists, times of creation.\n\n\
        A file gets its name once it is whole and on disk; when the command returns, names and attributes are on disk too. With \
        --no-sync the system writes when it likes, as after `cp`. A file that fails is named and the rest goes on.\n\n\
        Exit codes: 0 everything is copied, 1 something failed or the job was stopped, 2 wrong usage. Ctrl-C ends the job; the same \
        command goes on with it."
)]
pub struct StageArgs {
    /// File or directory to copy
    #[arg(required_unless_present = "manifest", value_hint = ValueHint::AnyPath)]
    pub src: Option<PathBuf>,
    /// What it becomes; the directory above must exist
    #[arg(required_unless_present = "manifest", value_hint = ValueHint::AnyPath)]
    pub dst: Option<PathBuf>,
    /// Copy what this file lists: a line `SRC DST` each, `#` begins a comment, quotes keep spaces
    #[arg(long, value_name = "FILE", conflicts_with_all = ["src", "dst"], value_hint = ValueHint::FilePath)]
    pub manifest: Option<PathBuf>,
    /// Read every copy again and compare checksums, before it gets its name
    #[arg(long)]
    pub verify: bool,
    /// Do not wait for the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Files copied at once by each node [default: 4 with one node, 2 with several]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Return at once; the service goes on. `forebay stage status` shows the job
    #[arg(long)]
    pub background: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `stage status`.
#[derive(Debug, Args)]
pub struct StageStatusArgs {
    /// A store, or a mount point of its service [default: every service mounted on this machine]
    #[arg(value_name = "STORE|MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// End this job; what is finished stays
    #[arg(long, value_name = "JOB", requires = "store")]
    pub cancel: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fsck`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the store is sound, 1 problems were found or the check failed, 2 wrong usage. \
        The check changes nothing."
)]
pub struct FsckArgs {
    /// The store; of servers in processes of their own the stores of all, or one path with {rank} in it
    #[arg(value_name = "STORE", required = true, value_hint = ValueHint::DirPath)]
    pub stores: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "For bash: `forebay completions bash > ~/.local/share/bash-completion/completions/forebay`."
)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// The verbs of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// Make the trace of a known workload
    Gen(GenArgs),
    /// Run a command and record every operation on Forebay mounts meanwhile
    Record(RecordArgs),
    /// Do what a trace did, with derived content, and verify every byte that is read
    Replay(ReplayArgs),
    /// Describe a trace: ranks, files, sizes, strides
    Stats(StatsArgs),
    /// Draw which bytes each rank touched, and when
    Plot(PlotArgs),
    /// Write a trace in Forebay's format, or as CSV
    Convert(ConvertArgs),
}

/// Arguments of `trace plot`.
#[derive(Debug, Args)]
#[command(
    after_help = "A panel for the reads and one for the writes of each file, those with most bytes first; a mark for each call, from its \
        start to its end and over the bytes it touched, in the colour of its rank.\n\n\
        An HTML page holds the data and needs nothing else: the wheel zooms at the pointer (over an axis, that axis), dragging moves, \
        dragging with Shift zooms to a box, a double click shows everything, and the pointer over a call says what it is."
)]
pub struct PlotArgs {
    /// A trace in Forebay's format, or CSV
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub trace: PathBuf,
    /// What to write, by its ending: .svg, .png or .html; may be given several times [default: TRACE.html]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Vec<PathBuf>,
    /// Only files with this path, or whose path ends with it behind a slash, or with this number
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Only reads or only writes
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Option<KindArg>,
    /// Only these ranks: one, or FIRST-LAST
    #[arg(long, value_name = "RANKS", value_parser = parse_ranks)]
    pub ranks: Option<std::ops::RangeInclusive<u32>>,
    /// What runs from left to right: time, or the number of the rank's call on the file
    #[arg(long, value_enum, value_name = "AXIS", default_value_t = XArg::Time)]
    pub x: XArg,
}

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KindArg {
    /// Only reads
    Read,
    /// Only writes
    Write,
}

/// The horizontal axis of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum XArg {
    /// Time since the first call shown
    Time,
    /// The rank's calls, one after the other
    Calls,
}

/// `3` or `0-7`.
fn parse_ranks(text: &str) -> Result<std::ops::RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("'{text}' names no ranks; write 3 or 0-7")),
    }
}

/// Arguments of `trace record`.
#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is the command's. Everything that goes through the mounts is recorded, whoever does it. Each process \
        is a rank, numbered as its MPI or Slurm launcher did, if there is one.\n\n\
        While the recording runs, files that are opened bypass the kernel's page cache, and names and attributes are asked for each \
        time: so the trace has the calls as programs make them (those above 1 MiB in pieces). With --cached the kernel works as ever, and \
        the trace has what it asks for: less work, but no reads that it answers itself."
)]
pub struct RecordArgs {
    /// Mount points or stores to record [default: every service of this user mounted on this machine]
    #[arg(long = "mount", value_name = "MOUNTPOINT|STORE", value_hint = ValueHint::DirPath)]
    pub mounts: Vec<PathBuf>,
    /// Where to write the trace; as CSV if it ends in .csv [default: CMD.trace, if there is none]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Each thread is a rank, instead of each process
    #[arg(long)]
    pub threads: bool,
    /// Leave the kernel its caches, and record what still reaches the mount
    #[arg(long)]
    pub cached: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Arguments of `trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "A CSV gets a table of file names beside it, NAME.files.csv. Of a trace that was cut off, what is whole is kept."
)]
pub struct ConvertArgs {
    /// A trace in Forebay's format, or CSV
    #[arg(value_name = "FROM", value_hint = ValueHint::FilePath)]
    pub from: PathBuf,
    /// The file to write; as CSV if it ends in .csv
    #[arg(value_name = "TO", value_hint = ValueHint::FilePath)]
    pub to: PathBuf,
}

/// Arguments of `trace gen`.
#[derive(Debug, Args)]
pub struct GenArgs {
    /// The workload; `forebay trace gen list` names all
    pub kind: String,
    /// Parameters as NAME=VALUE; sizes may be written like 64KiB
    #[arg(value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Where to write the trace [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Arguments of `trace stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// A trace in Forebay's format, or a Darshan DXT export (CSV)
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `none`, `recorded`, `recorded/SPEED`, or a time.
fn parse_delays(text: &str) -> Result<Delays, String> {
    let wrong = || {
        format!(
            "'{text}' is no delay; write none, recorded, recorded/2, or a time like 200us or 5ms"
        )
    };
    match text.split_once('/') {
        _ if text == "none" => Ok(Delays::None),
        _ if text == "recorded" => Ok(Delays::Recorded { speed: 1.0 }),
        Some(("recorded", speed)) => match speed.parse() {
            Ok(speed) if speed > 0.0 && f64::is_finite(speed) => Ok(Delays::Recorded { speed }),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
        None => match text.strip_suffix("us").map(str::parse) {
            Some(Ok(micros)) => Ok(Delays::Fixed(Duration::from_micros(micros))),
            Some(Err(_)) => Err(wrong()),
            None => parse_duration(text).map(Delays::Fixed).map_err(|_| wrong()),
        },
    }
}

/// Arguments of `trace replay`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["mounts", "store"]))]
pub struct ReplayArgs {
    /// A trace in Forebay's format, or a Darshan DXT export (CSV)
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Replay in these directories; rank R uses the R-th, round and round
    #[arg(long, value_name = "DIR,DIR..", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    pub mounts: Vec<PathBuf>,
    /// Start a service on this store for the replay, and stop it at the end
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// What ranks do between calls: none; recorded (what the trace says they computed), recorded/4 (four times as fast); or a time
    #[arg(long, value_name = "none|recorded|TIME", default_value = "none", value_parser = parse_delays)]
    pub delays: Delays,
    /// Threads that make calls when there are no delays; a rank stays on one [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Do not read everything once more at the end
    #[arg(long)]
    pub no_check: bool,
    /// With --store: through the client library, without mounts
    #[arg(long, requires = "store", conflicts_with = "mounts")]
    pub library: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}
