//! A service whose members all run in one process: `forebay mount`, and `forebay run` without a launcher.
use super::{JoinedMembers, Reporter, ServerPlan, ServiceTopology, StartProgress};
use super::{follow_parent, opening};
use crate::control::MountStatus;
use crate::descriptors;
use crate::events::{self, ServerEvent};
use crate::failure::{Context, Failure, Result};
use crate::log::Log;
use crate::members::LocalMembers;
use crate::processes;
use crate::server_rpc::ServerRpc;
use crate::serving::ServedPrograms;
use crate::settings::Settings;
use crate::spec::{SalvageSpec, ServerFailure, ServerReport, ServerSpec};
use forebay_server::Service;
use forebay_server::salvage::Salvage;
use forebay_storage::Io;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// The hidden subcommand: reads its specification from standard input, reports on standard output, serves in the background.
/// `resolve` makes values of the settings' texts.
///
/// # Errors
/// Never after it is ready: from then on only the log is told.
pub fn background(resolve: impl FnOnce(&BTreeMap<String, String>) -> Result<Settings>) -> Result {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_fail(
        "cannot read the server's specification",
        "start it with `forebay mount`",
    )?;
    let spec: ServerSpec = serde_json::from_str(&text)
        .or_fail("this is an internal command", "use `forebay mount`")?;
    if spec.with_parent {
        follow_parent("the starting process")?;
    }
    // A session of its own: Ctrl-C at the terminal is not for it. Fails only if it leads one already.
    let _ = rustix::process::setsid();
    rustix::thread::set_name(c"forebay").or_fail("cannot name the process", "report this")?;
    // The umask and directory of whoever started it do not matter to a server.
    std::env::set_current_dir("/").or_fail("cannot change to /", "report this")?;
    let report = |report: &ServerReport| -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, report)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    let served = resolve(&spec.settings).and_then(|settings| run(&spec, &settings, false, report));
    served.map_err(|failure| {
        tracing::error!("{failure}");
        let _ = report(&ServerReport::Failed(failure.clone().into()));
        // Standard error may be the starting terminal; the report has said it.
        Failure::silent_with(failure.code)
    })
}

/// Serves until told to stop. `report` is called with each step of the start; if it fails, nobody waits and the server stops.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub fn run(
    spec: &ServerSpec,
    settings: &Settings,
    foreground: bool,
    report: impl Fn(&ServerReport) -> std::io::Result<()> + Send + Sync + 'static,
) -> Result {
    descriptors::raise_limit();
    let log = Log::start(settings, foreground);
    let (sender, events) = mpsc::channel();
    let signals = sender.clone();
    events::signals(move |event| {
        // If nobody listens any more, the server is ending already.
        let _ = signals.send(event);
    })?;
    let watched = spec.with_parent && !spec.mounts.is_empty();
    let plan = ServerPlan {
        store: spec.store.clone(),
        points: spec.mounts.clone(),
        settings,
        texts: spec.settings.clone(),
        alone: true,
        read_only: spec.salvage.is_some(),
        rank: 0,
        mount_users: watched.then(|| processes::parent().into_iter().collect()),
        log,
    };
    let report: Reporter = Arc::new(report);
    let mut topology = OneProcess {
        spec,
        settings,
        foreground,
        report: report.clone(),
        members: None,
    };
    let served = super::serve(plan, &mut topology, (sender, events), &report);
    served.map_err(|failed| failed.failure)
}

struct OneProcess<'a> {
    spec: &'a ServerSpec,
    settings: &'a Settings,
    foreground: bool,
    report: Reporter,
    /// From [`ServiceTopology::open`] to [`ServiceTopology::join`].
    members: Option<Box<dyn LocalMembers>>,
}

impl ServiceTopology for OneProcess<'_> {
    fn open(&mut self, io: &Arc<dyn Io>, progress: &StartProgress) -> Result<(), ServerFailure> {
        self.members = Some(match &self.spec.salvage {
            None => {
                let store = &self.spec.store;
                let service = Service::start(io.clone(), store, self.settings.service.clone());
                Box::new(service.map_err(|e| opening(store, &e))?)
            }
            Some(salvage) => self.open_salvage(io.clone(), salvage, progress)?,
        });
        Ok(())
    }

    fn join(
        &mut self,
        _io: Arc<dyn Io>,
        _steps: &StartProgress,
        _events: &Sender<ServerEvent>,
    ) -> Result<JoinedMembers, ServerFailure> {
        let members = self.members.take();
        let programs = || ServedPrograms {
            starter: processes::parent(),
            early: Box::new(|_, _| {}),
        };
        Ok(JoinedMembers {
            members: members
                .ok_or_else(|| Failure::new("the store was not opened", "report this"))?,
            rpc: ServerRpc::alone(),
            programs: self.spec.with_parent.then(programs),
        })
    }

    fn ready(
        &mut self,
        _steps: &StartProgress,
        _mounts: &[MountStatus],
    ) -> Result<bool, ServerFailure> {
        let heard = (self.report)(&ServerReport::Ready).is_ok();
        if !self.foreground {
            release_streams()?;
        }
        Ok(heard)
    }
}

impl OneProcess<'_> {
    fn open_salvage(
        &self,
        io: Arc<dyn Io>,
        salvage: &SalvageSpec,
        progress: &StartProgress,
    ) -> Result<Box<dyn LocalMembers>> {
        let store = &self.spec.store;
        let mut unheard = Ok(());
        let mut progress = |step: &'static str| {
            if let Err(failure) = progress.step(format!("salvaging {}: {step}", store.display())) {
                unheard = Err(failure);
            }
        };
        let service = Salvage::start(
            io,
            &salvage.stores,
            &salvage.scratch,
            &self.settings.service,
            &mut progress,
        );
        let service = service.map_err(|e| opening(store, &e))?;
        unheard?;
        let list = SalvageSpec::list(store);
        std::fs::write(&list, service.losses().text()).or_fail(
            format!("cannot write {}", list.display()),
            "check the disk and who may write there",
        )?;
        Ok(Box::new(service))
    }
}

/// Lets go of the streams of the starting process; standard error goes to the log by now.
fn release_streams() -> Result {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .or_fail("cannot open /dev/null", "report this")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .or_fail(
            "cannot release the starting terminal",
            "raise the limit on open files",
        )
}
