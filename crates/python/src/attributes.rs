//! The attributes of a file as Python sees them: the names of `os.stat_result`, and what only Forebay has.
use forebay_client::{Lamination, Metadata, Time};
use pyo3::prelude::*;

/// The attributes of a file at one moment.
#[pyclass(frozen, eq, get_all, module = "forebay", name = "Stat")]
#[derive(Debug, Clone, PartialEq)]
pub struct Attributes {
    /// Type and permissions.
    st_mode: u32,
    /// The file's number, never used again for another file.
    st_ino: u64,
    /// Names that it has.
    st_nlink: u32,
    /// Owner.
    st_uid: u32,
    /// Group.
    st_gid: u32,
    /// Size in bytes.
    st_size: u64,
    /// Last access in nanoseconds since 1970.
    st_atime_ns: i128,
    /// Last change of the content in nanoseconds since 1970.
    st_mtime_ns: i128,
    /// Last change of content or attributes in nanoseconds since 1970.
    st_ctime_ns: i128,
    /// Bytes that it takes; holes take none.
    stored: u64,
    /// Grows with every published change of the content.
    generation: u64,
    /// Read-only for ever.
    laminated: bool,
}

#[pymethods]
impl Attributes {
    /// Last access in seconds since 1970.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.st_atime_ns)
    }

    /// Last change of the content in seconds since 1970.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.st_mtime_ns)
    }

    /// Last change of content or attributes in seconds since 1970.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.st_ctime_ns)
    }

    fn __repr__(&self) -> String {
        format!(
            "Stat(st_mode={:#o}, st_ino={}, st_size={}, generation={}, laminated={})",
            self.st_mode,
            self.st_ino,
            self.st_size,
            self.generation,
            if self.laminated { "True" } else { "False" }
        )
    }
}

impl From<Metadata> for Attributes {
    fn from(found: Metadata) -> Attributes {
        Attributes {
            st_mode: found.kind().mode_bits() | found.mode(),
            st_ino: found.ino(),
            st_nlink: found.nlink(),
            st_uid: found.uid(),
            st_gid: found.gid(),
            st_size: found.len(),
            st_atime_ns: nanoseconds(found.atime()),
            st_mtime_ns: nanoseconds(found.mtime()),
            st_ctime_ns: nanoseconds(found.ctime()),
            stored: found.stored(),
            generation: found.generation(),
            laminated: found.lamination() == Lamination::Permanent,
        }
    }
}

fn seconds(nanoseconds: i128) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Nanoseconds since 1970.
fn nanoseconds(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}
