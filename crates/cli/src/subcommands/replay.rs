//! `forebay trace replay`: a trace against directories, a service of its own, or the client library.
use super::library::LibraryTarget;
use crate::args::ReplayArgs;
use crate::config_file;
use crate::output::{self, print, print_error_line};
use crate::progress;
use crate::scratch_dir::ScratchDir;
use crate::settings::ResolvedSettings;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::server_process::ServerProcess;
use forebay_node::threads::on_signals;
use forebay_node::units::{count, rate, size};
use forebay_server::Service;
use forebay_trace::Trace;
use forebay_trace::replay::{self, Event, Options, PathTarget, Phase, Report, Target};
use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the subcommand.
///
/// # Errors
/// Wrong settings (2); a trace that cannot be read or replayed, a failed call, the first wrong byte (1).
pub fn run(args: &ReplayArgs, config: Option<&Path>) -> Result {
    let trace = super::trace::open(&args.file)?.trace();
    let report = match &args.store {
        None => on(
            &trace,
            args,
            PathTarget::new(args.mounts.clone())
                .map_err(|e| Failure::new(e, "name mounted directories with --mounts"))?,
        ),
        Some(store) => {
            let settings = config_file::resolve(config, &args.settings)?;
            if args.library {
                in_library(&trace, args, store, &settings)
            } else {
                in_mounts(&trace, args, store, &settings)
            }
        }
    }?;
    let text = if args.json {
        output::json(&value(&report))?
    } else {
        text(&report)
    };
    print(text)
}

/// Replays on any target, with a bar for each phase.
fn on<T: Target>(trace: &Trace, args: &ReplayArgs, target: T) -> Result<Report> {
    let bar = progress::bytes("replay", 0);
    let progress = |event: Event| match event {
        Event::Begin { phase, bytes } => {
            bar.reset();
            bar.set_message(match phase {
                Phase::Inputs => "replay: inputs",
                Phase::Calls => "replay: calls",
                Phase::Check => "replay: check",
            });
            bar.set_length(bytes);
        }
        Event::Done { bytes } => bar.inc(bytes),
    };
    let report = replay::replay(
        trace,
        &target,
        &Options {
            progress: &progress,
            delays: args.delays,
            threads: args.threads.unwrap_or(Options::default().threads),
            check: !args.no_check,
            ..Options::default()
        },
    );
    bar.finish_and_clear();
    report.map_err(|e| {
        Failure::new(
            format!("the replay failed: {e}"),
            "the files are left as they are",
        )
    })
}

/// With a service of its own, mounted below a directory that is removed at the end.
fn in_mounts(
    trace: &Trace,
    args: &ReplayArgs,
    store: &Path,
    settings: &ResolvedSettings,
) -> Result<Report> {
    let base = std::env::temp_dir().join(format!("forebay-replay-{}", std::process::id()));
    let base = ScratchDir::new(&base).or_fail(
        format!("cannot create {}", base.display()),
        "set TMPDIR to a directory of your own",
    )?;
    let mut spec = settings.spec(store, &base.path().join("{node}"))?;
    spec.with_parent = true;
    for point in &spec.mounts {
        std::fs::create_dir(point)
            .or_fail(format!("cannot create {}", point.display()), "check TMPDIR")?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let running = Arc::new(Mutex::new(None::<ServerProcess>));
    let (asked, served) = (interrupted.clone(), running.clone());
    on_signals(&[SIGINT, SIGTERM], move |_| {
        asked.store(true, Ordering::SeqCst);
        // With the server gone every call of the replay returns.
        served.lock().iter().for_each(ServerProcess::end);
    })?;
    let server = ServerProcess::start(
        &spec,
        settings.values.start_limit,
        |line| print_error_line(line),
        |_| {},
    )?;
    *running.lock() = Some(server);
    let target = PathTarget::new(spec.mounts.clone())
        .or_fail("cannot use the mounts", "look at the server's log");
    let go_on = || match interrupted.load(Ordering::SeqCst) {
        true => Err(Failure::new(
            "interrupted",
            format!("the store {} stays", spec.store.display()),
        )),
        false => Ok(()),
    };
    let report = go_on().and_then(|()| on(trace, args, target?));
    let server = running.lock().take();
    // Also after a wrong byte: the store is evidence, and should be in order. And after a signal: what was killed has left its mounts.
    let stopped = server.map_or(Ok(()), |server| server.stop(settings.values.stop_limit));
    go_on()?;
    let report = report?;
    stopped.map(|()| report)
}

/// In this process, through the client library.
fn in_library(
    trace: &Trace,
    args: &ReplayArgs,
    store: &Path,
    settings: &ResolvedSettings,
) -> Result<Report> {
    let store = forebay_node::mount_table::absolute(store)?;
    forebay_node::spec::outside_stores(&store)?;
    settings.fits_machine(u64::from(settings.values.service.nodes))?;
    let shown = store.display();
    let config = settings.values.service.clone();
    let nodes = config.nodes;
    let service = Service::start(Arc::new(forebay_storage::OsIo), &store, config)
        .map_err(|e| Failure::plain(format!("cannot open the store {shown}: {e}")))?;
    let report = on(trace, args, LibraryTarget::new(&service, nodes));
    let stopped = service.stop().or_fail(
        format!("cannot close the store {shown}"),
        "run `forebay fsck` on it",
    );
    let report = report?;
    stopped.map(|()| report)
}

fn text(report: &Report) -> String {
    format!(
        "{} calls: {} written, {} read, {} (input {} before, {} read once more after)\n\
         ranks spent {:.3} s in calls, {:.3} s in delays\nevery byte was right\n",
        count(report.calls),
        size(report.written),
        size(report.read),
        rate(report.written + report.read, report.calls_time),
        size(report.inputs),
        size(report.checked),
        report.io_time.as_secs_f64(),
        report.delays_time.as_secs_f64(),
    )
}

fn value(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "calls": report.calls,
        "written_bytes": report.written,
        "read_bytes": report.read,
        "input_bytes": report.inputs,
        "checked_bytes": report.checked,
        "epochs": report.epochs,
        "reopens": report.reopens,
        "inputs_seconds": report.inputs_time.as_secs_f64(),
        "io_seconds": report.io_time.as_secs_f64(),
        "delays_seconds": report.delays_time.as_secs_f64(),
        "calls_seconds": report.calls_time.as_secs_f64(),
        "check_seconds": report.check_time.as_secs_f64(),
    })
}
