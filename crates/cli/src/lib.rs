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
mod subcommands;
mod table;
mod usage_errors;

use args::{Cli, CliCommand, ConfigCommand, FieldsCommand, StageCommand, TraceCommand};
use clap::{CommandFactory, Parser};
use forebay_node::{allocator, failure, mount_cleaner, start};

/// Runs the command line of this process; gives the exit code.
pub fn run() -> u8 {
    allocator::set();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_errors::report(&error),
    };
    match dispatch(&cli) {
        Ok(()) => failure::OK,
        Err(failure) => {
            if !failure.text.is_empty() {
                output::print_error_line(format!("forebay: {failure}"));
            }
            failure.code
        }
    }
}

fn dispatch(cli: &Cli) -> failure::Result {
    let config = cli.config.as_deref();
    match &cli.command {
        CliCommand::Demo(args) => demo::run(args, config),
        CliCommand::Mount(args) => subcommands::mount::run(args, config),
        CliCommand::Run(args) => run::run(args, config),
        CliCommand::Serve(args) => subcommands::serve::run(args, config),
        CliCommand::Umount(args) => subcommands::umount::run(args),
        CliCommand::Status(args) => subcommands::status::run(args),
        CliCommand::Stat(args) => subcommands::stat::run(args),
        CliCommand::Laminate(args) => subcommands::laminate::run(args),
        CliCommand::Stage(StageCommand::In(args)) => subcommands::stage::run(args, true),
        CliCommand::Stage(StageCommand::Out(args)) => subcommands::stage::run(args, false),
        CliCommand::Stage(StageCommand::Status(args)) => subcommands::stage_status::run(args),
        CliCommand::Fsck(args) => subcommands::fsck::run(args),
        CliCommand::Dedup(args) => subcommands::dedup::run(args),
        CliCommand::Fields(FieldsCommand::Analyze(args)) => subcommands::fields::analyze(args),
        CliCommand::Fields(FieldsCommand::Recode(args)) => subcommands::fields::recode(args),
        CliCommand::Trace(TraceCommand::Gen(args)) => subcommands::trace::generate(args),
        CliCommand::Trace(TraceCommand::Stats(args)) => subcommands::trace::stats(args),
        CliCommand::Trace(TraceCommand::Record(args)) => subcommands::record::run(args),
        CliCommand::Trace(TraceCommand::Plot(args)) => subcommands::plot::run(args),
        CliCommand::Trace(TraceCommand::Convert(args)) => subcommands::convert::run(args),
        CliCommand::Trace(TraceCommand::Replay(args)) => subcommands::replay::run(args, config),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "forebay", &mut script);
            output::print(String::from_utf8_lossy(&script))
        }
        CliCommand::Config(ConfigCommand::Check(args)) => subcommands::config::check(args, config),
        CliCommand::Config(ConfigCommand::Show(args)) => subcommands::config::show(args, config),
        CliCommand::Man { directory } => subcommands::about::man(directory.as_deref()),
        CliCommand::Version { json } => subcommands::about::version(*json),
        CliCommand::Background => start::one_process::background(|texts| {
            Ok(settings::ResolvedSettings::from_texts(texts)?.values)
        }),
        CliCommand::Watch {
            server,
            store,
            users,
        } => mount_cleaner::run(*server, store, users),
        CliCommand::Guard { parent, command } => run::guard::run(*parent, command),
        CliCommand::OverMpi { size } => demo::over_mpi::inside(*size),
        CliCommand::Worker { job } => demo::worker::run(job),
    }
}
