//! Escapes texts from outside (names of files, replies of a service) in what people read.
//!
//! They may contain control characters that a terminal obeys (ESC, BEL, C1 bytes), or characters that change how a text looks (a
//! newline, a bidirectional override). [`escaped`] replaces these. A backslash stays as it is, so escaping twice is the same as
//! once.
use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal may obey this character, or show text in another order or another line because of it.
pub fn is_unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
        )
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with `\n`, `\x1b` and the like in place of such characters; `kept` stay.
pub fn escaped_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let harmful = |c: char| is_unsafe_to_print(c) && !kept.contains(&c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a string does not fail.
        let _ = match c {
            c if !harmful(c) => out.write_char(c),
            '\n' => out.write_str("\\n"),
            '\t' => out.write_str("\\t"),
            '\r' => out.write_str("\\r"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    Cow::Owned(out)
}

/// A text from outside as part of one line.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, &[])
}

/// A name as part of one line; bytes that are no UTF-8 as `\xff`.
pub fn escaped_name(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        out.push_str(&escaped(chunk.valid()));
        for byte in chunk.invalid() {
            // As above.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_other_text_stays() {
        let evil = "a\x1b[2J\x07\n\t\r\u{9b}2J\u{202e}\x7f";
        let harmless = "a\\x1b[2J\\x07\\n\\t\\r\\u{9b}2J\\u{202e}\\x7f";
        assert_eq!(escaped(evil), harmless);
        assert_eq!(escaped(harmless), harmless);
        assert_eq!(escaped_but("a\tb\nc\x1b", &['\n', '\t']), "a\tb\nc\\x1b");
        let plain = "naïve — 名前 \\ 'x' 🙂";
        assert!(matches!(escaped(plain), Cow::Borrowed(_)));
        assert_eq!(escaped_name(b"/a\xff\xfeb\n"), "/a\\xff\\xfeb\\n");
    }
}
