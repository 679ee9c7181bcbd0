//! Every setting of a service, defined once in [`TABLE`]: its key, default, help, and how its text becomes a value.
//!
//! From one row come the flag (`--start-limit`), the environment variable (`FOREBAY_START_LIMIT`), the key of the
//! configuration file (`start_limit`), the help text and the generated documentation.
//!
//! Invariant: file < environment < command line, for every setting alike.
mod table;
mod values;

pub use table::{Setting, Settings, TABLE, find};

use clap::{Arg, ArgMatches, Command};
use forebay_node::failure::{Failure, Result, USAGE};
use forebay_node::spec::ServerSpec;
use forebay_node::units::{counted, size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The row's own default.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    #[serde(rename = "flag")]
    CommandLine,
}

/// Settings as given on the command line.
#[derive(Debug, Clone, Default)]
pub struct SettingArgs(BTreeMap<&'static str, String>);

impl SettingArgs {
    /// Gives a setting that is not there.
    pub fn or_insert(&mut self, key: &'static str, text: &str) {
        self.0.entry(key).or_insert_with(|| text.to_string());
    }
}

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
pub struct ResolvedSettings {
    texts: BTreeMap<&'static str, (String, Source)>,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The same as values.
    pub values: Settings,
}

impl ResolvedSettings {
    /// Joins defaults, file, environment and command line.
    ///
    /// # Errors
    /// A usage failure that names the value, where it came from, and how it is written.
    pub fn new(
        texts: &BTreeMap<String, String>,
        file: Option<PathBuf>,
        environment: impl Fn(&str) -> Option<OsString>,
        args: &SettingArgs,
    ) -> Result<ResolvedSettings> {
        let mut resolved = ResolvedSettings {
            texts: BTreeMap::new(),
            file,
            // Every field is set by some row.
            values: Settings::default(),
        };
        for setting in TABLE {
            let from_env = environment(&setting.env()).map(|v| v.to_string_lossy().into_owned());
            let (text, source) = if let Some(text) = args.0.get(setting.key) {
                (text.clone(), Source::CommandLine)
            } else if let Some(text) = from_env {
                (text, Source::Environment)
            } else if let Some(text) = texts.get(setting.key) {
                (text.clone(), Source::File)
            } else {
                (setting.default.to_string(), Source::Default)
            };
            (setting.set)(&mut resolved.values, &text).map_err(|why| {
                let place = match source {
                    Source::Default => format!("the default of {}", setting.key),
                    Source::File => format!(
                        "{} in {}",
                        setting.key,
                        resolved.file.as_deref().unwrap_or(Path::new("")).display()
                    ),
                    Source::Environment => format!("the environment variable {}", setting.env()),
                    Source::CommandLine => format!("--{}", setting.flag),
                };
                wrong(format!("{place}: {why}"))
            })?;
            resolved.texts.insert(setting.key, (text, source));
        }
        // Settings that are possible alone may not be so together.
        resolved.values.service.check().map_err(wrong)?;
        Ok(resolved)
    }

    /// Whether the memory budgets of `servers` of them fit this machine, where `what` runs. Those that nobody chose are not
    /// looked at beyond one: few servers ever use all of theirs.
    ///
    /// # Errors
    /// A usage failure with what they need and what there is.
    pub fn fits_machine(&self, servers: u64) -> Result {
        let servers = match self.source("memory") {
            Source::Default => 1,
            _ => servers,
        };
        let info = rustix::system::sysinfo();
        let there = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        let each = self.values.service.memory;
        let needed = each.saturating_mul(servers);
        if needed <= there {
            return Ok(());
        }
        let nodes = counted(servers, "node");
        Err(Failure::usage(
            format!(
                "{nodes} with a memory budget of {} each need {}, and this machine has {}",
                size(each),
                size(needed),
                size(there)
            ),
            "give less with --memory",
        ))
    }

    /// What a server process of `store` is told, mounted below `mountpoint`.
    ///
    /// # Errors
    /// If the memory budgets do not fit the machine, a path is missing or in use, or one lies in the other.
    pub fn spec(&self, store: &Path, mountpoint: &Path) -> Result<ServerSpec> {
        let nodes = self.values.service.nodes;
        self.fits_machine(u64::from(nodes))?;
        ServerSpec::new(store, mountpoint, nodes, self.texts())
    }

    /// The service of `store` without a mount.
    ///
    /// # Errors
    /// As [`ResolvedSettings::spec`].
    pub fn unmounted_spec(&self, store: &Path) -> Result<ServerSpec> {
        self.fits_machine(u64::from(self.values.service.nodes))?;
        ServerSpec::without_mounts(store, self.texts())
    }

    /// The text of every setting, to hand to another process.
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.texts
            .iter()
            .map(|(key, (text, _))| (key.to_string(), text.clone()))
            .collect()
    }

    /// Those settings that are `wanted`, by key, as flags of a command line.
    pub fn flags(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let wanted = TABLE.iter().filter(|s| wanted(s.key));
        wanted
            .filter_map(|s| Some(format!("--{}={}", s.flag, self.texts.get(s.key)?.0)))
            .collect()
    }

    /// The settings another process handed over.
    ///
    /// # Errors
    /// A usage failure if the texts are not what [`ResolvedSettings::texts`] gave.
    pub fn from_texts(texts: &BTreeMap<String, String>) -> Result<ResolvedSettings> {
        let from = Some("the starting process".into());
        ResolvedSettings::new(texts, from, |_| None, &SettingArgs::default())
    }

    /// Where the value of `key` came from.
    pub fn source(&self, key: &str) -> Source {
        self.texts
            .get(key)
            .map_or(Source::Default, |(_, source)| *source)
    }
}

