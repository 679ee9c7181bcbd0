//! What a service is asked about itself, over its control socket: its status, and stage jobs. Answers are JSON, as the command's.
use forebay_node::control::{ControlClient, StageSpec};
use forebay_node::failure::Failure;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for one answer.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the service of a store, without the interpreter's lock.
fn ask<T: Send>(
    py: Python<'_>,
    store: &Path,
    question: impl FnOnce(&mut ControlClient) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let answer = py.detach(|| {
        let not_running = || {
            Failure::new(
                format!("no Forebay service runs on {}", store.display()),
                "start it with `forebay mount`",
            )
        };
        let mut client =
            ControlClient::connect(store).map_err(|e| (e.failure(not_running), true))?;
        question(&mut client).map_err(|e| (e, false))
    });
    answer.map_err(|(failure, unreached)| {
        let errno = match unreached {
            true => libc::ECONNREFUSED,
            false => libc::EIO,
        };
        PyOSError::new_err((errno, failure.text, store.as_os_str().to_os_string()))
    })
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_value(value)
        .map(|value: Value| value.to_string())
        .map_err(|e| PyOSError::new_err((libc::EIO, e.to_string())))
}

/// The status of the service as JSON, as `forebay status --json` has it.
#[pyfunction]
pub fn service_status(py: Python<'_>, store: PathBuf) -> PyResult<String> {
    json(&ask(py, &store, |client| client.status(REPLY_TIMEOUT))?)
}

/// Starts a stage job; its number. Pairs are absolute paths of sources, and the names they get.
#[pyfunction]
#[pyo3(signature = (store, into, pairs, verify, sync, background, jobs))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub fn start_stage_job(
    py: Python<'_>,
    store: PathBuf,
    into: bool,
    pairs: Vec<(String, String)>,
    verify: bool,
    sync: bool,
    background: bool,
    jobs: u16,
) -> PyResult<u64> {
    let spec = StageSpec {
        into,
        pairs,
        verify,
        sync,
        background,
        jobs,
    };
    ask(py, &store, |client| {
        client.start_stage_job(spec, REPLY_TIMEOUT)
    })
}

/// A stage job as JSON, with its lines from the `from_line`-th on.
#[pyfunction]
pub fn stage_job(py: Python<'_>, store: PathBuf, job: u64, from_line: usize) -> PyResult<String> {
    let seen = ask(py, &store, |client| {
        client.stage_job(job, from_line, REPLY_TIMEOUT)
    })?;
    json(&seen)
}

/// Ends a stage job soon.
#[pyfunction]
pub fn cancel_stage_job(py: Python<'_>, store: PathBuf, job: u64) -> PyResult<()> {
    ask(py, &store, |client| {
        client.cancel_stage_job(job, REPLY_TIMEOUT)
    })
}
