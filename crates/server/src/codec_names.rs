//! Codec hints by the names of files: what the setting `codec_names` says.
//!
//! ```text
//! *.nc=field,f32; ckpt/*.bf16=auto,bf16; **/restart/*=zstd
//! ```
//!
//! The first pattern that fits decides. One without a slash is compared with the name of the file, one with a slash with its path below
//! the root, component by component.
//!
//! | in a pattern | fits |
//! |---|---|
//! | `*` | any bytes, also none |
//! | `?` | one byte |
//! | `[abc]`, `[a-z]`, `[!abc]` | one byte of these; one that is none of them |
//! | `**` as a component | any number of directories, also none |
use forebay_codec::CodecHint;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Longest pattern, bytes: matching takes at most this times the length of a path.
const MAX_PATTERN_BYTES: usize = 4096;
/// Most components of a pattern.
const MAX_COMPONENTS: usize = 64;

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecNames(Vec<NamedHint>);

/// A pattern, and the hint of files that it fits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedHint {
    pattern: NamePattern,
    hint: CodecHint,
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
        patterns.any(|pattern| pattern.directories.is_some())
    }

    /// The hint of a file of this name. `directory`: the names of the directories above it, from the root on; asked for only if a
    /// pattern with a slash may fit. `None` from it: not known, so no such pattern fits.
    pub fn hint(
        &self,
        name: &[u8],
        directory: impl FnOnce() -> Option<Vec<Vec<u8>>>,
    ) -> Option<CodecHint> {
        let mut directory = Some(directory);
        let mut above: Option<Vec<Vec<u8>>> = None;
        let mut fits = |pattern: &NamePattern| {
            if !pattern.name.fits(name) {
                return false;
            }
            let Some(directories) = &pattern.directories else {
                return true;
            };
            if let Some(ask) = directory.take() {
                above = ask();
            }
            above
                .as_ref()
                .is_some_and(|above| fit_components(directories, above))
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
        let pattern = NamePattern::parse(pattern.trim()).map_err(|why| wrong(why.into()))?;
        Ok(NamedHint { pattern, hint })
    }
}

/// A pattern of a name or path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamePattern {
    /// Of the directories; `None`: any.
    directories: Option<Vec<ComponentPattern>>,
    /// Of the name itself.
    name: Glob,
}

/// A pattern of one component of a path, or of any number of them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ComponentPattern {
    Any,
    One(Glob),
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, &'static str> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err("the pattern is longer than 4096 bytes");
        }
        let has_slash = text.contains('/');
        let mut components: Vec<&str> = text.strip_prefix('/').unwrap_or(text).split('/').collect();
        if components.len() > MAX_COMPONENTS {
            return Err("the pattern has more than 64 components");
        }
        let name = components.pop().unwrap_or_default();
        if name.is_empty() {
            return Err("the pattern names no file; end it with a name, such as *");
        }
        if name == "**" {
            return Err("** stands for directories; write **/* for all files below");
        }
        let component = |text: &str| match text {
            "" | "." | ".." => Err("a component of the pattern is empty or has dots only"),
            "**" => Ok(ComponentPattern::Any),
            _ => Glob::parse(text).map(ComponentPattern::One),
        };
        let directories = components.into_iter().map(component);
        let directories = directories.collect::<Result<Vec<_>, _>>()?;
        Ok(NamePattern {
            directories: has_slash.then_some(directories),
            name: Glob::parse(name)?,
        })
    }
}

/// Whether the patterns fit these names, one after the other.
fn fit_components(patterns: &[ComponentPattern], names: &[Vec<u8>]) -> bool {
    fits_sequence(
        patterns,
        names,
        |p| *p == ComponentPattern::Any,
        |p, name| match p {
            ComponentPattern::Any => true,
            ComponentPattern::One(glob) => glob.fits(name),
        },
    )
}

/// A pattern of a name.
#[derive(Clone, PartialEq, Eq)]
struct Glob(Vec<GlobPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPart {
    /// Any bytes.
    Star,
    /// One byte.
    One,
    /// This byte.
    Byte(u8),
    /// A byte of these ranges, or of none of them.
    Class { ranges: Vec<(u8, u8)>, none: bool },
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Glob {
    fn parse(text: &str) -> Result<Glob, &'static str> {
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            parts.push(match byte {
                b'*' => GlobPart::Star,
                b'?' => GlobPart::One,
                b'[' => {
                    let (class, behind) = parse_class(rest)?;
                    rest = behind;
                    class
                }
                byte => GlobPart::Byte(byte),
            });
        }
        Ok(Glob(parts))
    }

    fn fits(&self, name: &[u8]) -> bool {
        fits_sequence(
            &self.0,
            name,
            |part| *part == GlobPart::Star,
            |part, byte| match part {
                GlobPart::Star | GlobPart::One => true,
                GlobPart::Byte(wanted) => wanted == byte,
                GlobPart::Class { ranges, none } => {
                    let within = |(first, last): &(u8, u8)| (first..=last).contains(&byte);
                    ranges.iter().any(within) != *none
                }
            },
        )
    }
}

/// The class behind a `[`, and what follows its `]`. A `]` that comes first is one of its bytes.
fn parse_class(text: &[u8]) -> Result<(GlobPart, &[u8]), &'static str> {
    let (none, text) = match text.strip_prefix(b"!").or(text.strip_prefix(b"^")) {
        Some(text) => (true, text),
        None => (false, text),
    };
    let end = text.iter().skip(1).position(|b| *b == b']');
    let end = end.ok_or("a [ in the pattern has no ]")? + 1;
    let (mut class, behind) = (&text[..end], &text[end + 1..]);
    let mut ranges = Vec::new();
    while let [first, rest @ ..] = class {
        let (last, rest) = match rest {
            [b'-', last, rest @ ..] => (last, rest),
            _ => (first, rest),
        };
        if first > last {
            return Err("a range in [ ] of the pattern is empty");
        }
        ranges.push((*first, *last));
        class = rest;
    }
    Ok((GlobPart::Class { ranges, none }, behind))
}

/// Whether patterns fit items in order; one that `is_star` fits any number of items. Only the last star is tried again with more
/// items, which is enough: so it takes at most `patterns` times `items` comparisons.
fn fits_sequence<P, T>(
    patterns: &[P],
    items: &[T],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut i) = (0, 0);
    // Behind the last star, and behind the items that it has taken.
    let mut retry: Option<(usize, usize)> = None;
    while i < items.len() {
        match patterns.get(p) {
            Some(pattern) if is_star(pattern) => {
                p += 1;
                retry = Some((p, i));
            }
            Some(pattern) if fits(pattern, &items[i]) => {
                p += 1;
                i += 1;
            }
            _ => {
                let Some((behind, taken)) = retry else {
                    return false;
                };
                retry = Some((behind, taken + 1));
                (p, i) = (behind, taken + 1);
            }
        }
    }
    patterns[p..].iter().all(is_star)
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
            ("a/**=raw", "a/**=raw", "**/*"),
            ("a[b=raw", "a[b=raw", "no ]"),
            ("a[z-a]=raw", "a[z-a]=raw", "is empty"),
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