/// What is wrong with a setting; the text says how it is written.
fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::plain(why).with_code(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        file: &[(&str, &str)],
        env: &[(&str, &str)],
        args: &[(&'static str, &str)],
    ) -> Result<ResolvedSettings> {
        let texts = file.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        let env: BTreeMap<_, _> = env
            .iter()
            .map(|(k, v)| (k.to_string(), OsString::from(v)))
            .collect();
        let args = SettingArgs(args.iter().map(|(k, v)| (*k, v.to_string())).collect());
        let file = Some("c.toml".into());
        ResolvedSettings::new(&texts.collect(), file, |k| env.get(k).cloned(), &args)
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
        let memory = |r: Result<ResolvedSettings>| r.unwrap().values.service.memory >> 20;
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
            (resolve(&[], &[], &[("quota", "0")]), "--quota"),
            (
                resolve(&[], &[("FOREBAY_NODES", "0")], &[]),
                "FOREBAY_NODES",
            ),
            (resolve(&[], &[], &[("start_limit", "0")]), "--start-limit"),
            (resolve(&[], &[], &[("index_alpha", "0")]), "--index-alpha"),
            (
                resolve(&[], &[("FOREBAY_INDEX_ALPHA", "1.01")], &[]),
                "FOREBAY_INDEX_ALPHA",
            ),
            (
                resolve(&[("index_alpha", "nan")], &[], &[]),
                "index_alpha in c.toml",
            ),
            (
                resolve(&[("index_block", "0")], &[], &[]),
                "index_block in c.toml",
            ),
            (
                resolve(&[], &[], &[("index_table_blocks", "-1")]),
                "--index-table-blocks",
            ),
            (
                resolve(&[], &[], &[("index_memtable", "0")]),
                "--index-memtable",
            ),
            (
                resolve(&[], &[], &[("index_buffer", "1K")]),
                "--index-buffer",
            ),
            (resolve(&[], &[], &[("index_cache", "0")]), "--index-cache"),
            (resolve(&[], &[], &[("index_cache", "1G")]), "`index_cache`"),
            (
                resolve(&[], &[("FOREBAY_INDEX_COVERAGE", "63K")], &[]),
                "FOREBAY_INDEX_COVERAGE",
            ),
            (
                resolve(&[("index_coverage", "much")], &[], &[]),
                "index_coverage in c.toml",
            ),
            (
                resolve(&[], &[], &[("index_coverage", "0")]),
                "--index-coverage",
            ),
            (
                resolve(&[], &[], &[("index_coverage", "1G")]),
                "`index_coverage`",
            ),
            (
                resolve(&[], &[], &[("index_block", "1M")]),
                "`index_table_blocks`",
            ),
            (
                resolve(&[("prefetch", "magic")], &[], &[]),
                "prefetch in c.toml",
            ),
            (
                resolve(&[], &[], &[("prefetch", "perfect")]),
                "`prefetch_trace`",
            ),
            (
                resolve(&[], &[], &[("prefetch_cache", "1K")]),
                "`prefetch_cache`",
            ),
            (
                resolve(&[], &[("FOREBAY_PREFETCH_CACHE", "1G")], &[]),
                "`prefetch_cache`",
            ),
            (
                resolve(&[], &[], &[("prefetch_depth", "0")]),
                "`prefetch_depth`",
            ),
            (
                resolve(&[], &[], &[("prefetch_trace", "/no/such/trace")]),
                "--prefetch-trace",
            ),
            (
                resolve(&[("codec_names", "*.nc=field; *.x")], &[], &[]),
                "codec_names in c.toml: `*.x`: ",
            ),
            (
                resolve(&[], &[], &[("codec_names", "*.nc=f32")]),
                "--codec-names: `*.nc=f32`: `f32` is not known",
            ),
            (
                resolve(&[], &[("FOREBAY_CODEC_WHEN", "on")], &[]),
                "FOREBAY_CODEC_WHEN: 'on' says not when",
            ),
            (
                resolve(&[], &[], &[("codec_when", "settle")]),
                "`codec_when` is settle and `settle` is off",
            ),
            (
                resolve(&[], &[], &[("prefetch_trace", "here.csv")]),
                "--prefetch-trace",
            ),
        ] {
            let failure = result.unwrap_err();
            assert_eq!(failure.code, forebay_node::failure::USAGE);
            assert!(failure.text.contains(place), "{failure}");
        }
    }

    #[test]
    fn settings_of_the_index_reach_it() {
        let given = [
            ("index_alpha", "1"),
            ("index_block", "64K"),
            ("index_table_blocks", "32"),
            ("index_memtable", "1M"),
            ("index_cache", "128K"),
        ];
        let service = resolve(&[], &[], &given).unwrap().values.service;
        let index = service.index.settings(service.memory);
        assert_eq!(index.alpha.get(), 1.0);
        assert_eq!((index.block_bytes, index.table_blocks), (64 << 10, 32));
        assert_eq!(
            (index.memtable_bytes, index.cache_bytes),
            (1 << 20, 128 << 10)
        );
        assert_eq!(index.buffer_bytes as u64, service.memory / 16);
        assert_eq!(index.coverage_bytes as u64, service.memory / 64);
    }

    #[test]
    fn perfect_prefetching_knows_the_reads_of_its_trace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let rows = "rank,op,file_id,offset,length,start,end\n0,read,1,8,4,0.1,0.2\n0,write,1,0,4,0.2,0.3\n0,read,1,16,4,0.3,0.4\n";
        std::fs::write(&path, rows).unwrap();
        let given = [
            ("prefetch", "perfect"),
            ("prefetch_trace", path.to_str().unwrap()),
        ];
        let service = resolve(&[], &[], &given).unwrap().values.service;
        let known = [8, 16].map(|offset| forebay_pattern::ReadRequest { offset, len: 4 });
        let future = forebay_server::delegate::FutureReads::new([known.to_vec()]);
        assert_eq!(service.prefetch.future, Some(std::sync::Arc::new(future)));
    }

    #[test]
    fn known_ranges_take_what_file_environment_and_flag_say() {
        let key = "index_coverage";
        let env = [("FOREBAY_INDEX_COVERAGE", "2M")];
        let taken = |resolved: Result<ResolvedSettings>| {
            let service = resolved.unwrap().values.service;
            service.index.settings(service.memory).coverage_bytes >> 20
        };
        assert_eq!(taken(resolve(&[(key, "1M")], &[], &[])), 1);
        assert_eq!(taken(resolve(&[(key, "1M")], &env, &[])), 2);
        assert_eq!(taken(resolve(&[(key, "1M")], &env, &[(key, "4M")])), 4);
        assert_eq!(taken(resolve(&[], &env, &[(key, "auto")])), 3);
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused_with_both() {
        let fits = |memory, servers| {
            let given = resolve(&[], &[], &[("memory", memory)]).unwrap();
            given.fits_machine(servers)
        };
        assert_eq!(fits("16M", 2), Ok(()));
        // Sixteen times what the largest machines have.
        for (memory, servers) in [("1024T", 1), ("512T", 64)] {
            let failure = fits(memory, servers).unwrap_err();
            assert_eq!(failure.code, forebay_node::failure::USAGE);
            for part in ["PiB", "this machine has", "--memory"] {
                assert!(failure.text.contains(part), "{failure}");
            }
        }
        // A budget that nobody chose is no reason not to try.
        assert_eq!(
            resolve(&[], &[], &[]).unwrap().fits_machine(1 << 40),
            Ok(())
        );
    }

    #[test]
    fn settings_travel_as_texts() {
        let first = resolve(&[], &[], &[("quota", "1G"), ("allow_other", "true")]).unwrap();
        let second = ResolvedSettings::from_texts(&first.texts()).unwrap();
        assert_eq!(
            format!("{:?}", first.values),
            format!("{:?}", second.values)
        );
    }
}
