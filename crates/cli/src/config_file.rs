//! The configuration file: TOML, one key a setting, nothing else. A setting that is a list may be written as one.
//!
//! It is the one named by `--config` or `FOREBAY_CONFIG`, or else `forebay/config.toml` in the user's configuration
//! directory if that exists. An unknown key is an error, for a silently ignored one is worse.
use crate::files::read_text;
use crate::settings::{self, ResolvedSettings, SettingArgs, TABLE};
use forebay_node::failure::{Failure, Result, one_line};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The setting that may be a list.
const LIST_SETTING: &str = "codec_names";
/// Between its entries where it is one text.
const LIST_SEPARATOR: &str = "; ";
/// Longest configuration file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Joins the configuration file, the environment and the command line.
///
/// # Errors
/// A usage failure for an unreadable file, an unknown key or a wrong value.
pub fn resolve(config: Option<&Path>, args: &SettingArgs) -> Result<ResolvedSettings> {
    check_variables(std::env::vars_os().map(|(name, _)| name))?;
    let environment = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let path = config
        .map(Path::to_path_buf)
        .or_else(|| environment("FOREBAY_CONFIG").map(PathBuf::from))
        .or_else(|| user_file(environment).filter(|path| path.exists()));
    let texts = path.as_deref().map(read).transpose()?.unwrap_or_default();
    ResolvedSettings::new(&texts, path, environment, args)
}

/// A misspelt variable would be ignored in silence; those of the project's tests are not ours to judge.
fn check_variables(names: impl Iterator<Item = OsString>) -> Result {
    const OTHERS: [&str; 11] = [
        "FOREBAY_COMMAND",
        "FOREBAY_CONFIG",
        "FOREBAY_MOUNT",
        "FOREBAY_MOUNTS",
        "FOREBAY_SECRET",
        "FOREBAY_RUN",
        "FOREBAY_SEED",
        "FOREBAY_SHARED",
        "FOREBAY_TEAM",
        "FOREBAY_LOCAL_RANKS",
        "FOREBAY_LOCAL_RANK",
    ];
    for name in names {
        let name = name.to_string_lossy();
        let foreign = !name.starts_with("FOREBAY_")
            || name.starts_with("FOREBAY_TEST_")
            || name.starts_with("FOREBAY_REQUIRE_")
            || OTHERS.contains(&&*name);
        if !foreign && TABLE.iter().all(|s| s.env() != *name) {
            return Err(Failure::usage(
                format!("the environment variable {name} is no setting"),
                "look for its name in docs/configuration.md or `forebay mount --help`, or unset it",
            ));
        }
    }
    Ok(())
}

fn user_file(environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let directory = environment("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(environment("HOME")?).join(".config")))?;
    Some(directory.join("forebay/config.toml"))
}

fn read(path: &Path) -> Result<BTreeMap<String, String>> {
    let next = "name a readable file with --config";
    let text = read_text("configuration file", path, MAX_FILE_BYTES, next)?;
    parse(&text, path)
}

/// The keys and values of a configuration file as texts.
///
/// # Errors
/// A usage failure that names the file, the line or key, and what to write instead.
fn parse(text: &str, path: &Path) -> Result<BTreeMap<String, String>> {
    let file = path.display();
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        let next = match e.message().starts_with("duplicate key") {
            true => "write each setting once",
            false => "a line is written as `memory = \"192MiB\"`",
        };
        Failure::usage(
            format!("{file}, line {line}: {}", one_line(e.message())),
            next,
        )
    })?;
    let mut texts = BTreeMap::new();
    for (key, value) in table {
        if settings::find(&key).is_none() {
            let nearest = nearest(&key);
            return Err(Failure::usage(
                format!("{file}: there is no setting '{key}'"),
                format!("the nearest is '{nearest}'; `forebay mount --help` lists all"),
            ));
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(n) => n.to_string(),
            toml::Value::Float(n) => n.to_string(),
            toml::Value::Boolean(b) => b.to_string(),
            toml::Value::Array(entries) if key == LIST_SETTING => {
                let texts = entries.iter().map(toml::Value::as_str);
                let texts: Option<Vec<&str>> = texts.collect();
                let texts = texts.ok_or_else(|| {
                    Failure::usage(
                        format!("{file}: the setting '{key}' has an entry that is no string"),
                        "write each as a string, such as \"*.nc=field,f32\"",
                    )
                })?;
                texts.join(LIST_SEPARATOR)
            }
            other => {
                return Err(Failure::usage(
                    format!("{file}: the setting '{key}' is a {}", other.type_str()),
                    "write a string, a number, true or false",
                ));
            }
        };
        texts.insert(key, text);
    }
    Ok(texts)
}

/// The known key with the fewest edits from `key`.
fn nearest(key: &str) -> &'static str {
    TABLE
        .iter()
        .min_by_key(|s| strsim::levenshtein(key, s.key))
        .map_or("", |s| s.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named() {
        let names = |names: &[&str]| check_variables(names.iter().map(OsString::from));
        names(&[
            "HOME",
            "FOREBAY_NODES",
            "FOREBAY_CONFIG",
            "FOREBAY_TEST_FILES",
        ])
        .unwrap();
        let wrong = names(&["FOREBAY_NODE"]).unwrap_err();
        assert_eq!(wrong.code, forebay_node::failure::USAGE);
        assert!(wrong.text.contains("FOREBAY_NODE is no setting"), "{wrong}");
    }

    #[test]
    fn values_of_every_simple_type_are_read() {
        let texts = parse(
            "nodes = 4\nmemory = \"1G\"\nallow_other = true\n",
            Path::new("c"),
        )
        .unwrap();
        let get = |key: &str| texts[key].clone();
        assert_eq!(
            (get("nodes"), get("memory"), get("allow_other")),
            ("4".into(), "1G".into(), "true".into())
        );
    }

    #[test]
    fn patterns_of_codecs_may_be_a_list() {
        let list = "codec_names = [\"*.nc=field,f32\", \"ckpt/*=zstd\"]\n";
        let texts = parse(list, Path::new("c")).unwrap();
        assert_eq!(texts["codec_names"], "*.nc=field,f32; ckpt/*=zstd");
        for (text, part) in [
            ("codec_names = [1]", "no string"),
            ("memory = [\"1G\"]", "'memory' is a array"),
        ] {
            let failure = parse(text, Path::new("c")).unwrap_err();
            assert!(failure.text.contains(part), "{failure}");
        }
    }

    #[test]
    fn an_unknown_key_names_itself_the_file_and_the_nearest() {
        let failure = parse("memroy = 1", Path::new("/etc/fb.toml")).unwrap_err();
        assert_eq!(failure.code, forebay_node::failure::USAGE);
        for part in ["memroy", "/etc/fb.toml", "'memory'"] {
            assert!(failure.text.contains(part), "{failure}");
        }
    }

    #[test]
    fn broken_toml_names_the_line() {
        let failure = parse("nodes = 1\nmemory = = 2\n", Path::new("c.toml")).unwrap_err();
        assert!(failure.text.starts_with("c.toml, line 2:"), "{failure}");
    }

    #[test]
    fn a_setting_that_is_there_twice_is_named_with_what_to_do() {
        let failure = parse("nodes = 1\nnodes = 2\n", Path::new("c.toml")).unwrap_err();
        assert!(failure.text.starts_with("c.toml, line 2:"), "{failure}");
        assert!(
            failure.text.ends_with("; write each setting once"),
            "{failure}"
        );
    }
}
