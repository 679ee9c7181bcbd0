"""Checkpoints of several ranks: saved by four, loaded by any number, right to the bit; and what a killed rank leaves."""

import os
import pathlib
import pickle
import socket
import subprocess
import sys
import time

import pytest

from forebay.torch import StorageWriter

WORKER = pathlib.Path(__file__).with_name("worker.py")
RANKS = 4


def torchrun(ranks, what, service, fails=False):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}", str(WORKER), what, service.store, *service.mounts]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert (done.returncode != 0) == fails, done.stdout[-4000:] + done.stderr[-12000:]
    return done.stderr


@pytest.fixture(scope="module")
def saved(service):
    torchrun(RANKS, "save", service)
    return service


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_what_four_ranks_saved_is_loaded_by(saved, ranks):
    torchrun(ranks, "load", saved)


def test_a_checkpoint_is_one_file_and_what_describes_it(saved, near):
    for path in ("first", "twice", "async", "cached", "over"):
        names = near.listdir(f"/ckpt/{path}")
        assert len(names) == 2 and names[0] == ".metadata" and names[1].startswith("__all_"), (path, names)
        metadata = pickle.loads(near.read_bytes(f"/ckpt/{path}/.metadata"))
        assert {info.relative_path for info in metadata.storage_data.values()} == {names[1]}
    alone = near.listdir("/ckpt/alone")
    assert sum(n.endswith(".metadata") for n in alone) == RANKS and len(alone) == 2 * RANKS


def test_a_rank_that_is_killed_leaves_the_checkpoint_before(service, near, far):
    torchrun(RANKS, "killed", service, fails=True)
    # A server takes a moment to see that a rank has ended.
    end = time.monotonic() + 30
    while near.listdir("/ckpt/killed") != [".metadata", "__all_0.distcp"]:
        assert time.monotonic() < end, near.listdir("/ckpt/killed")
        time.sleep(0.05)
    # The next save removes what is left where a server was killed too.
    before, half = near.listdir("/ckpt/killed"), StorageWriter(far)
    half.reset("/ckpt/killed")
    for name in (half._data_name(), half._data_name() + ".tmp", ".metadata.tmp"):
        near.write_bytes(f"/ckpt/killed/{name}", b"half")
    half.set_up_storage_writer(True)
    assert near.listdir("/ckpt/killed") == before
    torchrun(2, "after", service)
    assert len(near.listdir("/ckpt/killed")) == 2
