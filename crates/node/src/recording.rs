//! The recordings of a server: for each of its mounts a file that holds all requests.
//!
//! The server that a client asks has the others of its service record too. It ends the recording if the client's process ends.
//!
//! Invariant: one recording at a time, because two could differ in what they let the kernel cache.
use crate::control::{ControlReply, RecordPart, RecordReply, RecordRequest, RecordSpec};
use crate::process_handle::on_exit;
use crate::server_context::ServerContext;
use crate::server_rpc::{PeerReply, PeerRequest, reply};
use crate::spec::host;
use forebay_fuse::MountRecording;
use forebay_trace::record::{Recorder, RecorderOptions};
use parking_lot::Mutex;
use std::io::PipeWriter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the other servers may take.
const PEER_REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the end of a recording waits for the last closes, which the kernel tells after their calls have returned.
const LAST_CLOSES_LIMIT: Duration = Duration::from_secs(1);

/// See the head of this file.
pub struct RecordingService {
    server: Arc<ServerContext>,
    /// What goes through each of its mounts.
    mounts: Vec<Arc<MountRecording>>,
    active: Mutex<Option<ActiveRecording>>,
}

struct ActiveRecording {
    id: u64,
    recorders: Vec<Arc<Recorder>>,
    /// Closed with the recording, for whoever waits for its end.
    end: Option<PipeWriter>,
}

impl RecordingService {
    /// For the mounts of `server`.
    pub fn new(server: Arc<ServerContext>, mounts: Vec<Arc<MountRecording>>) -> RecordingService {
        RecordingService {
            server,
            mounts,
            active: Mutex::default(),
        }
    }

    /// Answers a client: for all servers of the service.
    pub fn answer(self: &Arc<Self>, ask: RecordRequest) -> ControlReply {
        let answer = match ask {
            RecordRequest::Start(spec) => self.start_all(&spec).map(RecordReply::Started),
            RecordRequest::Stop { id } => Ok(RecordReply::Stopped(self.stop_all(id))),
        };
        answer.map_or_else(ControlReply::Refused, ControlReply::Record)
    }

    /// Answers another server: for this process alone.
    pub fn answer_server(&self, ask: RecordRequest) -> PeerReply {
        match ask {
            RecordRequest::Start(spec) => reply(self.start(&spec)?),
            RecordRequest::Stop { id } => reply(self.stop(id)),
        }
    }

    fn start_all(self: &Arc<Self>, spec: &RecordSpec) -> Result<Vec<RecordPart>, String> {
        if self.active.lock().as_ref().is_some_and(|a| a.id == spec.id) {
            return Ok(Vec::new());
        }
        let mut parts = self.start(spec)?;
        let question = PeerRequest::Record(RecordRequest::Start(spec.clone()));
        let rpc = &self.server.rpc;
        for (_, said) in rpc.call_all::<Vec<RecordPart>>(&question, PEER_REPLY_TIMEOUT) {
            match said {
                Ok(more) => parts.extend(more),
                Err(why) => {
                    self.stop_all(spec.id);
                    return Err(why);
                }
            }
        }
        self.end_with_asker(spec.id, spec.asker)
            .inspect_err(|_| drop(self.stop_all(spec.id)))?;
        Ok(parts)
    }

    /// Ends the recording when the process that asked for it does.
    fn end_with_asker(self: &Arc<Self>, id: u64, asker: u32) -> Result<(), String> {
        let recordings = self.clone();
        let end = on_exit(asker, "recording", move || {
            tracing::warn!("whoever asked for the recording has ended: so does the recording");
            recordings.stop_all(id);
        })?;
        if let Some(active) = self.active.lock().as_mut().filter(|active| active.id == id) {
            active.end = Some(end);
        }
        Ok(())
    }

    fn start(&self, spec: &RecordSpec) -> Result<Vec<RecordPart>, String> {
        let mut active = self.active.lock();
        match active.as_ref() {
            Some(active) if active.id == spec.id => return Ok(Vec::new()),
            Some(_) => {
                return Err(String::from(
                    "a recording of this service is running already; wait for its end",
                ));
            }
            None => {}
        }
        if self.server.members.lock().is_none() {
            return Err(String::from("the service is stopping; start it again"));
        }
        let setup = RecorderOptions {
            name: spec.name.clone(),
            begun: spec.begun,
            threads: spec.threads,
            host: host(),
        };
        let (mut parts, mut recorders) = (Vec::new(), Vec::new());
        for mount in &self.server.mounts {
            let name = format!("{}-{}-{}", setup.host, std::process::id(), mount.member);
            let path = spec.dir.join(name);
            let recorder = Recorder::start(&path, &setup).map_err(|e| {
                let path = path.display();
                format!(
                    "cannot record into {path}: {e}; name a directory that all nodes have with -o"
                )
            })?;
            recorders.push(Arc::new(recorder));
            parts.push(RecordPart {
                path,
                mount: mount.path.clone(),
            });
        }
        // Only once all are there: a failure leaves nothing on.
        for (mount, recorder) in self.mounts.iter().zip(&recorders) {
            mount.begin(recorder.clone(), spec.exact);
        }
        tracing::info!(name = spec.name, "recording");
        *active = Some(ActiveRecording {
            id: spec.id,
            recorders,
            end: None,
        });
        Ok(parts)
    }

    fn stop_all(&self, id: u64) -> Vec<String> {
        let mut problems = self.stop(id);
        let question = PeerRequest::Record(RecordRequest::Stop { id });
        let rpc = &self.server.rpc;
        for (_, said) in rpc.call_all::<Vec<String>>(&question, PEER_REPLY_TIMEOUT) {
            problems.extend(said.unwrap_or_else(|why| vec![why]));
        }
        problems
    }

    fn stop(&self, id: u64) -> Vec<String> {
        let mut active = self.active.lock();
        let Some(recording) = active.take_if(|active| active.id == id) else {
            return Vec::new();
        };
        let until = Instant::now() + LAST_CLOSES_LIMIT;
        for recorder in &recording.recorders {
            recorder.wait_until_closed(until);
        }
        let mut problems = Vec::new();
        let mounts = self.server.mounts.iter().zip(&self.mounts);
        for ((mount, recording_of), recorder) in mounts.zip(&recording.recorders) {
            recording_of.end();
            if let Err(e) = recorder.finish() {
                let mount = mount.path.display();
                problems.push(format!(
                    "the recording of {mount} on {} is not whole: {e}",
                    host()
                ));
            }
        }
        tracing::info!("the recording has ended");
        problems
    }

    /// Ends what is running: the service stops.
    pub fn close(&self) {
        let id = self.active.lock().as_ref().map(|active| active.id);
        if let Some(id) = id {
            for problem in self.stop(id) {
                tracing::warn!("{problem}");
            }
        }
    }
}
