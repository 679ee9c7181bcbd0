//! The program's description of itself: `forebay version`, `forebay man`.
use crate::args::Cli;
use crate::output::{json, name, print};
use clap::{Arg, Command, CommandFactory};
use forebay_node::control;
use forebay_node::failure::{Context, Result};
use forebay_node::transport;
use std::path::Path;

/// `forebay version`.
///
/// # Errors
/// If it cannot be written.
pub fn version(as_json: bool) -> Result {
    let version = env!("CARGO_PKG_VERSION");
    let mpi = transport::library();
    let mpi = mpi.and_then(|library| library.lines().next().map(str::to_string));
    let store = forebay_server::superblock::VERSION;
    if as_json {
        return print(json(&serde_json::json!({
            "version": version,
            "store_format": store,
            "control_protocol": control::VERSION,
            "server_protocol": forebay_server::proto::VERSION,
            "mpi": mpi,
            "png": cfg!(feature = "png"),
        }))?);
    }
    let mpi = mpi.as_deref().unwrap_or("none");
    print(format!(
        "forebay {version}\nstores of format {store}\nMPI: {mpi}\n"
    ))
}

/// `forebay man`.
///
/// # Errors
/// If the directory or a page cannot be written.
pub fn man(directory: Option<&Path>) -> Result {
    let Some(directory) = directory else {
        let mut command = pages().disable_help_subcommand(true);
        command.build();
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .or_fail("cannot make the page", "report this")?;
        return print(String::from_utf8_lossy(&page));
    };
    let shown = name(directory);
    let next = "name a directory of your own";
    std::fs::create_dir_all(directory).or_fail(format!("cannot create {shown}"), next)?;
    clap_mangen::generate_to(pages(), directory)
        .or_fail(format!("cannot write the pages into {shown}"), next)
}

/// The command line as the man pages show it: each synopsis says which flags take values.
fn pages() -> Command {
    let mut command = Cli::command();
    command.build();
    with_synopsis(command)
}

fn with_synopsis(command: Command) -> Command {
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let all = command.get_arguments().filter(shown);
    let (positional, flags): (Vec<&Arg>, Vec<&Arg>) = all.partition(|a| a.is_positional());
    let mut words = vec![
        command
            .get_bin_name()
            .unwrap_or(command.get_name())
            .to_string(),
    ];
    for flag in flags {
        words.push(match flag.is_required_set() {
            true => flag.to_string(),
            false => format!("[{flag}]"),
        });
    }
    words.extend(positional.iter().map(|arg| arg.to_string()));
    if command.has_subcommands() {
        words.push("<COMMAND>".into());
    }
    command
        .override_usage(words.join(" "))
        .mut_subcommands(with_synopsis)
}
