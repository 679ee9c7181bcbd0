"""The Python worker of the benchmark `clients` does its job."""

import json
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).parents[3] / "bench" / "clients" / "worker.py"


@pytest.mark.parametrize("way", ["python", "fsspec"])
def test_the_worker_writes_reads_and_makes_files(service, near, far, place, way):
    def job(rank, task, what):
        words = {"dir": place, "rank": rank, "of": 2, "task": {task: what}, "link": service.store}
        done = subprocess.run(
            [sys.executable, str(WORKER), way, json.dumps(words)], input="go\n", capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        ready, outcome = done.stdout.splitlines()
        assert ready == "ready"
        return json.loads(outcome)["done"]

    for layout in ("Own", "Strided"):
        records = {"layout": layout, "record": 4096, "bytes": 65536}
        for task in ("Write", "Read"):
            for rank in range(2):
                assert job(rank, task, records) == 32768
    assert job(0, "Read", {"layout": "Random", "record": 4096, "bytes": 65536}) == 32768
    data = far.read_bytes(f"{place}/data")
    assert [int.from_bytes(data[n * 4096 :][:8], "little") for n in range(16)] == [n * 4096 for n in range(16)]
    near.mkdir(f"{place}/0")
    assert job(0, "Create", 10) == 5 and far.exists(f"{place}/0/f0.4")
    assert job(1, "Stat", 10) == 5
    assert job(0, "Unlink", 10) == 5 and far.listdir(f"{place}/0") == []
