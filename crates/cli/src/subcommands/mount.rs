//! `forebay mount`: starts the server of a store, in the background unless told otherwise.
use crate::args::MountArgs;
use crate::config_file;
use crate::output::{name, print};
use crate::progress::start_server;
use forebay_node::failure::Result;
use forebay_node::mount_table;
use forebay_node::spec::{SalvageSpec, ServerReport, ServerSpec};
use std::io::Write;
use std::path::Path;

/// Runs the subcommand.
///
/// # Errors
/// Wrong settings (2); whatever keeps the server from starting (1).
pub fn run(args: &MountArgs, config: Option<&Path>) -> Result {
    let settings = config_file::resolve(config, &args.settings)?;
    mount_table::need_fuse()?;
    let spec = match args.salvage {
        true => ServerSpec::to_salvage(to_salvage(args)?, &args.mountpoint, settings.texts())?,
        false => settings.spec(&args.store, &args.mountpoint)?,
    };
    let ready = ready_line(&spec, &args.mountpoint);
    if args.foreground {
        return forebay_node::start::one_process::run(
            &spec,
            &settings.values,
            true,
            move |report| match report {
                ServerReport::Ready => {
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "{ready}").and_then(|()| out.flush())
                }
                // The log on standard error says the stages.
                _ => Ok(()),
            },
        );
    }
    let server = start_server(&spec, settings.values.start_limit)?;
    let pid = server.pid();
    server.detach();
    print(format!(
        "{ready} (pid {pid}, log {})\n",
        name(&spec.store.join("log"))
    ))
}

/// The stores that there are of those named.
fn to_salvage(args: &MountArgs) -> Result<SalvageSpec> {
    let mut stores = super::fsck::stores(std::slice::from_ref(&args.store))?;
    if stores.len() > 1 {
        stores.retain(|store| store.is_dir());
    }
    let scratch = match &args.scratch {
        Some(dir) => dir.clone(),
        None => std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), Into::into),
    };
    let scratch = mount_table::absolute(&scratch)?;
    Ok(SalvageSpec { stores, scratch })
}

fn ready_line(spec: &ServerSpec, mountpoint: &Path) -> String {
    let store = name(&spec.store);
    if spec.salvage.is_some() {
        return format!(
            "what is whole of {store} is mounted read-only on {}; {} lists what is not",
            name(mountpoint),
            name(&SalvageSpec::list(&spec.store))
        );
    }
    match spec.mounts.as_slice() {
        [one] => format!("{store} is mounted on {}", name(one)),
        [first, .., last] => format!("{store} is mounted on {} to {}", name(first), name(last)),
        [] => format!(
            "{store} is served; nothing is mounted on {}",
            name(mountpoint)
        ),
    }
}
