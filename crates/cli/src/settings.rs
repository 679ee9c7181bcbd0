//! Every setting of a service, defined once in [`TABLE`]: its key, default, help, and how its text becomes a value.
//!
//! From one row come the flag (`--start-limit`), the environment variable (`FOREBAY_START_LIMIT`), the key of the
//! configuration file (`start_limit`), the help text and the generated documentation.
//!
//! Invariant: file < environment < command line, for every setting alike.
use crate::fail::{Failure, Result};
use crate::units::{parse_duration, parse_size};
use clap::{Arg, ArgMatches, Command};
use forebay_server::Consistency;
use forebay_storage::Durability;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// One setting. Its text form is the only form that travels between processes.
pub struct Setting {
    /// Key in the configuration file; the environment variable is derived from it.
    pub key: &'static str,
    /// The same with dashes: the flag.
    pub flag: &'static str,
    /// Placeholder of the value in the help; empty for a switch.
    pub value: &'static str,
    /// What holds if nobody says otherwise.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Setting {
    /// `start_limit` -> `FOREBAY_START_LIMIT`.
    pub fn env(&self) -> String {
        format!("FOREBAY_{}", self.key.to_ascii_uppercase())
    }
}

/// The settings as values.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the service itself takes.
    pub service: forebay_server::Config,
    /// Other users may use the mount, as far as file modes let them.
    pub allow_other: bool,
    /// How long a start may take.
    pub start_limit: Duration,
    /// How long a stop may take.
    pub stop_limit: Duration,
    /// Filter of the log, as `tracing` writes it.
    pub log: String,
}

/// All settings, in the order of the documentation.
pub const TABLE: &[Setting] = &[
    Setting {
        key: "nodes",
        flag: "nodes",
        value: "N",
        default: "1",
        help: "Node servers in the service, one mount each; fixed when the store is created",
        set: |s, text| {
            s.service.nodes = text
                .parse()
                .ok()
                .filter(|n| (1..=64).contains(n))
                .ok_or_else(|| {
                    format!("'{text}' is not a number of nodes; write a number from 1 to 64")
                })?;
            Ok(())
        },
    },
    Setting {
        key: "durability",
        flag: "durability",
        value: "LEVEL",
        default: "process",
        help: "What an acknowledged change survives: none, process (a killed process) or disk (a power cut)",
        set: |s, text| {
            s.service.durability = match text {
                "none" => Durability::None,
                "process" => Durability::Process,
                "disk" => Durability::Disk,
                _ => {
                    return Err(format!(
                        "'{text}' is not a durability level; write none, process or disk"
                    ));
                }
            };
            Ok(())
        },
    },
    Setting {
        key: "consistency",
        flag: "consistency",
        value: "MODE",
        default: "commit",
        help: "When other nodes see a write: commit (after fsync or close) or posix (before write returns)",
        set: |s, text| {
            s.service.consistency = match text {
                "commit" => Consistency::Commit,
                "posix" => Consistency::Posix,
                _ => {
                    return Err(format!(
                        "'{text}' is not a consistency mode; write commit or posix"
                    ));
                }
            };
            Ok(())
        },
    },
    Setting {
        key: "quota",
        flag: "quota",
        value: "SIZE",
        default: "none",
        help: "Most file data each node stores; none: what the disk has",
        set: |s, text| {
            s.service.quota = if text == "none" {
                None
            } else {
                Some(parse_size(text)?)
            };
            Ok(())
        },
    },
    Setting {
        key: "memory",
        flag: "memory",
        value: "SIZE",
        default: "192MiB",
        help: "Memory budget of each node, caches and buffers together; at least 16MiB",
        set: |s, text| {
            let bytes = parse_size(text)?;
            if bytes < 16 << 20 {
                return Err(format!(
                    "'{text}' is too little memory; give each node at least 16MiB"
                ));
            }
            s.service.memory = bytes;
            Ok(())
        },
    },
    Setting {
        key: "deadline",
        flag: "deadline",
        value: "TIME",
        default: "10s",
        help: "A request to another node fails with EIO after this long",
        set: |s, text| {
            s.service.deadline = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "allow_other",
        flag: "allow-other",
        value: "",
        default: "false",
        help: "Let other users into the mount, as far as file modes let them",
        set: |s, text| {
            s.allow_other = match text {
                "true" => true,
                "false" => false,
                _ => return Err(format!("'{text}' is not a switch; write true or false")),
            };
            Ok(())
        },
    },
    Setting {
        key: "start_limit",
        flag: "start-limit",
        value: "TIME",
        default: "60s",
        help: "Give up starting after this long",
        set: |s, text| {
            s.start_limit = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "stop_limit",
        flag: "stop-limit",
        value: "TIME",
        default: "60s",
        help: "Give up stopping cleanly after this long",
        set: |s, text| {
            s.stop_limit = positive(text)?;
            Ok(())
        },
    },
    Setting {
        key: "log",
        flag: "log",
        value: "FILTER",
        default: "info",
        help: "What goes to the log: error, warn, info, debug, trace, or a filter such as forebay_server=debug",
        set: |s, text| {
            text.parse::<tracing_subscriber::filter::Targets>()
                .map_err(|e| {
                    format!("'{text}' is not a log filter ({e}); write a level such as info")
                })?;
            s.log = text.to_string();
            Ok(())
        },
    },
];

fn positive(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!(
            "'{text}' is no time at all; write it like 500ms or 10s"
        )),
        time => Ok(time),
    }
}

