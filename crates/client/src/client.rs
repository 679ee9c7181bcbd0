//! The client of one node: every operation on names.
use crate::embedded::EmbeddedClient;
use crate::error::{Result, WithPath};
use crate::link::{
    CallError, Describe, HardLink, LinkClient, LinkError, Make, PathCall, ReadLink, RemoveDir,
    RemoveFile, Rename, SOCKET_VARIABLE, Space, Stat, socket_of,
};
use crate::{File, Metadata, OpenOptions, ReadDir};
use forebay_server::delegate::FileDescription;
use forebay_server::{Attr, Caller, Delegate, Kind, Member, SpaceTotals};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are asked for at a time when a whole file is read.
const READ_STEP: u32 = 1 << 20;

/// Files of the service, seen from one node. Cheap to clone; any thread may use it.
///
/// Paths start at the root of the file system (`/a/b`).
#[derive(Clone)]
pub struct Client {
    pub(crate) backend: Backend,
}

/// Where calls are carried out.
#[derive(Clone)]
pub(crate) enum Backend {
    /// In this process, which is the server.
    Embedded(EmbeddedClient),
    /// By the server of this node.
    Link(LinkClient),
}

impl Client {
    /// A client of `delegate`'s node; new files belong to this process's user and group.
    pub fn new(delegate: Arc<Delegate>) -> Client {
        let client = EmbeddedClient::new(delegate, own_user());
        Client {
            backend: Backend::Embedded(client),
        }
    }

    /// A client of a server in another process of this machine and user, by the server's socket, or by the store that has it. Of a
    /// process with several members, the lowest; [`Client::connect_member`] takes another. New files belong to this process's
    /// user and group.
    ///
    /// When the server has ended, calls under way fail with `ENOTCONN`, and files that were open with `ESTALE`; the next call on a
    /// path connects to the server that has taken its place. A forked child connects for itself; a file that its parent had opened it
    /// opens again, by its id, when it first uses it. Neither shares positions or locks with the other.
    ///
    /// # Errors
    /// `ECONNREFUSED` if no server answers there; `EPERM` for another user's; `EPROTO` for one of another version; `EAGAIN` for one
    /// that has too many clients.
    pub fn connect(store_or_socket: impl AsRef<Path>) -> Result<Client> {
        let place = store_or_socket.as_ref();
        let connected = LinkClient::connect(place, own_user());
        let client = connected.map_err(CallError::from).at("connect to", place)?;
        Ok(Client {
            backend: Backend::Link(client),
        })
    }

