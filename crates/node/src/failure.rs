//! The failure of a subcommand or a server: an exit code and one line that says what happened, where, and what to do next.
//!
//! Invariant: the line never holds a newline, so that scripts can show it whole: one in the name of a file stands there as
//! `\n`, as everywhere ([`forebay_server::escape`]). Texts of other programs that have several lines become one through
//! [`one_line`] first.
use forebay_server::escape::escaped;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Everything went well.
pub const OK: u8 = 0;
/// The subcommand ran and failed, or found problems.
pub const FAILED: u8 = 1;
/// The command line, the environment or the configuration file is wrong; nothing was done.
pub const USAGE: u8 = 2;

/// A failure that ends the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// [`FAILED`] or [`USAGE`].
    pub code: u8,
    /// What, where, next step; may be empty if the subcommand has already said everything.
    pub text: String,
}

/// What subcommands return.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with exit code 1: `what` happened (and where); `next` is what the user can do.
    pub fn new(what: impl fmt::Display, next: impl fmt::Display) -> Failure {
        Failure {
            code: FAILED,
            text: line(&format!("{what}; {next}")),
        }
    }

    /// As [`Failure::new`], for wrong input: exit code 2.
    pub fn usage(what: impl fmt::Display, next: impl fmt::Display) -> Failure {
        Failure::new(what, next).with_code(USAGE)
    }

    /// A failure whose text already says what to do.
    pub fn plain(text: impl fmt::Display) -> Failure {
        Failure {
            code: FAILED,
            text: line(&text.to_string()),
        }
    }

    /// Exit code 1 without another word: the subcommand's own output says it.
    pub fn silent() -> Failure {
        Failure::silent_with(FAILED)
    }

    /// The same with another exit code.
    pub fn silent_with(code: u8) -> Failure {
        Failure {
            code,
            text: String::new(),
        }
    }

    /// The same with another exit code.
    #[must_use]
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// The same text behind `before`, which says what it is about.
    #[must_use]
    pub fn prefixed(self, before: impl fmt::Display) -> Failure {
        let text = format!("{before}{}", self.text);
        Failure { text, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The message as one line; the newline at its end is not part of it.
fn line(text: &str) -> String {
    escaped(text.trim_end()).into_owned()
}

/// What another program or a library says in several lines, as one: its line breaks mean nothing.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds "what and next step" to any error.
pub trait Context<T> {
    /// `what` names the step and the place, `next` what the user can do.
    fn or_fail(self, what: impl fmt::Display, next: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn or_fail(self, what: impl fmt::Display, next: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Failure::new(format!("{what}: {e}"), next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new("cannot read a\n  b", "try\x1bagain\n");
        assert_eq!(failure.text, "cannot read a\\n  b; try\\x1bagain");
        assert_eq!(one_line("two\n\tlines \n"), "two lines");
        assert_eq!(failure.code, FAILED);
        assert_eq!(Failure::usage("a", "b").code, USAGE);
    }
}
