//! Turns the command-line parser's errors into our one line; help and version stay as they are.
use crate::args::Cli;
use crate::output::{escaped, print_error_line};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use forebay_node::failure;
use std::borrow::Cow;

/// Prints the error (or the help that was asked for); gives the exit code.
pub fn report(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe (`forebay --help | head`) is no failure.
            let _ = error.print();
            failure::OK
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            failure::USAGE
        }
        _ => {
            let args: Vec<String> = std::env::args_os()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect();
            print_error_line(format!("forebay: {}", message(error, &args)));
            failure::USAGE
        }
    }
}

/// What is wrong with the words `args`, the parser's tip if it has one, and where the help is.
fn message(error: &clap::Error, args: &[String]) -> String {
    let mut text = error.to_string();
    // What was typed is shown as it is shown everywhere; the other line breaks are the parser's.
    for value in args
        .iter()
        .flat_map(|arg| [Some(&arg[..]), arg.split_once('=').map(|(_, v)| v)])
    {
        if let Some(value) = value
            && let Cow::Owned(shown) = escaped(value)
        {
            text = text.replace(value, &shown);
        }
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text
        .find("\nUsage:")
        .or_else(|| text.find("\nFor more information"))
        .unwrap_or(text.len());
    // How to pass what begins with a dash as a value is no help: no argument of ours begins with one.
    let lines = text[..end].lines().map(str::trim);
    let told: Vec<_> = lines
        .filter(|l| !l.is_empty() && !l.contains("as a value, use '--"))
        .collect();
    let what = told
        .join("; ")
        .replace(":; ", ": ")
        .replace("; tip: ", "; ");
    let subcommand = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => subcommand(&usage.to_string()),
        _ => String::from("forebay"),
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => joined_flag(&subcommand, args),
        _ => None,
    };
    let tip = tip.map(|joined| format!("; write `{joined}`"));
    format!(
        "{what}{}; see `{subcommand} --help`",
        tip.unwrap_or_default()
    )
}

/// A flag whose value must be joined to it and stands apart, as it would have to be written.
fn joined_flag(subcommand: &str, args: &[String]) -> Option<String> {
    let mut command = Cli::command();
    for word in subcommand.split(' ').skip(1) {
        command = command.find_subcommand(word)?.clone();
    }
    let joined = |flag: &str| {
        let mut all = command.get_arguments();
        all.any(|arg| arg.get_long() == Some(flag) && arg.is_require_equals_set())
    };
    args.windows(2).find_map(|pair| {
        let flag = pair[0].strip_prefix("--")?;
        let value = &pair[1];
        (joined(flag) && !value.starts_with('-')).then(|| format!("--{flag}={value}"))
    })
}

/// `Usage: forebay trace gen [OPTIONS] <KIND>` -> `forebay trace gen`.
fn subcommand(usage: &str) -> String {
    let words = usage.trim_start_matches("Usage:").split_whitespace();
    words
        .take_while(|w| w.chars().all(|c| c.is_ascii_lowercase()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn wrong_usage_is_one_line_with_the_next_step() {
        for (args, parts) in [
            (
                &["forebay", "mount"][..],
                ["<STORE>", "see `forebay mount --help`"],
            ),
            (
                &["forebay", "mout"][..],
                ["'mount'", "see `forebay --help`"],
            ),
            (
                &["forebay", "mount", "--bogus", "a", "b"][..],
                ["'--bogus' found; see", "see `forebay mount --help`"],
            ),
            (
                &["forebay", "demo", "--size", "big"][..],
                ["64MiB", "--help`"],
            ),
            (
                &["forebay", "status", "s", "--watch", "1"][..],
                ["write `--watch=1`;", "see `forebay status --help`"],
            ),
            (
                &["forebay", "trace", "replay", "x"][..],
                ["--mounts", "see `forebay trace replay --help`"],
            ),
        ] {
            let words: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
            let line = message(&Cli::try_parse_from(args).unwrap_err(), &words);
            assert!(!line.contains('\n'), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part} in {line}");
            }
        }
    }

    #[test]
    fn a_newline_in_a_word_is_shown_as_one() {
        for args in [
            &["forebay", "demo", "--size", "1\n2"][..],
            &["forebay", "demo", "--size=1\n2"],
        ] {
            let words: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
            let line = message(&Cli::try_parse_from(args).unwrap_err(), &words);
            assert!(line.contains("'1\\n2'"), "{line}");
        }
    }
}
