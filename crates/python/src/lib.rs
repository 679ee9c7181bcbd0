//! `forebay._native`: the client library as Python's extension module.
//!
//! Knows how Python passes things: paths, buffers, exceptions. The package beside it (`python/forebay`) makes of these what a Python
//! programmer expects: `io.RawIOBase`, `os.stat_result`, fsspec. Everything else is `forebay_client`'s, and `forebay_node`'s where the
//! service is asked about itself.
//!
//! Invariants: no call that may wait holds the interpreter's lock. Bytes are copied from and to Python's own buffers, with no copy
//! between. An error is an `OSError` with the number of the system call of the same name.

mod attributes;
mod client;
mod file;
mod python_buffer;
mod python_error;
mod service;
mod team;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::attributes::Attributes;
    #[pymodule_export]
    use crate::client::{Client, Entries};
    #[pymodule_export]
    use crate::file::NativeFile;
    #[pymodule_export]
    use crate::service::{cancel_stage_job, service_status, stage_job, start_stage_job};
    #[pymodule_export]
    use crate::team::NativeTeam;
}