    /// The same for one of several members of a process.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_member(store: impl AsRef<Path>, member: u16) -> Result<Client> {
        Client::connect(socket_of(store.as_ref(), member))
    }

    /// The same for the server that `FOREBAY_SOCKET` names, as `forebay run` sets it for its command.
    ///
    /// # Errors
    /// `ENOENT` if it is not set, and those of [`Client::connect`].
    pub fn connect_env() -> Result<Client> {
        match std::env::var_os(SOCKET_VARIABLE) {
            Some(place) => Client::connect(place),
            None => Err(CallError::from(LinkError::NoVariable))
                .at("find the server by", SOCKET_VARIABLE.as_ref()),
        }
    }

    /// The same client for another owner of new files.
    pub fn with_owner(&self, uid: u32, gid: u32) -> Client {
        let mut client = self.clone();
        match &mut client.backend {
            Backend::Embedded(embedded) => embedded.caller = Caller { uid, gid },
            Backend::Link(link) => link.caller = Caller { uid, gid },
        }
        client
    }

    /// Members of the service.
    pub fn members(&self) -> Member {
        match &self.backend {
            Backend::Embedded(client) => client.delegate.members(),
            Backend::Link(client) => client.members,
        }
    }

    /// The backend in this process; the error of calls that need it.
    pub(crate) fn embedded(&self, what: &'static str) -> Result<&EmbeddedClient> {
        match &self.backend {
            Backend::Embedded(client) => Ok(client),
            Backend::Link(_) => {
                Err(CallError::from(LinkError::EmbeddedOnly(what))).at(what, Path::new("/"))
            }
        }
    }

    /// Makes a call on a path.
    pub(crate) fn call<'a, C: PathCall<'a>>(&self, call: C) -> Result<C::Reply, CallError> {
        match &self.backend {
            Backend::Embedded(client) => Ok(call.run(client)?),
            Backend::Link(client) => client.path(call),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing; creates it, or empties it.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(self, path)
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// As [`OpenOptions::open`] and [`File::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(&path)?;
        let mut content = Vec::new();
        loop {
            let bytes = file.read_bytes_at(content.len() as u64, READ_STEP)?;
            content.extend_from_slice(&bytes);
            if bytes.len() < READ_STEP as usize {
                return Ok(content);
            }
        }
    }

    /// Replaces the content of a file and publishes it.
    ///
    /// # Errors
    /// As [`OpenOptions::open`], [`File::write_at`] and [`File::close`].
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.write_at(content, 0)?;
        file.close()
    }

    /// The attributes of a file; follows symbolic links.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `EIO`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr("stat", path.as_ref(), true).map(Metadata)
    }

    /// The attributes of a name; does not follow a symbolic link as the last name.
    ///
    /// # Errors
    /// As [`Client::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr("stat", path.as_ref(), false).map(Metadata)
    }

    /// Whether a path names something that exists; errors count as no.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As [`Client::metadata`], and `ENOTDIR`. Reading an entry may fail with `EIO`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::begin(self, path.as_ref())
    }

    /// Makes a directory with mode `0o755`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the parent does not exist, `ENOTDIR`, `ENOSPC`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, kind) = (path.as_ref(), Kind::Dir);
        self.make("make directory", path, kind, 0o755, &[])
    }

    /// Makes a directory and all its missing parents; one that exists already is fine.
    ///
    /// # Errors
    /// `EEXIST` if something else has the name, and those of [`Client::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let is_there = || self.metadata(path).is_ok_and(|m| m.is_dir());
        match self.create_dir(path) {
            Err(e) if e.errno() == Errno::NOENT => {
                let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
                self.create_dir_all(parent.ok_or(e)?)?;
                match self.create_dir(path) {
                    Err(e) if e.errno() == Errno::EXIST && is_there() => Ok(()),
                    done => done,
                }
            }
            // Made earlier, or by another node meanwhile.
            Err(_) if is_there() => Ok(()),
            done => done,
        }
    }

    /// Removes a name that is not a directory. The content stays until its last close.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EPERM` in a sticky directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let removed = self.call(RemoveFile { path: bytes(path) });
        removed.at("remove", path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let removed = self.call(RemoveDir { path: bytes(path) });
        removed.at("remove directory", path)
    }

    /// Removes a directory with everything in it; does not follow symbolic links.
    ///
    /// # Errors
    /// As [`Client::remove_file`] and [`Client::remove_dir`]; what was removed before stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.attr("remove directory", path, false)?.kind != Kind::Dir {
            return self.remove_file(path);
        }
        for entry in self.read_dir(path)? {
            let entry = entry?;
            match entry.kind() {
                Kind::Dir => self.remove_dir_all(entry.path())?,
                _ => self.remove_file(entry.path())?,
            }
        }
        self.remove_dir(path)
    }

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EINVAL` for a directory moved into itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (path, to) = (bytes(from), bytes(to));
        self.call(Rename { path, to }).at("rename", from)
    }

    /// Makes the symbolic link `link` that says `target`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the link's directory does not exist or `target` is empty.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = bytes(target.as_ref());
        self.make("link", link.as_ref(), Kind::Symlink, 0o777, target)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `EINVAL` if it is not one, and those of [`Client::metadata`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = self.call(ReadLink { path: bytes(path) });
        let target = target.at("read link", path)?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Gives the file `from` a second name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EPERM` for directories, `EMLINK`.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (path, to) = (bytes(from), bytes(to));
        self.call(HardLink { path, to }).at("link", from)
    }

    /// Where the committed bytes of a file are: its patterns, and what the index has.
    ///
    /// # Errors
    /// As [`Client::metadata`]; `EISDIR` or `EINVAL` for what is not a regular file.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<FileDescription> {
        let path = path.as_ref();
        let described = self.call(Describe { path: bytes(path) });
        described.at("describe", path)
    }

    /// Room of the whole service.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer.
    pub fn space(&self) -> Result<SpaceTotals> {
        let path = b"/".as_slice();
        self.call(Space { path }).at("measure", Path::new("/"))
    }

    fn attr(&self, operation: &'static str, path: &Path, follow: bool) -> Result<Attr> {
        let stat = Stat {
            path: bytes(path),
            follow,
        };
        self.call(stat).at(operation, path)
    }

    fn make(
        &self,
        operation: &'static str,
        path: &Path,
        kind: Kind,
        mode: u32,
        target: &[u8],
    ) -> Result<()> {
        let make = Make {
            path: bytes(path),
            kind,
            mode,
            target,
        };
        self.call(make).at(operation, path)
    }
}

/// The user and group of this process.
fn own_user() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

/// A path as calls carry it.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
