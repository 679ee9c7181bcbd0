//! Teams: processes of several nodes that open, look at and close files together.
use crate::attributes::Attributes;
use crate::client::OpenFlags;
use crate::file::NativeFile;
use crate::python_error::{closed, os_error};
use forebay_client::{Error, Team};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::path::PathBuf;

/// One process's place in a team; `None` once it has left.
#[pyclass(frozen, module = "forebay._native")]
pub struct NativeTeam {
    team: Mutex<Option<Team>>,
}

impl NativeTeam {
    pub(crate) fn new(team: Team) -> NativeTeam {
        NativeTeam {
            team: Mutex::new(Some(team)),
        }
    }

    /// Makes a call without the interpreter's lock: other processes may be waited for.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Team) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.team.lock().as_mut().map(call))
            .ok_or_else(closed)?
            .map_err(|e| os_error(&e))
    }
}

#[pymethods]
impl NativeTeam {
    fn open(&self, py: Python<'_>, path: PathBuf, flags: OpenFlags) -> PyResult<NativeFile> {
        let file = self.call(py, |team| team.open(&path, &flags.options()))?;
        Ok(NativeFile::new(file))
    }

    fn stat(&self, py: Python<'_>, path: PathBuf) -> PyResult<Attributes> {
        self.call(py, |team| team.stat(&path)).map(Attributes::from)
    }

    /// Closes a file together; its attributes as they are then.
    fn close_file(&self, py: Python<'_>, file: &NativeFile) -> PyResult<Attributes> {
        let file = file.take()?;
        self.call(py, |team| team.close(file)).map(Attributes::from)
    }

    fn leave(&self, py: Python<'_>) {
        py.detach(|| drop(self.team.lock().take()));
    }
}
