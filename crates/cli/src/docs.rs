//! The generated pages of the documentation: `docs/commands.md` from the command line's definition, and
//! `docs/configuration.md` from the table of settings. A test compares them with the files.
use crate::args::Cli;
use crate::settings::TABLE;
use clap::{Command, CommandFactory};
use std::fmt::Write as _;

const NOTE: &str = "<!-- Generated: change the definitions in crates/cli, then run `UPDATE_DOCS=1 cargo test -p forebay-cli`. -->\n";

/// `docs/configuration.md`.
pub fn configuration() -> String {
    let mut out = format!(
        "# Configuration\n\n{NOTE}\n\
        Every setting can be given in three places; the later wins:\n\n\
        1. the configuration file: the one named by `--config FILE` or `FOREBAY_CONFIG`, or else `~/.config/forebay/config.toml`\n   \
        (`$XDG_CONFIG_HOME/forebay/config.toml` where that is set) if it exists;\n\
        2. the environment;\n\
        3. the command line of `forebay mount`, `forebay run`, `forebay serve`, `forebay demo` and `forebay trace replay --store`.\n\n\
        The file is TOML. A key it does not know is an error that names the nearest one it knows:\n\n\
        ```toml\nnodes = 4\nmemory = \"256MiB\"\ndurability = \"disk\"\n```\n\n\
        | key | flag | environment | default | meaning |\n|---|---|---|---|---|\n"
    );
    for s in TABLE {
        let value = if s.value.is_empty() {
            String::new()
        } else {
            format!(" {}", s.value)
        };
        let _ = writeln!(
            out,
            "| `{}` | `--{}{value}` | `{}` | `{}` | {} |",
            s.key,
            s.flag,
            s.env(),
            s.default,
            s.help
        );
    }
    out.push_str(
        "\n**Sizes** are bytes, or a number with a unit: `K`, `M`, `G`, `T` and `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; \
        `KB`, `MB`, `GB`, `TB` are powers of 1000. **Times** are seconds, or a number with `ms`, `s`, `m` or `h`.\n\n\
        `nodes` is fixed when a store is created. All other settings may change from one start to the next.\n",
    );
    out
}

/// `docs/commands.md`.
pub fn commands() -> String {
    let mut out = format!(
        "# Commands\n\n{NOTE}\n\
        Exit codes of every command: 0 done, 1 failed or problems found, 2 wrong usage or configuration. \
        A failure is one line on standard error: what, where, what to do next.\n"
    );
    let mut cli = Cli::command().term_width(100);
    cli.build();
    section(&mut out, &mut cli, "forebay");
    out
}

fn section(out: &mut String, command: &mut Command, name: &str) {
    let help = command
        .clone()
        .bin_name(name)
        .term_width(100)
        .render_long_help()
        .to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let _ = write!(out, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    for subcommand in command
        .get_subcommands_mut()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
    {
        let name = format!("{name} {}", subcommand.get_name());
        section(out, subcommand, &name);
    }
}
