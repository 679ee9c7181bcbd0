"""A connection to the service of a node: files, directories, attributes."""

from __future__ import annotations

import errno
import io
import json
import os
import stat as stat_bits
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay import _modes, _native
from forebay._file import File
from forebay._native import Stat
from forebay._stage import StageResult, run_stage
from forebay._team import Team

#: The buffer of files that are written: a request of one is what the service carries at once.
BUFFER_BYTES = 1 << 20

#: The buffer of files that are only read. The link reads ahead by itself where that is of use, so reads here and there fetch little.
READ_BUFFER_BYTES = 64 << 10

#: Where ``forebay run`` tells its command which service to use.
SOCKET_VARIABLE = "FOREBAY_SOCKET"

Path = str | os.PathLike[str]


class Space(NamedTuple):
    """Room of the whole service, in bytes."""

    total: int
    free: int


class DirEntry:
    """A name in a directory, as ``os.DirEntry``."""

    __slots__ = ("_connection", "_inode", "_type", "name", "path")

    def __init__(self, connection: Connection, directory: str, entry: tuple[str, int, int]) -> None:
        self._connection = connection
        self.name, self._inode, self._type = entry
        self.path = os.path.join(directory, self.name)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<forebay.DirEntry {self.name!r}>"

    def inode(self) -> int:
        """The file's number."""
        return self._inode

    def is_symlink(self) -> bool:
        return stat_bits.S_ISLNK(self._type)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return self._connection.isdir(self.path)
        return stat_bits.S_ISDIR(self._type)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self.is_symlink():
            return self._connection.isfile(self.path)
        return stat_bits.S_ISREG(self._type)

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        return self._connection.stat(self.path, follow_symlinks=follow_symlinks)


def connect(store: Path | None = None, *, member: int | None = None) -> Connection:
    """Connects to the service that runs on ``store``, the directory that ``forebay mount`` was given.

    A service of several nodes in one process has several members; ``member`` says which, the first without. Without ``store``
    it is the service that ``forebay run`` started for this command (the variable ``FOREBAY_SOCKET``).
    """
    return Connection(store, member=member)


