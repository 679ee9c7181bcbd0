"""Staging: copies between the service and other file systems, made by all its nodes."""

from __future__ import annotations

import errno
import json
import time
from typing import Any, NamedTuple

from forebay import _native


class StageResult(NamedTuple):
    """What a job has copied."""

    files: int
    bytes: int
    seconds: float
    #: What was skipped or is worth knowing, in sentences.
    lines: list[str]


class StageError(OSError):
    """A job that did not copy everything. Asked for again, it goes on: what is finished is kept."""

    def __init__(self, text: str, lines: list[str]) -> None:
        super().__init__(errno.EIO, text)
        #: What failed, in sentences.
        self.lines = lines


def run_stage(store: str, into: bool, pairs: list[tuple[str, str]], verify: bool, sync: bool) -> StageResult:
    """Has the service of ``store`` copy ``pairs``, and waits until it has; an exception in between cancels it."""
    # Each question is a connection of its own, and a job in the foreground would end with the one that started it.
    job = _native.start_stage_job(store, into, pairs, verify, sync, True, 0)
    lines: list[str] = []
    pause = 0.01
    try:
        while True:
            seen: dict[str, Any] = json.loads(_native.stage_job(store, job, len(lines)))
            lines.extend(line["text"] for line in seen["lines"])
            if seen["state"] != "running" and not seen["lines"]:
                break
            if not seen["lines"]:
                time.sleep(pause)
                pause = min(0.2, pause * 1.2)
    except BaseException:
        _native.cancel_stage_job(store, job)
        raise
    if seen["state"] != "done":
        what = seen["why"] or f"{seen['counts']['failed']} names could not be copied: {'; '.join(lines[:3])}"
        raise StageError(f"staging ended as {seen['state']}: {what}", lines)
    return StageResult(seen["counts"]["files"], seen["counts"]["bytes"], seen["seconds"], lines)
