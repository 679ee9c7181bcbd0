"""The fsspec protocol ``forebay://``.

>>> import fsspec
>>> fs = fsspec.filesystem("forebay", store="/local/nvme/store")                        # doctest: +SKIP
>>> fsspec.open("forebay:///a.csv", store="/local/nvme/store")                          # doctest: +SKIP

Paths start at the root of the file system: ``forebay:///a/b``. Without ``store`` it is the service that ``forebay run`` started for this
command. fsspec finds this class by the package's entry point.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import stat as stat_bits
import uuid
from collections.abc import Sequence
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.utils import isfilelike, stringify_path, tokenize

import forebay

#: Bytes that whole files are copied in at a time.
COPY_BYTES = 4 << 20

#: What replaces a file bears this in its name until it has its own.
TEMPORARY = ".forebay-tmp-"


class ForebayFileSystem(AbstractFileSystem):
    """Files of a Forebay service, as fsspec has file systems.

    Parameters: ``store`` and ``member`` as of :func:`forebay.connect`; ``auto_mkdir``: directories that are missing are made when a file is
    created in them.
    """

    protocol = "forebay"
    root_marker = "/"

    def __init__(
        self, store: str | None = None, member: int | None = None, auto_mkdir: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.auto_mkdir = auto_mkdir
        self.connection = forebay.connect(store, member=member)

    @property
    def fsid(self) -> str:
        return "forebay-" + str(tokenize(self.connection.store))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        path = stringify_path(path)
        for prefix in ("forebay://", "forebay:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        return "/" + path.strip("/")

    @classmethod
    def _parent(cls, path: Any) -> str:
        parent: str = os.path.dirname(cls._strip_protocol(path))
        return parent

    # Looking

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._described(path, self.connection.lstat(path))

    def _described(self, path: str, found: forebay.Stat) -> dict[str, Any]:
        link = stat_bits.S_ISLNK(found.st_mode)
        destination = None
        if link:
            destination = self.connection.readlink(path)
            # One that leads nowhere is shown as what it is.
            if self.connection.exists(path):
                found = self.connection.stat(path)
        kind = "other"
        if stat_bits.S_ISDIR(found.st_mode):
            kind = "directory"
        elif stat_bits.S_ISREG(found.st_mode):
            kind = "file"
        info = {
            "name": path,
            "size": found.st_size,
            "type": kind,
            "created": found.st_ctime,
            "mtime": found.st_mtime,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "islink": link,
            "generation": found.generation,
            "laminated": found.laminated,
        }
        if destination is not None:
            info["destination"] = destination
        return info

    def ls(self, path: Any, detail: bool = False, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            entries = list(self.connection.scandir(path))
        except NotADirectoryError:
            return [self.info(path)] if detail else [path]
        if not detail:
            return [entry.path for entry in entries]
        described = []
        for entry in entries:
            try:
                described.append(self._described(entry.path, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                # Removed since it was listed.
                continue
        return described

    def exists(self, path: Any, **kwargs: Any) -> bool:
        return self.connection.exists(self._strip_protocol(path))

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        try:
            self.connection.lstat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isfile(self, path: Any) -> bool:
        return self.connection.isfile(self._strip_protocol(path))

    def isdir(self, path: Any) -> bool:
        return self.connection.isdir(self._strip_protocol(path))

    def islink(self, path: Any) -> bool:
        try:
            return stat_bits.S_ISLNK(self.connection.lstat(self._strip_protocol(path)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self, path: Any) -> int:
        return self.connection.stat(self._strip_protocol(path)).st_size

    def created(self, path: Any) -> datetime.datetime:
        return _time(self.connection.stat(self._strip_protocol(path)).st_ctime)

    def modified(self, path: Any) -> datetime.datetime:
        return _time(self.connection.stat(self._strip_protocol(path)).st_mtime)

    def ukey(self, path: Any) -> str:
        found = self.connection.stat(self._strip_protocol(path))
        return str(tokenize(found.st_ino, found.generation))

    def checksum(self, path: Any) -> int:
        return int(self.ukey(path), 16)

    # Bytes

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **kwargs: Any
    ) -> Any:
        path = self._strip_protocol(path)
        self._make_parent(path, mode)
        if mode == "rb":
            return _Reader(self.connection.open_raw(path), forebay._connection.READ_BUFFER_BYTES)
        if not autocommit and "a" in mode:
            raise ValueError(f"{path}: a transaction replaces whole files; append outside of it")
        if autocommit or "r" in mode:
            return self.connection.open(path, mode, forebay._connection.BUFFER_BYTES)
        return _DeferredFile(self.connection, path, mode)

    def _make_parent(self, path: str, mode: str = "w") -> None:
        if self.auto_mkdir and not set("wax").isdisjoint(mode):
            self.connection.makedirs(self._parent(path), exist_ok=True)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        with self.connection.open_raw(self._strip_protocol(path)) as file:
            if start is None and end is None:
                return file.readall()
            size = file.stat().st_size
            first = _bound(start, size, 0)
            return file.pread(max(0, _bound(end, size, size) - first), first)

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self._make_parent(path)
        with self.connection.open_raw(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def get_file(
        self, rpath: Any, lpath: Any, callback: Callback = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        outfile = lpath if outfile is None and isfilelike(lpath) else outfile
        if outfile is None and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self.connection.open_raw(rpath) as source:
            callback.set_size(source.stat().st_size)
            if outfile is not None:
                _copy(source, outfile, callback)
                return
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            with open(lpath, "wb", buffering=0) as target:
                _copy(source, target, callback)

    def put_file(
        self, lpath: Any, rpath: Any, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", buffering=0) as source:
            callback.set_size(os.fstat(source.fileno()).st_size)
            self._make_parent(rpath)
            with self.connection.open_raw(rpath, "xb" if mode == "create" else "wb") as target:
                _copy(source, target, callback)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.connection.open_raw(path1) as source:
            self._make_parent(path2)
            if self.exists(path2) and self.connection.stat(path2).st_ino == source.stat().st_ino:
                return
            with self.connection.open_raw(path2, "wb") as target:
                _copy(source, target, DEFAULT_CALLBACK)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self._make_parent(path)
        with self.connection.open_raw(path, "wb" if truncate else "ab"):
            pass
        self.connection.utime(path)

    # Names

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.connection.makedirs(path)
        else:
            self.connection.mkdir(path)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        self.connection.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        self.connection.rmdir(self._strip_protocol(path))

    def rm_file(self, path: Any) -> None:
        self.connection.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = self.expand_path(path, recursive=False) if maxdepth is None else None
        if paths is None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for each in paths:
            if not self.isdir(each) or self.islink(each):
                self.connection.remove(each)
            elif recursive:
                self.connection.rmtree(each)
            else:
                raise ValueError("Cannot delete directory, set recursive=True")

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        if isinstance(path1, Sequence) and not isinstance(path1, str):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        path1, into = self._strip_protocol(path1), str(path2).endswith("/")
        path2 = self._strip_protocol(path2)
        if into or self.isdir(path2):
            path2 = os.path.join(path2, os.path.basename(path1))
        self._make_parent(path2)
        self.connection.rename(path1, path2)

    def symlink(self, src: Any, dst: Any, **kwargs: Any) -> None:
        self.connection.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        self.connection.link(self._strip_protocol(src), self._strip_protocol(dst))

    def chmod(self, path: Any, mode: int) -> None:
        self.connection.chmod(self._strip_protocol(path), mode)

    def laminate(self, path: Any) -> None:
        """Makes a file read-only for ever, so that every node may cache all of it."""
        self.connection.laminate(self._strip_protocol(path))


class _Reader(io.BufferedReader):
    """A file that is read, with what fsspec asks of it."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        raw: Any = self.raw
        return int(raw.stat().st_size)


