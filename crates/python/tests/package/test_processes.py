"""Connections and file systems in other processes: forked ones, and those that get them pickled."""

import errno
import multiprocessing
import os
import signal
import time

import fsspec
import pytest

from conftest import run, running

WORKERS = 4


def _limited(seconds=60):
    """A child that hangs ends as killed."""
    signal.alarm(seconds)


def _write_and_read(fs, place, number):
    _limited()
    path = f"{place}/{number}"
    with fs.open(path, "wb") as file:
        file.write(bytes([number]) * 100_000)
    assert fs.cat_file(path) == bytes([number]) * 100_000
    assert fs.cat_file(f"{place}/shared") == b"before"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_file_system_is_used_by_four_workers(service, place, method):
    fs = fsspec.filesystem("forebay", store=service.store, member=0)
    fs.pipe_file(f"{place}/shared", b"before")
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=_write_and_read, args=(fs, place, n)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    # The parent goes on meanwhile.
    for _ in range(50):
        assert fs.cat_file(f"{place}/shared") == b"before"
    for worker in workers:
        worker.join(90)
        assert worker.exitcode == 0
    far = service.connect(1)
    assert far.listdir(place) == ["0", "1", "2", "3", "shared"]
    for n in range(WORKERS):
        assert far.read_bytes(f"{place}/{n}") == bytes([n]) * 100_000


def test_a_pool_of_forked_workers_uses_the_connection_of_its_parent(near, far, place):
    near.write_bytes(f"{place}/f", b"".join(bytes([n]) * 1000 for n in range(64)))
    global _connection
    _connection = near
    with multiprocessing.get_context("fork").Pool(WORKERS, initializer=_limited) as pool:
        parts = pool.starmap_async(_read_part, [(f"{place}/f", n) for n in range(64)]).get(90)
    assert parts == [bytes([n]) * 1000 for n in range(64)]


def _read_part(path, number):
    with _connection.open_raw(path) as file:
        return file.pread(1000, number * 1000)


def test_a_forked_child_has_a_file_of_its_own(near, place):
    near.write_bytes(f"{place}/f", b"0123456789")
    with near.open_raw(f"{place}/f", "r+b") as file:
        file.seek(2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _limited()
                file.seek(5)
                file.write(b"CHILD")
                file.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        # Its position is its own, and so was the child's.
        assert file.read(3) == b"234" and file.read(5) == b"CHILD"


def test_a_child_that_is_killed_gives_back_its_locks(near, place):
    near.write_bytes(f"{place}/f", b"")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _limited()
            held = near.open_raw(f"{place}/f", "r+b")
            held.lock()
            os.write(write, b"locked")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(read, 6) == b"locked"
    with near.open_raw(f"{place}/f", "r+b") as file:
        assert not file.lock(wait=False)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert file.lock()
    os.close(read)
    os.close(write)


def test_a_child_that_is_killed_in_a_transaction_leaves_nothing(service, near, place):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _limited()
            files = fsspec.filesystem("forebay", store=service.store, member=0, skip_instance_cache=True)
            files.start_transaction()
            with files.open(f"{place}/f", "wb") as file:
                file.write(b"half of it")
            os.write(write, b"x" * len(near.listdir(place)))
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(read, 6) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    end = time.monotonic() + 30
    while near.listdir(place):
        assert time.monotonic() < end, near.listdir(place)
        time.sleep(0.02)
    os.close(read)
    os.close(write)


def test_a_connection_goes_on_when_its_server_was_started_again():
    with running(1) as own:
        near = own.connect()
        files = fsspec.filesystem("forebay", store=own.store, skip_instance_cache=True)
        near.write_bytes("/f", b"before")
        held = near.open_raw("/f", "r+b")
        half = near.open_raw("/half", "xb", temporary=True)
        assert held.read(3) == b"bef" and files.cat("/f") == b"before"
        run("umount", own.store, "--force")
        for call in (lambda: near.stat("/f"), lambda: files.cat("/f")):
            with pytest.raises(ConnectionRefusedError):
                call()
        run("mount", own.store, own.mounts[0])
        assert near.read_bytes("/f") == b"before" and files.cat("/f") == b"before"
        # What was open was the ended server's.
        for call in (held.read, lambda: held.write(b"x"), held.lock):
            with pytest.raises(OSError) as stale:
                call()
            assert stale.value.errno == errno.ESTALE
        for file in (held, half):
            with pytest.raises(OSError):
                file.close()
            assert file.closed
        assert near.listdir("/") == ["f"]