/// The row of a key.
pub fn find(key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|s| s.key == key)
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The row's own default.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    CommandLine,
}

/// Settings as given on the command line.
#[derive(Debug, Clone, Default)]
pub struct SettingArgs(BTreeMap<&'static str, String>);

impl clap::FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |s: &Setting| matches.get_one::<String>(s.key).cloned();
        Ok(SettingArgs(
            TABLE
                .iter()
                .filter_map(|s| Some((s.key, given(s)?)))
                .collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        command.args(TABLE.iter().map(|s| {
            let help = format!("{} [default: {}] [env: {}]", s.help, s.default, s.env());
            let arg = Arg::new(s.key)
                .long(s.flag)
                .help(help)
                .help_heading("Settings");
            if s.value.is_empty() {
                arg.value_name("BOOL")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg.value_name(s.value)
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// All settings, each with its text and where that came from.
#[derive(Debug, Clone)]
pub struct Resolved {
    texts: BTreeMap<&'static str, (String, Source)>,
    /// The same as values.
    pub values: Settings,
}

impl Resolved {
    /// Joins defaults, file, environment and command line.
    ///
    /// # Errors
    /// A usage failure that names the value, where it came from, and how it is written.
    pub fn new(
        file: &[(String, String)],
        file_path: &Path,
        environment: impl Fn(&str) -> Option<OsString>,
        args: &SettingArgs,
    ) -> Result<Resolved> {
        let mut resolved = Resolved {
            texts: BTreeMap::new(),
            values: Settings::unset(),
        };
        for setting in TABLE {
            let from_file = file
                .iter()
                .find(|(key, _)| key == setting.key)
                .map(|(_, text)| text.clone());
            let from_env = environment(&setting.env()).map(|v| v.to_string_lossy().into_owned());
            let (text, source) = if let Some(text) = args.0.get(setting.key) {
                (text.clone(), Source::CommandLine)
            } else if let Some(text) = from_env {
                (text, Source::Environment)
            } else if let Some(text) = from_file {
                (text, Source::File)
            } else {
                (setting.default.to_string(), Source::Default)
            };
            (setting.set)(&mut resolved.values, &text).map_err(|why| {
                let place = match source {
                    Source::Default => format!("the default of {}", setting.key),
                    Source::File => format!("{} in {}", setting.key, file_path.display()),
                    Source::Environment => format!("the environment variable {}", setting.env()),
                    Source::CommandLine => format!("--{}", setting.flag),
                };
                Failure {
                    code: crate::fail::USAGE,
                    text: format!("{place}: {why}"),
                }
            })?;
            resolved.texts.insert(setting.key, (text, source));
        }
        Ok(resolved)
    }

    /// The text of every setting, to hand to another process.
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.texts
            .iter()
            .map(|(key, (text, _))| (key.to_string(), text.clone()))
            .collect()
    }

    /// The settings another process handed over.
    ///
    /// # Errors
    /// A usage failure if the texts are not what [`Resolved::texts`] gave.
    pub fn from_texts(texts: &BTreeMap<String, String>) -> Result<Resolved> {
        let file: Vec<_> = texts.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        Resolved::new(
            &file,
            Path::new("the starting process"),
            |_| None,
            &SettingArgs::default(),
        )
    }

    /// Where the value of `key` came from.
    pub fn source(&self, key: &str) -> Source {
        self.texts
            .get(key)
            .map_or(Source::Default, |(_, source)| source.clone())
    }

    /// Replaces one setting.
    ///
    /// # Errors
    /// A usage failure if `text` is not a value of it.
    pub fn set(&mut self, key: &str, text: &str) -> Result {
        let setting =
            find(key).ok_or_else(|| Failure::usage(format!("no setting {key}"), "see --help"))?;
        (setting.set)(&mut self.values, text).map_err(|why| Failure {
            code: crate::fail::USAGE,
            text: why,
        })?;
        self.texts
            .insert(setting.key, (text.to_string(), Source::CommandLine));
        Ok(())
    }
}

impl Settings {
    /// Before any row has been applied; every field is set by some row.
    fn unset() -> Settings {
        Settings {
            service: forebay_server::Config::default(),
            allow_other: false,
            start_limit: Duration::ZERO,
            stop_limit: Duration::ZERO,
            log: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        file: &[(&str, &str)],
        env: &[(&str, &str)],
        args: &[(&'static str, &str)],
    ) -> Result<Resolved> {
        let file: Vec<_> = file
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let env: BTreeMap<_, _> = env
            .iter()
            .map(|(k, v)| (k.to_string(), OsString::from(v)))
            .collect();
        let args = SettingArgs(args.iter().map(|(k, v)| (*k, v.to_string())).collect());
        Resolved::new(&file, Path::new("c.toml"), |k| env.get(k).cloned(), &args)
    }

    #[test]
    fn the_defaults_are_the_services_own() {
        let ours = resolve(&[], &[], &[]).unwrap().values.service;
        let theirs = forebay_server::Config::default();
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn a_flag_is_its_key_with_dashes() {
        for setting in TABLE {
            assert_eq!(setting.flag, setting.key.replace('_', "-"));
        }
    }

    #[test]
    fn file_then_environment_then_command_line() {
        let memory = |r: Result<Resolved>| r.unwrap().values.service.memory >> 20;
        assert_eq!(memory(resolve(&[("memory", "20M")], &[], &[])), 20);
        assert_eq!(
            memory(resolve(
                &[("memory", "20M")],
                &[("FOREBAY_MEMORY", "30M")],
                &[]
            )),
            30
        );
        let all = resolve(
            &[("memory", "20M")],
            &[("FOREBAY_MEMORY", "30M")],
            &[("memory", "40M")],
        )
        .unwrap();
        assert_eq!(all.source("memory"), Source::CommandLine);
        assert_eq!(memory(Ok(all)), 40);
    }

    #[test]
    fn a_wrong_value_names_its_place() {
        for (result, place) in [
            (resolve(&[("memory", "x")], &[], &[]), "memory in c.toml"),
            (
                resolve(&[], &[("FOREBAY_NODES", "0")], &[]),
                "FOREBAY_NODES",
            ),
            (resolve(&[], &[], &[("start_limit", "0")]), "--start-limit"),
        ] {
            let failure = result.unwrap_err();
            assert_eq!(failure.code, crate::fail::USAGE);
            assert!(failure.text.contains(place), "{failure}");
        }
    }

    #[test]
    fn settings_travel_as_texts() {
        let first = resolve(&[], &[], &[("quota", "1G"), ("allow_other", "true")]).unwrap();
        let second = Resolved::from_texts(&first.texts()).unwrap();
        assert_eq!(
            format!("{:?}", first.values),
            format!("{:?}", second.values)
        );
    }
}
