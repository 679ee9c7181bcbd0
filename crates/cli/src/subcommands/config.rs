//! `forebay config check` and `show`: which settings hold here, and where each comes from.
use crate::args::ConfigArgs;
use crate::config_file;
use crate::output::{json, name, print};
use crate::settings::{ResolvedSettings, Source, TABLE};
use crate::table::Table;
use forebay_node::failure::{Failure, Result};
use forebay_node::units::counted;
use serde_json::json;
use std::path::Path;

/// `config check`.
///
/// # Errors
/// The first thing that is wrong with the configuration file, the environment or the flags (2).
pub fn check(args: &ConfigArgs, config: Option<&Path>) -> Result {
    let resolved = match settings(args, config) {
        Ok(resolved) => resolved,
        Err(failure) if args.json => {
            print(json(&json!({ "valid": false, "error": failure.text }))?)?;
            return Err(Failure::silent_with(failure.code));
        }
        Err(failure) => return Err(failure),
    };
    let chosen = |s: &&crate::settings::Setting| resolved.source(s.key) != Source::Default;
    let chosen = TABLE.iter().filter(chosen).count() as u64;
    print(match args.json {
        true => json(&json!({ "valid": true, "file": &resolved.file, "chosen": chosen }))?,
        false => format!(
            "the settings are right: {} chosen, the others as usual; {}\n",
            counted(chosen, "setting"),
            file(&resolved)
        ),
    })
}

/// `config show`.
///
/// # Errors
/// As [`check`].
pub fn show(args: &ConfigArgs, config: Option<&Path>) -> Result {
    let resolved = settings(args, config)?;
    let texts = resolved.texts();
    if args.json {
        let one = |s: &crate::settings::Setting| {
            let value = json!({ "value": texts.get(s.key), "from": resolved.source(s.key) });
            (s.key.to_string(), value)
        };
        let all: serde_json::Map<_, _> = TABLE.iter().map(one).collect();
        let value = json!({ "file": &resolved.file, "settings": all });
        return print(json(&value)?);
    }
    let mut table = Table::new(&["setting", "value", "from"]);
    for s in TABLE {
        let place = match resolved.source(s.key) {
            Source::Default => String::from("default"),
            Source::File => String::from("file"),
            Source::Environment => s.env(),
            Source::CommandLine => format!("--{}", s.flag),
        };
        let value = texts.get(s.key).cloned().unwrap_or_default();
        table.row(vec![s.key.to_string(), value, place]);
    }
    print(format!("{table}{}\n", file(&resolved)))
}

fn settings(args: &ConfigArgs, config: Option<&Path>) -> Result<ResolvedSettings> {
    let resolved = config_file::resolve(config, &args.settings)?;
    resolved.fits_machine(u64::from(resolved.values.service.nodes))?;
    Ok(resolved)
}

fn file(resolved: &ResolvedSettings) -> String {
    match &resolved.file {
        Some(path) => format!("the configuration file is {}", name(path)),
        None => String::from("there is no configuration file"),
    }
}
