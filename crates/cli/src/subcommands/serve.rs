//! `forebay serve`: one node server of a service over several processes.
use crate::args::ServeArgs;
use crate::config_file;
use crate::files::read_up_to;
use crate::output::{escaped, name};
use crate::settings::Source;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::spec::{MemberLocation, ServerReport, on_this_host};
use forebay_node::start::job_process::{self, JobStart};
use forebay_node::transport;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The message of a build without MPI.
pub fn no_mpi() -> Failure {
    Failure::new(
        "this forebay was built without MPI",
        "build it where mpicc is: `cargo build --release -p forebay-cli --features mpi`",
    )
}

/// Runs the subcommand.
///
/// # Errors
/// A build that knows no MPI; wrong settings (2); whatever keeps the server from starting or from stopping cleanly (1).
pub fn run(args: &ServeArgs, config: Option<&Path>) -> Result {
    if !transport::IS_BUILT_IN {
        return Err(no_mpi());
    }
    let print_report = |report: &ServerReport| {
        let line = serde_json::to_string(report).unwrap_or_default();
        // One write a line: the launcher mixes the lines of all servers.
        std::io::stdout().write_all(format!("{line}\n").as_bytes())
    };
    let start = match prepare(args, config) {
        Err(failure) if args.launched => {
            // Fails only if nobody listens, and then nobody is to be told.
            let code = failure.code;
            let text = on_this_host(true, &failure.text);
            let _ = print_report(&ServerReport::Failed(Failure { code, text }.into()));
            return Err(Failure::silent_with(code));
        }
        start => start?,
    };
    // Standard error becomes the log once the store is open; what the starter must hear still goes to the old one.
    // Not for the processes that this one starts: a launcher waits until nobody holds it any more.
    let stderr = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 0).or_fail(
        "cannot keep standard error",
        "raise the limit on open files",
    )?;
    let stderr = std::sync::Arc::new(std::fs::File::from(stderr));
    let launched = args.launched;
    job_process::run(&start, move |report| {
        // Whoever started it may be gone; the launcher's end stops the server.
        let _ = if launched {
            print_report(report)
        } else {
            match report {
                ServerReport::AllReady(locations) => writeln!(
                    std::io::stdout(),
                    "{} servers are ready, mounted on {}",
                    locations.len(),
                    args_mounts(locations)
                ),
                ServerReport::Failed(failed) => {
                    let text = escaped(&failed.failure.text);
                    (&*stderr).write_all(format!("forebay: {text}\n").as_bytes())
                }
                _ => Ok(()),
            }
        };
    })
}

/// What the server is started with.
fn prepare(args: &ServeArgs, config: Option<&Path>) -> Result<JobStart> {
    let settings = config_file::resolve(config, &args.settings)?;
    if settings.source("nodes") == Source::CommandLine {
        return Err(Failure::usage(
            "a server of a job has no --nodes",
            "the launcher says how many there are, as in `mpirun -n 4 forebay serve`",
        ));
    }
    settings.fits_machine(1)?;
    Ok(JobStart {
        store: args.store.clone(),
        mount: args.mount.clone(),
        secret: secret(args.secret_file.as_deref())?,
        texts: settings.texts(),
        settings: settings.values,
        until_input_ends: args.launched,
    })
}

fn args_mounts(locations: &[MemberLocation]) -> String {
    let places = locations
        .iter()
        .map(|s| format!("{}:{}", escaped(&s.host), name(&s.mount)));
    places.collect::<Vec<_>>().join(", ")
}

/// Longest secret, bytes.
const MAX_SECRET_BYTES: u64 = 4096;

/// The job's secret: a file that only its owner may read, or else the environment.
fn secret(file: Option<&Path>) -> Result<Vec<u8>> {
    let Some(path) = file else {
        let told = std::env::var_os("FOREBAY_SECRET").map(OsStringExt::into_vec);
        if told
            .as_ref()
            .is_some_and(|told| told.trim_ascii().is_empty())
        {
            return Err(Failure::usage(
                "FOREBAY_SECRET is set but holds no secret",
                "unset it to have none, or set one: `export FOREBAY_SECRET=$(openssl rand -hex 32)`",
            ));
        }
        return Ok(told.unwrap_or_default());
    };
    let shown = path.display();
    let write = format!("write one: `(umask 077; openssl rand -hex 32 > {shown})`");
    let unreadable = |e: std::io::Error| format!("cannot read the secret in {shown}: {e}");
    let meta = std::fs::metadata(path).map_err(|e| {
        let next = format!(
            "make it on every node: `(umask 077; openssl rand -hex 32 > {shown})` once, then copy it"
        );
        Failure::usage(unreadable(e), next)
    })?;
    if meta.mode() & 0o077 != 0 {
        return Err(Failure::usage(
            format!("others may read the secret in {shown}"),
            format!("run `chmod 600 {shown}`"),
        ));
    }
    let bytes = read_up_to(path, MAX_SECRET_BYTES).map_err(|e| {
        let next = "name a file of your own with --secret-file";
        Failure::usage(unreadable(e), next)
    })?;
    if bytes.len() as u64 > MAX_SECRET_BYTES {
        let what = format!("the secret in {shown} is longer than {MAX_SECRET_BYTES} bytes");
        return Err(Failure::usage(what, write));
    }
    // The end of a line is an editor's or `echo`'s, and no part of the secret.
    match bytes.trim_ascii() {
        [] => {
            let what = format!("{shown} holds no secret: it is empty");
            Err(Failure::usage(what, write))
        }
        secret => Ok(secret.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_what_the_file_says_without_the_end_of_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        let write = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            secret(Some(&file))
        };
        assert_eq!(write("abc123\n", 0o600).unwrap(), b"abc123");
        assert!(write("\n", 0o600).unwrap_err().text.contains("empty"));
        assert!(write("abc", 0o644).unwrap_err().text.contains("chmod 600"));
        std::fs::remove_file(&file).unwrap();
        assert!(secret(Some(&file)).unwrap_err().text.contains("openssl"));
    }
}
