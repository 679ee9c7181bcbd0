//! A manifest: one pair of paths a line, as UnifyFS has them, and comments.
//!
//! ```text
//! # results of the first phase
//! /mnt/fb/a.dat          /scratch/a.dat
//! "/mnt/fb/with space"   '/scratch/with space'
//! /mnt/fb/tree           /scratch/tree      # a directory, with everything in it
//! ```
//!
//! Quotes work as in a shell, without its other powers: within `"` a backslash takes the next character as it is, within `'`
//! nothing is special, outside of both a backslash does the same as within `"`. `#` begins a comment at the start of a word.

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ManifestError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it, and how it is written.
    pub why: &'static str,
}

/// The pairs, each with the number of its line.
///
/// # Errors
/// The first line that is not a pair.
pub fn parse(text: &str) -> Result<Vec<(usize, String, String)>, ManifestError> {
    let mut pairs = Vec::new();
    for (n, content) in text.lines().enumerate() {
        let line = n + 1;
        let mut words = words(content)
            .map_err(|why| ManifestError { line, why })?
            .into_iter();
        let why = match (words.next(), words.next(), words.next()) {
            (None, ..) => continue,
            (Some(from), Some(to), None) if !from.is_empty() && !to.is_empty() => {
                pairs.push((line, from, to));
                continue;
            }
            (Some(_), Some(_), None) => "an empty path; write `SRC DST`",
            (Some(_), None, _) => "one path only; write `SRC DST`",
            _ => "more than two paths; put paths with spaces in quotes",
        };
        return Err(ManifestError { line, why });
    }
    Ok(pairs)
}

fn words(line: &str) -> Result<Vec<String>, &'static str> {
    if line.contains('\0') {
        return Err("a NUL byte, which no path can have");
    }
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"') | None, '\\') => {
                let next = chars
                    .next()
                    .ok_or("a backslash at the end; write `\\\\` for one")?;
                word.get_or_insert_default().push(next);
            }
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote without an end");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pairs_comments_blank_lines_and_quotes() {
        let text = "# head\n\n/a /b\n  \"/x y\"\t'/z\\ w'  # why\n/a\\ b \"/q\\\"r\"\n/c#d /e\r\n";
        let pair = |line, a: &str, b: &str| (line, a.to_string(), b.to_string());
        assert_eq!(
            parse(text).unwrap(),
            [
                pair(3, "/a", "/b"),
                pair(4, "/x y", "/z\\ w"),
                pair(5, "/a b", "/q\"r"),
                pair(6, "/c#d", "/e")
            ]
        );
    }

    #[test]
    fn a_line_that_is_no_pair_is_named() {
        for (text, line, word) in [
            ("/a\n", 1, "one path"),
            ("/a /b\n/a /b /c", 2, "quotes"),
            ("'/a /b", 1, "quote"),
            ("/a \\", 1, "backslash"),
            ("\"\" /b", 1, "empty"),
            ("/a /b\n/a\0c /b", 2, "NUL"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.why.contains(word), "{error}");
        }
    }

    proptest! {
        #[test]
        fn quoted_paths_come_back_as_they_were(a in "[^\\n\\r\\x00]{1,20}", b in "[^\\n\\r\\x00]{1,20}") {
            let quote = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
            let text = format!("{} {}", quote(&a), quote(&b));
            prop_assert_eq!(parse(&text).unwrap(), [(1, a, b)]);
        }
    }
}