class Connection:
    """A connection to the service of a node; see :func:`connect`.

    Paths start at the root of the file system: ``/a/b``. Any thread may use a connection. It can be pickled: the copy connects to the same
    store. A child of ``fork`` may use it: it connects by itself.
    """

    def __init__(self, store: Path | None = None, *, member: int | None = None) -> None:
        if store is None:
            store = os.environ.get(SOCKET_VARIABLE)
            if store is None:
                text = f"no store was given, and {SOCKET_VARIABLE} is not set"
                raise FileNotFoundError(errno.ENOENT, text)
        self._place = os.path.abspath(store)
        self._member = member
        self._client = _native.Client(self._place, member)
        self._mount: str | None | bool = False

    def __repr__(self) -> str:
        member = "" if self._member is None else f", member={self._member}"
        return f"forebay.connect({self._place!r}{member})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Connection):
            return NotImplemented
        return (self._place, self._member) == (other._place, other._member)

    def __hash__(self) -> int:
        return hash((self._place, self._member))

    def __reduce__(self) -> Any:
        return _connect_again, (self._place, self._member)

    @property
    def store(self) -> str:
        """The store's directory."""
        if stat_bits.S_ISSOCK(os.stat(self._place).st_mode):
            return os.path.dirname(self._place)
        return self._place

    @property
    def member(self) -> int:
        """The member of the service whose node this is."""
        if self._member is not None:
            return self._member
        # The sockets are link-0, link-1 ...
        if stat_bits.S_ISSOCK(os.stat(self._place).st_mode):
            return int(self._place.rpartition("-")[2])
        names = (name.rpartition("-") for name in os.listdir(self._place))
        return min((int(number) for head, _, number in names if head == "link" and number.isdigit()), default=0)

    @property
    def members(self) -> int:
        """How many members the service has."""
        return self._client.members()

    @property
    def mount(self) -> str | None:
        """Where this node's mount is, if it has one."""
        if isinstance(self._mount, bool):
            member = self.member
            places = [m["path"] for m in self.status()["mounts"] if m["member"] == member]
            self._mount = places[0] if places else None
        return self._mount

    # Files

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Opens a file as the built-in ``open`` does; ``permissions`` are those of a new file.

        ``buffering=0`` gives a :class:`File`, else it is the ``raw`` of what is given.
        """
        parsed = _modes.parse(mode, permissions)
        if buffering == 0 and parsed.text:
            raise ValueError("can't have unbuffered text I/O")
        if not parsed.text and (encoding, errors, newline) != (None, None, None):
            raise ValueError("binary mode takes no encoding, errors or newline argument")
        raw = self.open_raw(path, mode, permissions=permissions)
        try:
            if buffering == 0:
                return raw
            only_read = parsed.flags.read and not (parsed.flags.write or parsed.flags.append)
            size = buffering
            if buffering in (-1, 1):
                size = READ_BUFFER_BYTES if only_read else BUFFER_BYTES
            buffered: Any
            if only_read:
                buffered = io.BufferedReader(raw, size)
            elif parsed.flags.read:
                buffered = io.BufferedRandom(raw, size)
            else:
                buffered = io.BufferedWriter(raw, size)
            if not parsed.text:
                return buffered
            text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
            text.mode = mode  # type: ignore[misc]
            return text
        except BaseException:
            raw.close()
            raise

    def open_raw(
        self, path: Path, mode: str = "rb", *, permissions: int = 0o644, temporary: bool = False
    ) -> File:
        """Opens a file without a buffer. A ``temporary`` one, of mode ``x``, loses its name when it is closed or the process ends, however
        that ends, unless it was renamed before. What a server's crash leaves stays."""
        parsed = _modes.parse(mode, permissions, temporary)
        path = os.fspath(path)
        return File(self, self._client.open(path, parsed.flags), path, parsed.raw, parsed.flags)

    def read_bytes(self, path: Path) -> bytes:
        """The content of a file."""
        with self.open_raw(path) as file:
            return file.readall()

    def write_bytes(self, path: Path, data: Any) -> int:
        """Replaces the content of a file, and publishes it."""
        with self.open_raw(path, "wb") as file:
            return file.write(data)

    def truncate(self, path: Path, length: int) -> None:
        """Cuts or extends a file to ``length`` bytes."""
        with self.open_raw(path, "r+b") as file:
            file.truncate(length)

    # Attributes

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        """The attributes of a file."""
        return self._client.stat(path) if follow_symlinks else self._client.lstat(path)

    def lstat(self, path: Path) -> Stat:
        """The attributes of a name: of a symbolic link, not of what it says."""
        return self._client.lstat(path)

    def exists(self, path: Path) -> bool:
        """Whether a path names something."""
        return self._type(path) is not None

    def isfile(self, path: Path) -> bool:
        """Whether a path names a regular file."""
        return stat_bits.S_ISREG(self._type(path) or 0)

    def isdir(self, path: Path) -> bool:
        """Whether a path names a directory."""
        return stat_bits.S_ISDIR(self._type(path) or 0)

    def _type(self, path: Path) -> int | None:
        try:
            return self._client.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            if e.errno == errno.ELOOP:
                return None
            raise

    def chmod(self, path: Path, mode: int) -> None:
        """Sets permissions. Taking away the last write bit makes a file read-only until it gets one back."""
        self._client.chmod(path, mode)

    def chown(self, path: Path, uid: int, gid: int) -> None:
        """Sets owner and group; -1 leaves one as it is."""
        self._client.chown(path, None if uid == -1 else uid, None if gid == -1 else gid)

    def utime(self, path: Path, mtime: float | None = None, *, ns: int | None = None) -> None:
        """Sets the time of the last change of the content: in seconds, nanoseconds, or to now."""
        if ns is None:
            import time

            ns = time.time_ns() if mtime is None else round(mtime * 1e9)
        self._client.set_modified(path, ns)

    def laminate(self, path: Path) -> None:
        """Makes a file read-only for ever, so that every node may cache all of it. ``EBUSY`` while anyone may write it."""
        self._client.laminate(path)

    def getxattr(self, path: Path, name: str) -> bytes:
        """The value of an extended attribute."""
        return self._client.getxattr(path, name)

    def setxattr(self, path: Path, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self._client.setxattr(path, name, value)

    def listxattr(self, path: Path) -> list[str]:
        """The names of the extended attributes."""
        return self._client.listxattr(path)

    def removexattr(self, path: Path, name: str) -> None:
        """Removes an extended attribute."""
        self._client.removexattr(path, name)

    # Names

    def scandir(self, path: Path = "/") -> Iterator[DirEntry]:
        """The entries of a directory, in order of their names."""
        directory = os.fspath(path)
        entries = self._client.entries(directory)
        return (DirEntry(self, directory, entry) for entry in entries)

    def listdir(self, path: Path = "/") -> list[str]:
        """The names in a directory, in order."""
        return [name for name, _, _ in self._client.entries(path)]

    def walk(self, top: Path = "/") -> Iterator[tuple[str, list[str], list[str]]]:
        """Directories from ``top`` down, each with its directories and other names, as ``os.walk``."""
        directories: list[str] = []
        others: list[str] = []
        for entry in self.scandir(top):
            (directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        yield os.fspath(top), directories, others
        for name in directories:
            yield from self.walk(os.path.join(top, name))

    def mkdir(self, path: Path, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._client.mkdir(path, mode)

    def makedirs(self, path: Path, exist_ok: bool = False) -> None:
        """Makes a directory and its missing parents."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        self._client.makedirs(path)

    def remove(self, path: Path) -> None:
        """Removes a name that is not a directory. The content stays until its last close."""
        self._client.remove(path)

    unlink = remove

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._client.rmdir(path)

    def rmtree(self, path: Path) -> None:
        """Removes a directory with everything in it; follows no symbolic links."""
        self._client.rmtree(path)

    def rename(self, source: Path, target: Path) -> None:
        """Gives a file or directory another name, and replaces what had it."""
        self._client.rename(source, target)

    replace = rename

    def symlink(self, target: Path, link: Path) -> None:
        """Makes the symbolic link ``link`` that says ``target``."""
        self._client.symlink(target, link)

    def readlink(self, path: Path) -> str:
        """What a symbolic link says."""
        return self._client.readlink(path)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file a second name."""
        self._client.link(source, target)

    # The service

    def space(self) -> Space:
        """Room of the whole service."""
        return Space(*self._client.space())

    def status(self) -> dict[str, Any]:
        """What the service holds and does, as ``forebay status --json`` has it."""
        found: dict[str, Any] = json.loads(_native.service_status(self.store))
        return found

    def team(self, number: int, here: int = 1) -> Team:
        """Joins team ``number``: processes at all nodes, ``here`` of them at each, that open, look at and close files together."""
        return Team(self, self._client.team(number, here))

    def stage_in(self, *sources: Path, target: Path = "/", verify: bool = False, sync: bool = True) -> StageResult:
        """Copies files and directories of another file system into the directory ``target`` of this one, by all nodes.

        The directory is made if it is missing.
        """
        self._client.makedirs(os.path.join("/", target))
        pairs = [(os.path.abspath(s), os.path.join("/", target, _last(s))) for s in sources]
        return run_stage(self.store, True, pairs, verify, sync)

    def stage_out(self, *sources: Path, target: Path, verify: bool = False, sync: bool = True) -> StageResult:
        """Copies files and directories into the directory ``target`` of another file system, by all nodes.

        The directory is made if it is missing.
        """
        os.makedirs(target, exist_ok=True)
        pairs = [(os.path.join("/", s), os.path.join(os.path.abspath(target), _last(s))) for s in sources]
        return run_stage(self.store, False, pairs, verify, sync)


def _last(path: Path) -> str:
    name = os.path.basename(os.path.normpath(path))
    if name in ("", ".", ".."):
        raise ValueError(f"{os.fspath(path)!r} has no name to give its copy")
    return name


def _connect_again(place: str, member: int | None) -> Connection:
    return Connection(place, member=member)
