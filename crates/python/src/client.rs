//! A connection to the service of a node, and operations on names.
use crate::attributes::Attributes;
use crate::file::NativeFile;
use crate::python_error::os_error;
use crate::team::NativeTeam;
use forebay_client::{Client as ForebayClient, Error, OpenOptions, ReadDir};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A connection to the service of a node.
#[pyclass(frozen, module = "forebay._native")]
pub struct Client {
    client: ForebayClient,
}

/// What of an open file is wanted.
#[derive(FromPyObject)]
pub(crate) struct OpenFlags {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    temporary: bool,
    mode: u32,
}

impl OpenFlags {
    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .truncate(self.truncate)
            .create(self.create)
            .create_new(self.create_new)
            .temporary(self.temporary)
            .mode(self.mode);
        options
    }
}

impl Client {
    /// Makes a call without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&ForebayClient) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| call(&self.client)).map_err(|e| os_error(&e))
    }
}

#[pymethods]
impl Client {
    /// Connects to the service of a store or socket; of a store with several members, to the given one or the first.
    #[new]
    #[pyo3(signature = (place, member=None))]
    fn new(py: Python<'_>, place: PathBuf, member: Option<u16>) -> PyResult<Client> {
        let connect = || match member {
            Some(member) => ForebayClient::connect_member(&place, member),
            None => ForebayClient::connect(&place),
        };
        let client = py.detach(connect).map_err(|e| os_error(&e))?;
        Ok(Client { client })
    }

    fn open(&self, py: Python<'_>, path: PathBuf, flags: OpenFlags) -> PyResult<NativeFile> {
        let opened = self.call(py, |c| flags.options().open(c, &path))?;
        Ok(NativeFile::new(opened))
    }

    fn stat(&self, py: Python<'_>, path: PathBuf) -> PyResult<Attributes> {
        self.call(py, |c| c.metadata(&path)).map(Attributes::from)
    }

    fn lstat(&self, py: Python<'_>, path: PathBuf) -> PyResult<Attributes> {
        self.call(py, |c| c.symlink_metadata(&path))
            .map(Attributes::from)
    }

    fn entries(&self, py: Python<'_>, path: PathBuf) -> PyResult<Entries> {
        let entries = self.call(py, |c| c.read_dir(&path))?;
        Ok(Entries {
            entries: Mutex::new(entries),
        })
    }

    /// Makes a directory with these permissions.
    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.call(py, |c| {
            c.create_dir(&path)?;
            match mode & 0o7777 {
                0o755 => Ok(()),
                mode => c.attributes(&path).set_permissions(mode),
            }
        })
    }

    /// Makes a directory and its missing parents; one that is there already is fine.
    fn makedirs(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.create_dir_all(&path))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.remove_file(&path))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.remove_dir(&path))
    }

    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.remove_dir_all(&path))
    }

    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.rename(&from, &to))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, link: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.symlink(&target, &link))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.call(py, |c| c.read_link(&path))
            .map(PathBuf::into_os_string)
    }

    fn link(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.hard_link(&from, &to))
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.call(py, |c| c.attributes(&path).set_permissions(mode))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> PyResult<()> {
        self.call(py, |c| c.attributes(&path).set_owner(uid, gid))
    }

    /// Sets the time of the last change of the content, in nanoseconds since 1970.
    fn set_modified(&self, py: Python<'_>, path: PathBuf, nanoseconds: i64) -> PyResult<()> {
        let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let time = match nanoseconds < 0 {
            true => epoch.checked_sub(distance),
            false => epoch.checked_add(distance),
        };
        // Any 64 bits of nanoseconds are within 300 years of 1970.
        let time = time.unwrap_or(epoch);
        self.call(py, |c| c.attributes(&path).set_modified(time))
    }

    fn laminate(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.call(py, |c| c.attributes(&path).laminate())
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.call(py, |c| c.attributes(&path).xattr(name))?;
        Ok(PyBytes::new(py, &value))
    }

    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: &str, value: &[u8]) -> PyResult<()> {
        self.call(py, |c| c.attributes(&path).set_xattr(name, value))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.call(py, |c| c.attributes(&path).list_xattrs())
    }

    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: &str) -> PyResult<()> {
        self.call(py, |c| c.attributes(&path).remove_xattr(name))
    }

    /// Bytes of the whole service: all, and those that are left.
    fn space(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let found = self.call(py, ForebayClient::space)?;
        Ok((found.total, found.free))
    }

    /// Members of the service.
    fn members(&self) -> u16 {
        self.client.members()
    }

    /// Joins the team of this number, with `here` processes at each node.
    fn team(&self, py: Python<'_>, number: u32, here: u32) -> PyResult<NativeTeam> {
        let team = self.call(py, |c| c.team(&c.plan_of_all(number, here)))?;
        Ok(NativeTeam::new(team))
    }
}

/// The names in a directory: an iterator of name, number and type bits.
#[pyclass(frozen, module = "forebay._native")]
pub struct Entries {
    entries: Mutex<ReadDir>,
}

#[pymethods]
impl Entries {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<(OsString, u64, u32)>> {
        let next = py.detach(|| self.entries.lock().next());
        let entry = next.transpose().map_err(|e| os_error(&e))?;
        Ok(entry.map(|entry| {
            let name = entry.file_name().to_os_string();
            (name, entry.ino(), entry.kind().mode_bits())
        }))
    }
}