class _DeferredFile(io.BufferedWriter):
    """A file of a transaction: it has another name until ``commit``."""

    def __init__(self, connection: forebay.Connection, path: str, mode: str) -> None:
        self._connection = connection
        self._path = path
        self._exclusive = "x" in mode
        self._temporary = f"{path}{TEMPORARY}{uuid.uuid4().hex}"
        # Holds the temporary name, which is removed with it. What is written is published when the file itself is closed.
        self._name_holder = connection.open_raw(self._temporary, "xb", temporary=True)
        super().__init__(connection.open_raw(self._temporary, "r+b"), forebay._connection.BUFFER_BYTES)

    def commit(self) -> None:
        try:
            self.close()
            if self._exclusive:
                # A second name is refused where there is one.
                self._connection.link(self._temporary, self._path)
            else:
                self._connection.rename(self._temporary, self._path)
        finally:
            self._remove_temporary_name()

    def discard(self) -> None:
        try:
            self.close()
        finally:
            self._remove_temporary_name()

    def _remove_temporary_name(self) -> None:
        # Its server removes it also if the close fails, which changes nothing of the file.
        with contextlib.suppress(OSError):
            self._name_holder.close()


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def _bound(offset: int | None, size: int, default: int) -> int:
    """An end of a range, which may count from the end of the file."""
    if offset is None:
        return default
    return max(0, size + offset) if offset < 0 else min(offset, size)


def _copy(source: Any, target: Any, callback: Callback) -> None:
    """Copies what is left of a raw file."""
    buffer = memoryview(bytearray(COPY_BYTES))
    while count := source.readinto(buffer):
        part = buffer[:count]
        while len(part) > 0:
            part = part[target.write(part) :]
        callback.relative_update(count)
