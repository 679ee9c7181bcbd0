//! Turns the command-line parser's errors into our one line; help and version stay as they are.
use crate::fail;
use crate::output::tell;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Prints the error (or the help that was asked for); gives the exit code.
pub fn report(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe (`forebay --help | head`) is no failure.
            let _ = error.print();
            fail::OK
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            fail::USAGE
        }
        _ => {
            tell(format!("forebay: {}", line(error)));
            fail::USAGE
        }
    }
}

/// What is wrong, the parser's tip if it has one, and where the help is.
fn line(error: &clap::Error) -> String {
    let text = error.to_string();
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
    let verb = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => verb(&usage.to_string()),
        _ => String::from("forebay"),
    };
    format!("{what}; see `{verb} --help`")
}

/// "Usage: forebay trace gen [OPTIONS] <KIND>" -> "forebay trace gen".
fn verb(usage: &str) -> String {
    let words = usage.trim_start_matches("Usage:").split_whitespace();
    words
        .take_while(|w| w.chars().all(|c| c.is_ascii_lowercase()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
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
                &["forebay", "trace", "replay", "x"][..],
                ["--mounts", "see `forebay trace replay --help`"],
            ),
        ] {
            let line = line(&Cli::try_parse_from(args).unwrap_err());
            assert!(!line.contains('\n'), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part} in {line}");
            }
        }
    }
}
