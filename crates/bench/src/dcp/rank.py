"""One rank of the benchmark `dcp`, below torchrun: saves checkpoints or loads them, in turn by each way; rank 0 says how long it took.

The only argument is JSON: {"mode": "save" or "load", "runs": N, "bytes": N, "store": DIR, "places": {SUBJECT: DIR}}. Of `forebay` the place
is in the service, of others it is a directory. A line for each run: {"subject": ..., "seconds": ..., "files": ...}.
"""

import json
import os
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import forebay
from forebay.torch import StorageReader, StorageWriter

warnings.filterwarnings("ignore")

TENSORS = 16
COLUMNS = 1024


def tensors(mesh, job, filled):
    """The state: float32 tensors, divided by rows; each row is of its own, whoever has it."""
    rows = job["bytes"] // TENSORS // COLUMNS // 4
    state = {}
    for number in range(TENSORS):
        if filled:
            local = torch.cat([row(number, r) for r in own_rows(rows, mesh.size(), mesh.get_rank())])
        else:
            local = torch.zeros(len(own_rows(rows, mesh.size(), mesh.get_rank())), COLUMNS)
        shape = (rows, COLUMNS)
        state[f"t{number}"] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=(COLUMNS, 1))
    return state


def own_rows(rows, world, rank):
    """As DTensor divides them."""
    each = -(-rows // world)
    return range(min(rows, rank * each), min(rows, (rank + 1) * each))


def row(number, index):
    generator = torch.Generator().manual_seed(number * 1_000_003 + index)
    return torch.randn(1, COLUMNS, generator=generator)


def writer(job, subject, name):
    place = os.path.join(job["places"][subject], name)
    return StorageWriter(job["store"], place) if subject == "forebay" else dcp.FileSystemWriter(place)


def reader(job, subject, name):
    place = os.path.join(job["places"][subject], name)
    return StorageReader(job["store"], place) if subject == "forebay" else dcp.FileSystemReader(place)


def files(job, subject, name):
    place = os.path.join(job["places"][subject], name)
    return len(forebay.connect(job["store"]).listdir(place) if subject == "forebay" else os.listdir(place))


def remove(job, subject, name):
    place = os.path.join(job["places"][subject], name)
    if subject == "forebay":
        forebay.connect(job["store"]).rmtree(place)
    else:
        shutil.rmtree(place)


def timed(work):
    """Until the last rank is done."""
    dist.barrier()
    begin = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - begin


def main():
    job = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    subjects = list(job["places"])

    def say(subject, seconds, count):
        if dist.get_rank() == 0:
            print(json.dumps({"subject": subject, "seconds": seconds, "files": count}), flush=True)

    state = tensors(mesh, job, filled=job["mode"] == "save")
    if job["mode"] == "save":
        for subject in subjects:
            # What loads are measured on; and the first of each way, which is not measured.
            dcp.save(state, storage_writer=writer(job, subject, "kept"))
        for run in range(job["runs"]):
            for subject in subjects[run % len(subjects) :] + subjects[: run % len(subjects)]:
                to = writer(job, subject, "measured")
                seconds = timed(lambda: dcp.save(state, storage_writer=to))
                say(subject, seconds, files(job, subject, "measured"))
                dist.barrier()
                if dist.get_rank() == 0:
                    remove(job, subject, "measured")
                dist.barrier()
    else:
        for run in range(job["runs"]):
            for subject in subjects[run % len(subjects) :] + subjects[: run % len(subjects)]:
                source = reader(job, subject, "kept")
                seconds = timed(lambda: dcp.load(state, storage_reader=source))
                say(subject, seconds, files(job, subject, "kept"))
                if run == 0:
                    expected = tensors(mesh, job, filled=True)
                    for name, tensor in expected.items():
                        assert torch.equal(state[name].to_local(), tensor.to_local()), (subject, name)
                for tensor in state.values():
                    tensor.to_local().zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
