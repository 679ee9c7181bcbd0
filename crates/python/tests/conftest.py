"""A service of two nodes for the tests, with a connection to each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator

import forebay
import pytest

FOREBAY = os.environ.get("FOREBAY", "forebay")
NODES = 2


@dataclasses.dataclass
class Service:
    """A service that runs, its nodes in one process."""

    store: str
    mounts: list[str]

    def connect(self, member: int = 0) -> forebay.Connection:
        return forebay.connect(self.store, member=member)


def run(*args: str) -> str:
    """Runs the command, and gives what it says."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_")}
    done = subprocess.run(
        [FOREBAY, *args], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"forebay {' '.join(args)}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def running(nodes: int = NODES, *options: str) -> Iterator[Service]:
    """A service with a store of its own, which ends with it."""
    if not os.path.exists("/dev/fuse"):
        assert "FOREBAY_REQUIRE_FUSE" not in os.environ, "there is no /dev/fuse"
        pytest.skip("there is no /dev/fuse")
    place = pathlib.Path(tempfile.mkdtemp(prefix="forebay-py-", dir="/var/tmp"))
    store, point = str(place / "s"), place / "m"
    point.mkdir()
    try:
        run("mount", store, str(point), "--nodes", str(nodes), *options)
        try:
            mounts = json.loads(run("status", store, "--json"))["mounts"]
            yield Service(store, [m["path"] for m in sorted(mounts, key=lambda m: m["member"])])
        finally:
            run("umount", store, "--force")
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with running() as started:
        yield started


@pytest.fixture(scope="session")
def near(service: Service) -> forebay.Connection:
    """The node that tests write on."""
    return service.connect(0)


@pytest.fixture(scope="session")
def far(service: Service) -> forebay.Connection:
    """The node that tests read on."""
    return service.connect(1)


@pytest.fixture
def place(near: forebay.Connection) -> str:
    """A new directory in the service."""
    path = f"/{uuid.uuid4().hex}"
    near.mkdir(path)
    return path
