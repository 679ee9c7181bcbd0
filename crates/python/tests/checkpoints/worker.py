"""One rank below torchrun: saves checkpoints, or loads them and compares every bit.

    worker.py save|load|killed|after STORE MOUNT...
"""

import os
import signal
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import forebay
from forebay.torch import StorageReader, StorageWriter

warnings.filterwarnings("ignore")


def no_sync():
    raise AssertionError("os.sync was called")


os.sync = no_sync

#: Rows that no number of ranks from 1 to 6 but 1 divides; more than what is written in one piece, in rows and in columns; and next to nothing.
SHAPES = {"rows": (1009, 33), "tall": (2203, 301), "large": (700, 640), "narrow": (3, 5), "scalar": ()}
DTYPES = {
    "rows": torch.float32,
    "tall": torch.float64,
    "large": torch.float64,
    "narrow": torch.bfloat16,
    "scalar": torch.int64,
}


def full(name, generation):
    """The whole tensor, the same on each rank."""
    seed = torch.Generator().manual_seed(hash_of(name) + generation)
    shape, dtype = SHAPES[name], DTYPES[name]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=seed, dtype=torch.float64).to(dtype)
    return torch.randint(1 << 40, shape, generator=seed, dtype=dtype)


def hash_of(name):
    return sum(ord(c) * 131**n for n, c in enumerate(name)) % 10_000_019


def state(mesh, generation, filled=True):
    """The state of a job: shards, copies, plain tensors, and what is no tensor."""

    def tensor(name):
        whole = full(name, generation)
        return whole if filled else torch.zeros_like(whole)

    return {
        "model": {
            "rows": distribute_tensor(tensor("rows"), mesh, [Shard(0)]),
            "tall": distribute_tensor(tensor("tall"), mesh, [Shard(0)]),
            "large": distribute_tensor(tensor("large"), mesh, [Shard(1)]),
            "narrow": distribute_tensor(tensor("narrow"), mesh, [Replicate()]),
        },
        "scalar": tensor("scalar"),
        "step": generation if filled else 0,
        # What is loaded into has the same keys.
        "words": {"of": ["any", generation, "length" * 5000] if filled else []},
    }


def check(found, generation):
    for name, tensor in [*found["model"].items(), ("scalar", found["scalar"])]:
        whole = full(name, generation)
        if isinstance(tensor, DTensor):
            expected = distribute_tensor(whole, tensor.device_mesh, tensor.placements).to_local()
            tensor = tensor.to_local()
        else:
            expected = whole
        assert tensor.dtype == expected.dtype and tensor.shape == expected.shape, name
        assert torch.equal(tensor.contiguous().view(-1), expected.contiguous().view(-1)), name
    assert found["step"] == generation, found["step"]
    assert found["words"] == {"of": ["any", generation, "length" * 5000]}


class KilledWriter(StorageWriter):
    """Rank 2 is killed when it has written its part, and not said so."""

    def write_data(self, plan, planner):
        written = super().write_data(plan, planner)
        if self.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def main():
    what, store, *mounts = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    node = rank % len(mounts)
    connection = forebay.connect(store, member=node)

    if what == "save":
        dcp.save(state(mesh, 1), storage_writer=StorageWriter(connection, "/ckpt/first"))
        dcp.save(state(mesh, 2), storage_writer=dcp.FileSystemWriter(f"{mounts[node]}/ckpt/stock"))
        writer = StorageWriter(connection)
        for generation in (3, 4):
            dcp.save(state(mesh, generation), storage_writer=writer, checkpoint_id="forebay:///ckpt/twice")
        saving = dcp.async_save(state(mesh, 5), storage_writer=StorageWriter(connection), checkpoint_id="/ckpt/async")
        saving.result()
        # A planner that keeps plans sends none if nothing has changed.
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        for generation in (6, 7, 8):
            dcp.save(state(mesh, generation), storage_writer=writer, checkpoint_id="/ckpt/cached", planner=planner)
        dist.barrier()
        # Over what another writer made.
        dcp.save(state(mesh, 9), storage_writer=dcp.FileSystemWriter(f"{mounts[node]}/ckpt/over"))
        dcp.save(state(mesh, 10), storage_writer=StorageWriter(connection, "/ckpt/over"))
        # Each rank by itself.
        dcp.save(state(mesh, 11), storage_writer=StorageWriter(connection, "/ckpt/alone"), use_collectives=False)
        found = state(mesh, 0, filled=False)
        dcp.load(found, storage_reader=StorageReader(connection, "/ckpt/alone"))
        check(found, 11)
        try:
            dcp.save(state(mesh, 0), storage_writer=StorageWriter(connection, "/ckpt/first", overwrite=False))
        except dcp.CheckpointException:
            pass
        else:
            raise AssertionError("a checkpoint was replaced")
    elif what == "load":
        for path, generation in [("first", 1), ("stock", 2), ("twice", 4), ("async", 5), ("cached", 8), ("over", 10)]:
            found = state(mesh, 0, filled=False)
            dcp.load(found, storage_reader=StorageReader(connection, f"/ckpt/{path}"))
            check(found, generation)
        for path, generation in [("first", 1), ("twice", 4), ("over", 10)]:
            found = state(mesh, 0, filled=False)
            dcp.load(found, storage_reader=dcp.FileSystemReader(f"{mounts[node]}/ckpt/{path}"))
            check(found, generation)
    elif what == "killed":
        dcp.save(state(mesh, 20), storage_writer=StorageWriter(connection, "/ckpt/killed"))
        dist.barrier()
        dcp.save(state(mesh, 21), storage_writer=KilledWriter(connection, "/ckpt/killed"))
    elif what == "after":
        found = state(mesh, 0, filled=False)
        dcp.load(found, storage_reader=StorageReader(connection, "/ckpt/killed"))
        check(found, 20)
        dcp.save(state(mesh, 22), storage_writer=StorageWriter(connection, "/ckpt/killed"))
        found = state(mesh, 0, filled=False)
        dcp.load(found, storage_reader=StorageReader(connection, "/ckpt/killed"))
        check(found, 22)
    # No rank ends while another one still talks to it.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
