//! Codec hints by the names of files: what the setting `codec_names` says.
//!
//! ```text
//! *.nc=field,f32; ckpt/*.bf16=auto,bf16; **/restart/*=zstd
//! ```
//!
//! The first pattern that fits decides. One without a slash is compared with the name of the file, one with a slash with its path below
//! the root. Patterns are those of the crate `glob`: `*` and `?` are any bytes and one character of a component, `[a-z]` and `[!a-z]` one
//! of these and one that is none of them, and `**` as a component is any number of directories.
use forebay_codec::CodecHint;
use glob::{MatchOptions, Pattern};
use std::str::FromStr;
use thiserror::Error;

/// Longest pattern, bytes: matching takes time with its length.
const MAX_PATTERN_BYTES: usize = 4096;
/// `*` and `?` stay within a component.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecNames(Vec<NamedHint>);

/// A pattern, and the hint of files that it fits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedHint {
    pattern: NamePattern,
    hint: CodecHint,
}

/// A pattern of a name or path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamePattern {
    /// Of the path below the root; `None`: of the name alone.
    path: Option<Pattern>,
    /// Of the name itself.
    name: Pattern,
}

/// Why a text is no list of patterns; names the entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{entry}`: {why}")]
pub struct CodecNamesError {
    entry: String,
    why: String,
}

impl CodecNames {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether paths matter to any pattern.
    pub fn have_paths(&self) -> bool {
        let mut patterns = self.0.iter().map(|named| &named.pattern);
        patterns.any(|pattern| pattern.path.is_some())
    }

    /// The hint of a file of this name. `directory`: the names of the directories above it, from the root on; asked for only if a
    /// pattern with a slash may fit. `None` from it: not known, so no such pattern fits.
    pub fn hint(
        &self,
        name: &[u8],
        directory: impl FnOnce() -> Option<Vec<Vec<u8>>>,
    ) -> Option<CodecHint> {
        // What is no UTF-8 is fitted by wildcards alone.
        let name = String::from_utf8_lossy(name);
        let mut directory = Some(directory);
        let mut path: Option<String> = None;
        let mut fits = |pattern: &NamePattern| {
            if !pattern.name.matches_with(&name, OPTIONS) {
                return false;
            }
            let Some(of_path) = &pattern.path else {
                return true;
            };
            if let Some(ask) = directory.take() {
                path = ask().map(|above| {
                    let above = above.iter().map(|name| String::from_utf8_lossy(name));
                    let components: Vec<_> = above.chain([name.clone()]).collect();
                    components.join("/")
                });
            }
            path.as_ref()
                .is_some_and(|path| of_path.matches_with(path, OPTIONS))
        };
        let first = self.0.iter().find(|named| fits(&named.pattern));
        first.map(|named| named.hint)
    }
}

impl FromStr for CodecNames {
    type Err = CodecNamesError;

    /// Reads the text of the setting; of nothing comes none.
    fn from_str(text: &str) -> Result<CodecNames, CodecNamesError> {
        let entries = text.split(';').map(str::trim).filter(|e| !e.is_empty());
        entries
            .map(NamedHint::parse)
            .collect::<Result<_, _>>()
            .map(CodecNames)
    }
}

