"""An open file: ``io.RawIOBase``, and what only the service has."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay._modes import Flags

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay._connection import Connection
    from forebay._native import NativeFile, Stat


class LockHeld(NamedTuple):
    """A lock of another owner."""

    start: int
    end: int
    exclusive: bool
    #: The process, if it is one of this node; else 0.
    pid: int


class File(io.RawIOBase):
    """An open file of the service, unbuffered.

    ``Connection.open`` with ``buffering=0`` gives one; the buffered and text files that it gives otherwise have one as ``raw``.
    A child of ``fork`` may use it: it opens the file again by itself, and shares neither position nor locks with its parent.
    """

    name: str
    mode: str

    def __init__(self, connection: Connection, native: NativeFile, path: str, mode: str, flags: Flags) -> None:
        self._native = native
        self._connection = connection
        self._flags = flags
        self._descriptor: tuple[int, int] | None = None
        self.name = path
        self.mode = mode
        if flags.append:
            # As the built-in `open`: who asks where it is, or reads, begins at the end.
            native.seek(0, os.SEEK_END)
        # Found at the object itself, these cost no further call.
        if flags.read:
            self.readinto = native.readinto  # type: ignore[method-assign]
        if flags.write or flags.append:
            self.write = native.write  # type: ignore[method-assign]

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<forebay.File name={self.name!r} mode={self.mode!r}{state}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object; pickle the connection and open the file again")

    # What is defined here is replaced by the calls of `_native` where the mode allows them.
    def readinto(self, buffer: Buffer, /) -> int:
        """Reads at the position into ``buffer``; gives the number of bytes, less than asked only at the end."""
        self._check()
        raise io.UnsupportedOperation("File not open for reading")

    def write(self, data: Buffer, /) -> int:
        """Writes all of ``data`` at the position."""
        self._check()
        raise io.UnsupportedOperation("File not open for writing")

    def readall(self) -> bytes:
        """Everything from the position to the end of the file."""
        here = self.tell()
        self._check_reads()
        data = self._native.pread(max(0, self._native.stat().st_size - here), here)
        self.seek(here + len(data))
        # It may have grown meanwhile.
        return data + super().readall() if data else super().readall()

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes at the position; all that follow without one."""
        if size is None or size < 0:
            return self.readall()
        self._check_reads()
        here = self.tell()
        data = self._native.pread(size, here)
        self.seek(here + len(data))
        return data

    def readable(self) -> bool:
        self._check()
        return self._flags.read

    def writable(self) -> bool:
        self._check()
        return self._flags.write or self._flags.append

    def seekable(self) -> bool:
        self._check()
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position; ``os.SEEK_DATA`` and ``os.SEEK_HOLE`` work."""
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        return self._native.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts or extends the file to ``size`` bytes, or to the position."""
        size = self.tell() if size is None else size
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
        if not self.writable():
            raise io.UnsupportedOperation("File not open for writing")
        self._native.truncate(size)
        return size

    def isatty(self) -> bool:
        self._check()
        return False

    def fileno(self) -> int:
        """A descriptor of the same file through the mount of this node, open until this file is closed.

        Raises ``io.UnsupportedOperation`` where there is no mount.
        """
        self._check()
        if self._descriptor is None or self._descriptor[0] != os.getpid():
            self._descriptor = (os.getpid(), self._open_on_mount())
        return self._descriptor[1]

    def _open_on_mount(self) -> int:
        mount = self._connection.mount
        if mount is None:
            raise io.UnsupportedOperation("the service has no mount on this node, so the file has no descriptor")
        flags = self._flags
        access = os.O_RDWR if flags.read else os.O_WRONLY
        if not (flags.write or flags.append):
            access = os.O_RDONLY
        access |= os.O_CLOEXEC | (os.O_APPEND if flags.append else 0)
        descriptor = os.open(mount + os.path.join("/", self.name), access)
        if os.fstat(descriptor).st_ino != self._native.stat().st_ino:
            os.close(descriptor)
            raise OSError(errno.ESTALE, "the name is another file's by now", self.name)
        return descriptor

    def close(self) -> None:
        """Publishes what was written, and closes."""
        if self.closed:
            return
        try:
            if self._descriptor is not None and self._descriptor[0] == os.getpid():
                os.close(self._descriptor[1])
        finally:
            self._descriptor = None
            try:
                super().close()
            finally:
                self._native.close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _check_reads(self) -> None:
        if not self.readable():
            raise io.UnsupportedOperation("File not open for reading")

    # What only the service has.

    def commit(self) -> None:
        """Publishes what this node wrote: other nodes see it when they open or lock the file after this. It is on disk."""
        self._native.commit()

    def stat(self) -> Stat:
        """The attributes, with what this node wrote and did not publish yet."""
        return self._native.stat()

    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes at ``offset``, wherever the position is."""
        return self._native.pread(size, offset)

    def preadinto(self, buffer: Buffer, offset: int) -> int:
        """Reads at ``offset`` into ``buffer``; gives the number of bytes, less than asked only at the end."""
        return self._native.preadinto(buffer, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes all of ``data`` at ``offset``, wherever the position is."""
        return self._native.pwrite(data, offset)

    def allocate(self, offset: int, length: int) -> None:
        """Reserves room for a range."""
        self._native.allocate(offset, length, False)

    def punch(self, offset: int, length: int) -> None:
        """Makes a hole of a range: it reads as zeros and takes no room."""
        self._native.allocate(offset, length, True)

    def lock(self, start: int = 0, length: int | None = None, *, exclusive: bool = True, wait: bool = True) -> bool:
        """Locks ``length`` bytes from ``start`` on, or all that follow; whether it did.

        The lock is this file's: another file is another owner, in this process too. Without ``wait`` the answer is ``False``
        if another owner's lock is in the way. Taking a lock sees what was published before.
        """
        return self._native.lock((start, length), exclusive, wait)

    def unlock(self, start: int = 0, length: int | None = None) -> None:
        """Publishes what this node wrote to the file, and gives up what this file holds of the range."""
        self._native.unlock((start, length))

    def flock(self, *, exclusive: bool = True, wait: bool = True) -> bool:
        """Locks the file as a whole, apart from its ranges; whether it did."""
        return self._native.lock(None, exclusive, wait)

    def funlock(self) -> None:
        """Gives up the lock of ``flock``."""
        self._native.unlock(None)

    def lock_held(self, start: int = 0, length: int | None = None, *, exclusive: bool = True) -> LockHeld | None:
        """The lock that would be in the way of such a one."""
        held = self._native.test_lock((start, length), exclusive)
        return None if held is None else LockHeld(*held)
