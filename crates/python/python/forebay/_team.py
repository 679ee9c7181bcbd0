"""Teams: processes of several nodes that open, look at and close files together."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING

from forebay import _modes
from forebay._file import File

if TYPE_CHECKING:
    from forebay._connection import Connection, Path
    from forebay._native import NativeTeam, Stat


class Team:
    """One process's place in a team; see ``Connection.team``.

    All processes of a team make the same calls in the same order. Each call is one for the service, however many they are, and
    ends when the last has made it.
    """

    def __init__(self, connection: Connection, native: NativeTeam) -> None:
        self._connection = connection
        self._native = native

    def open(self, path: Path, mode: str = "rb", *, permissions: int = 0o644) -> File:
        """Opens a file, all together; without a buffer. What creates the file must be the same for all."""
        parsed = _modes.parse(mode, permissions)
        if parsed.text and "t" in mode:
            raise ValueError("a team opens binary files")
        native = self._native.open(os.fspath(path), parsed.flags)
        return File(self._connection, native, os.fspath(path), parsed.raw, parsed.flags)

    def stat(self, path: Path) -> Stat:
        """The attributes of a file, asked for all together."""
        return self._native.stat(path)

    def close_file(self, file: File) -> Stat:
        """Publishes what each node wrote, and closes, all together; the attributes as they are then."""
        found = self._native.close_file(file._native)
        file.close()
        return found

    def leave(self) -> None:
        """Leaves the team."""
        self._native.leave()

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
