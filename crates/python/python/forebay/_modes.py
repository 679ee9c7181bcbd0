"""What the modes of ``open`` mean to the service."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Flags:
    """What of an open file is wanted."""

    read: bool = False
    write: bool = False
    append: bool = False
    truncate: bool = False
    create: bool = False
    create_new: bool = False
    temporary: bool = False
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode as ``open`` takes it."""

    flags: Flags
    text: bool
    raw: str


def parse(mode: str, permissions: int = 0o644, temporary: bool = False) -> Mode:
    """Reads a mode such as ``"r+b"``; ``ValueError`` for what ``open`` refuses too."""
    letters = set(mode)
    if letters - set("rwaxbt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if "t" in letters and "b" in letters:
        raise ValueError("can't have text and binary mode at once")
    base = letters & set("rwax")
    if len(base) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    kind = base.pop()
    both = "+" in letters
    flags = Flags(
        read=kind == "r" or both,
        write=kind in "wx" or (kind == "r" and both),
        append=kind == "a",
        truncate=kind == "w",
        create=kind in "wa",
        create_new=kind == "x",
        temporary=temporary,
        mode=permissions,
    )
    raw = kind + "b" + ("+" if both else "")
    return Mode(flags, "b" not in letters, raw)
