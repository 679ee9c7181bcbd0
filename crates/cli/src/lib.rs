//! The `forebay` command: arguments, settings, subcommands, and the text that people read.
//!
//! Uses a server process only through `forebay_node`, and the client library and traces by their interfaces. Must not
//! know how any of them works inside.
//!
//! Invariants: each setting is defined once ([`settings::TABLE`]); each failure is one line that says what, where and
//! what next ([`failure::Failure`]); no wait is without a limit.

#![warn(clippy::print_stdout, clippy::print_stderr)] // What is printed goes through `output`.

pub mod args;
mod config_file;
mod demo;
pub mod docs;
mod files;
mod output;
mod progress;
mod run;
mod scratch_dir;
pub mod settings;
mod table;
mod usage_errors;
mod verbs;

use args::{Cli, ConfigVerb, StageVerb, TraceVerb, Verb};
use clap::{CommandFactory, Parser};
use forebay_node::{allocator, failure, mount_cleaner, start};

/// Runs the command line of this process; gives the exit code.
pub fn run() -> u8 {
    allocator::set();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_errors::report(&error),
    };
    match verb(&cli) {
        Ok(()) => failure::OK,
        Err(failure) => {
            if !failure.text.is_empty() {
                output::tell(format!("forebay: {failure}"));
            }
            failure.code
        }
    }
}

fn verb(cli: &Cli) -> failure::Result {
    let config = cli.config.as_deref();
    match &cli.verb {
        Verb::Demo(args) => demo::run(args, config),
        Verb::Mount(args) => verbs::mount::run(args, config),
        Verb::Run(args) => run::run(args, config),
        Verb::Serve(args) => verbs::serve::run(args, config),
        Verb::Umount(args) => verbs::umount::run(args),
        Verb::Status(args) => verbs::status::run(args),
        Verb::Stat(args) => verbs::stat::run(args),
        Verb::Laminate(args) => verbs::laminate::run(args),
        Verb::Stage(StageVerb::In(args)) => verbs::stage::run(args, true),
        Verb::Stage(StageVerb::Out(args)) => verbs::stage::run(args, false),
        Verb::Stage(StageVerb::Status(args)) => verbs::stage_status::run(args),
        Verb::Fsck(args) => verbs::fsck::run(args),
        Verb::Trace(TraceVerb::Gen(args)) => verbs::trace::generate(args),
        Verb::Trace(TraceVerb::Stats(args)) => verbs::trace::stats(args),
        Verb::Trace(TraceVerb::Record(args)) => verbs::record::run(args),
        Verb::Trace(TraceVerb::Plot(args)) => verbs::plot::run(args),
        Verb::Trace(TraceVerb::Convert(args)) => verbs::convert::run(args),
        Verb::Trace(TraceVerb::Replay(args)) => verbs::replay::run(args, config),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "forebay", &mut script);
            output::print(String::from_utf8_lossy(&script))
        }
        Verb::Config(ConfigVerb::Check(args)) => verbs::config::check(args, config),
        Verb::Config(ConfigVerb::Show(args)) => verbs::config::show(args, config),
        Verb::Man { directory } => verbs::about::man(directory.as_deref()),
        Verb::Version { json } => verbs::about::version(*json),
        Verb::Background => {
            start::one_process::background(
                |texts| Ok(settings::Resolved::from_texts(texts)?.values),
            )
        }
        Verb::Watch {
            server,
            store,
            users,
        } => mount_cleaner::run(*server, store, users),
        Verb::Guard { parent, command } => run::guard::run(*parent, command),
        Verb::OverMpi { size } => demo::over_mpi::inside(*size),
        Verb::Worker { job } => demo::worker::run(job),
    }
}
