//! The command line: every subcommand and its own arguments. Settings of the service come from [`crate::settings`].
use crate::settings::SettingArgs;
use clap::{Args, Parser, Subcommand, ValueHint};
use forebay_node::units::{parse_duration, parse_size};
use std::path::PathBuf;
use std::time::Duration;

mod dedup;
mod fields;
mod trace;

pub use dedup::*;
pub use fields::*;
pub use trace::*;

/// Storage for a parallel job: one shared file system over the disks of its nodes.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 failed or problems found, 2 wrong usage.\n\
        Start here: `mkdir -p ~/fb; forebay mount ~/store ~/fb`, then use ~/fb as any directory; `forebay umount ~/fb` ends it."
)]
pub struct Cli {
    /// Configuration file [env: FOREBAY_CONFIG] [default: ~/.config/forebay/config.toml if it exists]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
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
    /// Show of files on a mount how long they are, and with --extents where their bytes are
    Stat(StatArgs),
    /// Make files read-only for ever, so that every node may cache them
    Laminate(LaminateArgs),
    /// Copy files and trees between any directory and a running service, by all nodes at once
    #[command(subcommand)]
    Stage(StageCommand),
    /// Check a store whose service is stopped, every checksum of it
    Fsck(FsckArgs),
    /// Count what deduplication would save of any files, for several sizes of chunks
    Dedup(DedupArgs),
    /// Codecs of floating-point numbers: what they make of your files
    #[command(subcommand)]
    Fields(FieldsCommand),
    /// Record, make, describe, draw and replay traces of parallel I/O
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Check the settings, or show all and where each comes from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script of a shell
    #[command(
        after_help = "For bash: `mkdir -p ~/.local/share/bash-completion/completions; forebay completions bash > \
            ~/.local/share/bash-completion/completions/forebay`."
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write the pages of all commands
    #[command(
        after_help = "To read one: `forebay man | man -l -`. To install all: `forebay man ~/.local/share/man/man1`, then `man forebay-mount`."
    )]
    Man {
        /// Write a page for each command into this directory, instead of the first one to standard output
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Print the version, and what it can read
    Version {
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
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
    after_help = "The demo always runs at least two nodes: four unless --nodes says otherwise. After the reads it writes a second \
        checkpoint that shares 80 % with the first, waits until both are deduplicated, and shows how many bytes both have and how \
        many are stored for them (not with --settle off). Everything it makes is removed at the end, also after Ctrl-C. Exit code 1 \
        on any wrong byte."
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
        The command returns once all mounts are ready; the service goes on in the background and writes STORE/log.\n\n\
        With --salvage the store is only read, and there is one mount however many nodes it has. Files that are whole read as ever; what \
        is lost of the others answers EIO, and STORE/salvage.txt lists it. Of servers in processes of their own name the stores by one \
        path with {rank} in it; one that is missing is done without. docs/damage.md says what to do with a damaged store."
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
    /// Mount what is whole of a damaged store, read-only
    #[arg(long)]
    pub salvage: bool,
    /// Where --salvage makes new records while it runs, about as large as the store without its file data [default: TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "salvage")]
    pub scratch: Option<PathBuf>,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "The servers run in one process on this machine, unless --hosts or --launcher says otherwise or this is a Slurm \
        job. {rank} in the paths becomes the number of the server. The command finds the mounts of this machine in \
        FOREBAY_MOUNT (the first) and FOREBAY_MOUNTS (all, separated by colons), in FOREBAY_SOCKET the server for programs that \
        use Forebay's libraries, and in FOREBAY_TEAM the number of the team of all ranks of the job. What the command leaves running is ended. Exit \
        code: the command's, 128 and the number of the signal that ended it, or 1 if the service failed."
)]
pub struct RunArgs {
    /// Directory that holds the data, the same path on every node
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
    /// Existing directory to mount on, the same path on every node
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "no_mount")]
    pub mount: Option<PathBuf>,
    /// Mount nothing: the command reaches its files by Forebay's libraries. So it is, with a warning, where there is no /dev/fuse
    #[arg(long, conflicts_with_all = ["mount", "hosts", "stage_in", "stage_out"])]
    pub no_mount: bool,
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
        together, and stop together: by SIGTERM, or `forebay umount` of any of the mounts. There are as \
        many nodes as servers, so --nodes is refused. Needs a build with `--features mpi`."
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
        Files: inodes of all kinds. Extents: pieces of files in the index; patterns stand for rows of pieces that are not in it \
        (--wide: for how many). Logical: sum of the sizes of files. Stored: file data without what was replaced or removed. \
        Disk: what the segment files take, garbage included. Where there are many files they are counted every now and then; a \
        line says how long ago. Queues: requests of the mount, of other nodes (served), to other nodes (sent); requests that wait \
        for locks; background work (flush: MemTables, clean: freed places, outbox: freed bytes to tell, unpub: writes that a \
        close could not publish). docs/monitoring.md explains all columns."
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

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(
    after_help = "With --extents, a row stands for many extents if they form a pattern: `at 4 KiB: 512 x [256 Ki x 4 KiB stride 2 MiB] \
        stride 8 KiB` are 512 rows of 262,144 pieces of 4 KiB each, the pieces of a row 2 MiB apart, the rows 8 KiB. A file that is \
        kept as patterns has them at the node that owns it, in place of those extents; what was replaced since still counts. All other \
        extents are in the index; they are shown as the patterns they would make. What a program has written, and not committed by a \
        close or fsync, is not shown."
)]
pub struct StatArgs {
    /// Files on a Forebay mount
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Show the patterns and extents of each file, and whose logs have the bytes
    #[arg(long)]
    pub extents: bool,
    /// Print one JSON object a file instead of text
    #[arg(long)]
    pub json: bool,
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

/// The subcommands of `stage`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "An interrupted job goes on where it was when the same command is run again: finished files are not copied \
        again, unless their source has changed."
)]
pub enum StageCommand {
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
        pipes, devices if the service runs as root. Not kept: sockets (each is named), access control lists, times of creation.\n\n\
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
    /// Forget the unfinished jobs that do not run: the same commands would copy everything again
    #[arg(long, requires = "store", conflicts_with = "cancel")]
    pub forget: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fsck`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the store is sound, 1 problems were found or the check failed, 2 wrong usage. \
        The check changes nothing.\n\n\
        --repair makes new records of all that can be read, says what is lost and what it will do, and asks. The damaged records \
        are kept in damaged-T in each member's store, with a report beside the first store's directories, until you remove them. With \
        --repair the exit code is 0 if the store can be used afterwards, even if files have lost bytes; docs/damage.md says more."
)]
pub struct FsckArgs {
    /// The store; of servers in processes of their own the stores of all, or one path with {rank} in it
    #[arg(value_name = "STORE", required = true, value_hint = ValueHint::DirPath)]
    pub stores: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Put new records of all that can be read in place of damaged ones
    #[arg(long, conflicts_with = "json")]
    pub repair: bool,
    /// Repair without asking
    #[arg(long, requires = "repair")]
    pub yes: bool,
}

/// The subcommands of `config`.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Both read the configuration file, the environment and the flags as every command that starts a service does, and start none."
)]
pub enum ConfigCommand {
    /// Check that every setting is right
    Check(ConfigArgs),
    /// Show every setting that would hold, and where it comes from
    Show(ConfigArgs),
}

/// Arguments of `config check` and `config show`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all are right, 2 one is wrong; it is named with its place.")]
pub struct ConfigArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}
