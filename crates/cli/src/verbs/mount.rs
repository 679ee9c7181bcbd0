//! `forebay mount`: starts the server of a store, in the background unless told otherwise.
use crate::args::MountArgs;
use crate::config_file;
use crate::fail::{Failure, Result};
use crate::output::{name, print};
use crate::serve::{self, Report, Spec};
use crate::server_process::ServerProcess;
use std::io::Write;
use std::path::Path;

/// Runs the verb.
///
/// # Errors
/// Wrong settings (2); whatever keeps the server from starting (1).
pub fn run(args: &MountArgs, config: Option<&Path>) -> Result {
    let settings = config_file::resolve(config, &args.settings)?;
    if !Path::new("/dev/fuse").exists() {
        return Err(Failure::new(
            "this machine has no /dev/fuse, so nothing can be mounted",
            "load it: `modprobe fuse`, and install fuse3",
        ));
    }
    let spec = Spec::new(&args.store, &args.mountpoint, &settings)?;
    let ready = ready_line(&spec, &args.mountpoint);
    if args.foreground {
        return serve::run(&spec, true, move |report| match report {
            Report::Ready => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{ready}").and_then(|()| out.flush())
            }
            // The log on standard error says the stages.
            _ => Ok(()),
        });
    }
    let bar = crate::progress::step();
    let server = ServerProcess::start(&spec, settings.values.start_limit, |step| {
        bar.set_message(step.to_string())
    });
    bar.finish_and_clear();
    let server = server?;
    let pid = server.pid();
    server.detach();
    print(format!(
        "{ready} (pid {pid}, log {})\n",
        name(&spec.store.join("log"))
    ))
}

fn ready_line(spec: &Spec, mountpoint: &Path) -> String {
    let store = name(&spec.store);
    match spec.mounts.as_slice() {
        [one] => format!("{store} is mounted on {}", name(one)),
        [first, .., last] => format!("{store} is mounted on {} to {}", name(first), name(last)),
        [] => format!(
            "{store} is served; nothing is mounted on {}",
            name(mountpoint)
        ),
    }
}
