//! Output of the command: the one place that writes to standard output and standard error for people.
//!
//! Names of files, texts of traces and replies of a service come from others. They may hold control characters that a terminal
//! obeys (ESC, BEL, C1 bytes), or characters that show another text than there is (newlines, changes of the reading direction).
//! [`forebay_server::escape`] lists them and escapes them.
//!
//! Invariants: [`print()`] and [`print_error_line`] escape all of those but the newlines and tabs of our own text. A text from outside
//! stays on one line if it went through [`name`] or [`escaped`]. JSON stays JSON, with the same text in it ([`json`]). A reader
//! that stops early, as `head` does, is no failure.
//!
//! Clippy refuses `println!` and its like elsewhere in this crate.
use forebay_node::failure::{Context, Result};
pub use forebay_server::escape::escaped;
use forebay_server::escape::{escaped_but, escaped_name, is_unsafe_to_print};
use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Text of several lines, as [`print()`] prints it.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, &['\n', '\t'])
}

/// The name of a file as part of one line; bytes that are no UTF-8 as `\xff`.
pub fn name(path: &Path) -> String {
    escaped_name(path.as_os_str().as_bytes())
}

/// Writes it all to standard output.
///
/// # Errors
/// If it cannot be written, but for a reader that has seen enough.
pub fn print(text: impl AsRef<str>) -> Result {
    print_unescaped(&lines(text.as_ref())).map(drop)
}

/// A value as one line of JSON for [`print()`]: what [`print()`] would escape is written as JSON itself escapes it.
///
/// # Errors
/// If the value is nothing that JSON can hold.
pub fn json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string(value).or_fail("cannot write JSON", "report this")?;
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        // It stands in a string, for JSON has such characters nowhere else; none of them is beyond 16 bits.
        let _ = match is_unsafe_to_print(c) {
            true => write!(out, "\\u{:04x}", u32::from(c)),
            false => out.write_char(c),
        };
    }
    out.push('\n');
    Ok(out)
}

/// Writes text to standard output that moves the cursor on purpose; what is shown in it went through [`lines`]. False if the
/// reader has seen enough.
///
/// # Errors
/// As for [`print()`].
pub fn print_unescaped(text: &str) -> Result<bool> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written
            .map(|()| true)
            .or_fail("cannot write to standard output", "look at where it leads"),
    }
}

/// Writes a line to standard error.
pub fn print_error_line(line: impl Display) {
    let line = line.to_string();
    // One write a line, so that lines of several processes do not mix. Where it fails there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("{}\n", escaped(&line)).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_without_such_characters() {
        let evil = "a\x1b\n\u{9b}\u{202e}\x7f\\🙂";
        let text = json(&serde_json::json!({ "name": evil })).unwrap();
        assert_eq!(lines(&text), text);
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], evil);
    }
}