impl NamedHint {
    /// `PATTERN=HINT`. Both may have a `=`: what follows the first one behind which there is a hint is the hint.
    fn parse(entry: &str) -> Result<NamedHint, CodecNamesError> {
        let wrong = |why: String| CodecNamesError {
            entry: entry.to_owned(),
            why,
        };
        let splits = || {
            let places = entry.match_indices('=');
            places.map(|(at, _)| (&entry[..at], &entry[at + 1..]))
        };
        let found = splits().find_map(|(pattern, hint)| Some((pattern, hint.trim().parse().ok()?)));
        let Some((pattern, hint)) = found else {
            let Some((_, hint)) = splits().next() else {
                return Err(wrong("write PATTERN=CODEC, such as *.nc=field,f32".into()));
            };
            let refused = hint.trim().parse::<CodecHint>().err();
            return Err(wrong(refused.map_or_else(String::new, |e| e.to_string())));
        };
        let pattern = NamePattern::parse(pattern.trim()).map_err(wrong)?;
        Ok(NamedHint { pattern, hint })
    }
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err("the pattern is longer than 4096 bytes".into());
        }
        let path = text.strip_prefix('/').unwrap_or(text);
        let mut components = path.split('/');
        if components.clone().any(|c| matches!(c, "." | "..")) {
            return Err("a component of the pattern has dots only".into());
        }
        let name = components.next_back().unwrap_or_default();
        if name.is_empty() {
            return Err("the pattern names no file; end it with a name, such as *".into());
        }
        if components.any(str::is_empty) {
            return Err("a component of the pattern is empty".into());
        }
        let glob = |text: &str| {
            let parsed = Pattern::new(text);
            parsed.map_err(|e| format!("{} at character {} of `{text}`", e.msg, e.pos + 1))
        };
        Ok(NamePattern {
            path: text.contains('/').then(|| glob(path)).transpose()?,
            // Below a directory everything has a name that fits.
            name: glob(if name == "**" { "*" } else { name })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(names: &str, path: &str) -> Option<String> {
        let names: CodecNames = names.parse().unwrap();
        let mut above: Vec<Vec<u8>> = path.split('/').map(|n| n.as_bytes().to_vec()).collect();
        let name = above.pop().unwrap();
        names.hint(&name, || Some(above)).map(|h| h.to_string())
    }

    fn fits(pattern: &str, path: &str) -> bool {
        hint(&format!("{pattern}=raw"), path).is_some()
    }

    #[test]
    fn the_first_pattern_that_fits_decides() {
        let names = "*.nc = field,f32 ; ckpt/*.bf16=auto,bf16;;*=zstd";
        assert_eq!(hint(names, "run/a.nc").unwrap(), "field,f32");
        assert_eq!(hint(names, "ckpt/7.bf16").unwrap(), "auto,bf16");
        assert_eq!(hint(names, "run/ckpt/7.bf16").unwrap(), "zstd");
        assert_eq!(hint("*.nc=field", "a.txt"), None);
        assert!("".parse::<CodecNames>().unwrap().is_empty());
    }

    #[test]
    fn a_pattern_fits_names_as_a_shell_has_it() {
        for (pattern, path, does) in [
            ("*", "a", true),
            ("*", "d/.a", true),
            ("a*b*c", "aXbXbYc", true),
            ("a*b*c", "aXbXbY", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("x[0-9a].nc", "x7.nc", true),
            ("x[0-9a].nc", "xa.nc", true),
            ("x[0-9a].nc", "xb.nc", false),
            ("x[!0-9]", "x7", false),
            ("x[!0-9]", "xy", true),
            ("[]-]", "]", true),
            ("[]-]", "-", true),
            ("year=*.nc", "year=2020.nc", true),
        ] {
            assert_eq!(fits(pattern, path), does, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_with_a_slash_fits_paths_from_the_root() {
        for (pattern, path, does) in [
            ("ckpt/*", "ckpt/a", true),
            ("ckpt/*", "ckpt/a/b", false),
            ("ckpt/*", "b/ckpt/a", false),
            ("/ckpt/*", "ckpt/a", true),
            ("/a", "a", true),
            ("/a", "d/a", false),
            ("**/ckpt/*", "ckpt/a", true),
            ("**/ckpt/*", "x/y/ckpt/a", true),
            ("a/**/z/*.nc", "a/b/c/z/q.nc", true),
            ("a/**/z/*.nc", "a/z/q.nc", true),
            ("a/**/z/*.nc", "a/z/b/q.nc", false),
            ("a/**/*", "a/b/c/d", true),
            ("a/**", "a/b/c/d", true),
            ("run-*/f", "run-7/f", true),
        ] {
            assert_eq!(fits(pattern, path), does, "{pattern} {path}");
        }
    }

    #[test]
    fn directories_are_asked_for_once_and_only_for_a_name_that_fits() {
        let names: CodecNames = "a/*.nc=raw; b/*.nc=field".parse().unwrap();
        assert_eq!(names.hint(b"x.txt", || panic!("not needed")), None);
        let mut asked = 0;
        let found = names.hint(b"x.nc", || {
            asked += 1;
            Some(vec![b"b".to_vec()])
        });
        assert_eq!((found.unwrap().to_string().as_str(), asked), ("field", 1));
        assert_eq!(names.hint(b"x.nc", || None), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_entry() {
        for (text, entry, why) in [
            ("*.a=raw;*.nc", "*.nc", "PATTERN=CODEC"),
            ("*.nc=fild,f32", "*.nc=fild,f32", "`fild` is not known"),
            ("*.nc=field,stride=0", "*.nc=field,stride=0", "`stride=0`"),
            ("=raw", "=raw", "names no file"),
            ("a/=raw", "a/=raw", "names no file"),
            ("a//b=raw", "a//b=raw", "empty"),
            ("a/../b=raw", "a/../b=raw", "dots"),
            ("a**b=raw", "a**b=raw", "recursive wildcards"),
            ("a[b=raw", "a[b=raw", "invalid range"),
        ] {
            let refused = text.parse::<CodecNames>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("`{entry}`: ")), "{refused}");
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "a*".repeat(1000);
        assert!(!fits(&format!("{pattern}b"), &"a".repeat(255)));
        assert!(fits("*a*a*a*a*a*a*a*a*b", &format!("{}b", "a".repeat(250))));
    }
}
