"""Checkpoints and files of torch in one process."""

import io
import json
import pickle
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp

from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

import conftest
import forebay.torch
from forebay.torch import StorageReader, StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore")

MODEL_BYTES = 48 << 20
CHANGED = 0.2


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    def sync():
        raise AssertionError("os.sync was called")

    monkeypatch.setattr("os.sync", sync)


def test_torch_saves_and_loads_files(near, far, place):
    module = torch.nn.Linear(300, 400)
    with near.open(f"{place}/m.pt", "wb") as file:
        torch.save(module.state_dict(), file)
    with far.open(f"{place}/m.pt", "rb") as file:
        found = torch.load(file, weights_only=True)
    assert all(torch.equal(found[k], v) for k, v in module.state_dict().items())
    with far.open_raw(f"{place}/m.pt") as file:
        assert torch.equal(torch.load(file, weights_only=True)["weight"], module.weight)


def test_safetensors_of_torch(service, near, far, place):
    import safetensors.torch

    tensors = {"w": torch.randn(100, 100), "b": torch.arange(7, dtype=torch.bfloat16)}
    near.write_bytes(f"{place}/t", safetensors.torch.save(tensors))
    found = safetensors.torch.load(far.read_bytes(f"{place}/t"))
    assert all(torch.equal(found[k], v) for k, v in tensors.items())
    mounted = safetensors.torch.load_file(f"{service.mounts[1]}{place}/t")
    assert torch.equal(mounted["w"], tensors["w"])


def test_what_does_not_fit_its_slot_goes_to_the_tail(near, far, place, monkeypatch):
    state = {"t": torch.randn(50), "large": torch.randn(600_000), "words": "x" * 3_000_000, "empty": torch.empty(0)}
    for overhead in (4096, 0):
        monkeypatch.setattr(forebay.torch, "OVERHEAD", overhead)
        dcp.save(state, storage_writer=StorageWriter(near, f"{place}/{overhead}"), no_dist=True)
        found = {"t": torch.zeros(50), "large": torch.zeros(600_000), "words": "", "empty": torch.empty(0)}
        dcp.load(found, storage_reader=StorageReader(far, f"{place}/{overhead}"), no_dist=True)
        assert torch.equal(found["t"], state["t"]) and torch.equal(found["large"], state["large"])
        assert found["words"] == state["words"]


class Wrapped(torch.Tensor):
    """A tensor of another kind."""


@pytest.mark.parametrize("into", ["in place", "a parameter", "transposed", "of another type", "of another kind"])
def test_large_tensors_are_read_in_place_where_they_are_plain_memory(near, far, place, monkeypatch, into):
    state = {"t": torch.randn(900, 700)}
    dcp.save(state, storage_writer=StorageWriter(near, f"{place}/{into}"), no_dist=True)
    found = {
        "in place": lambda: torch.zeros(900, 700),
        "a parameter": lambda: torch.nn.Parameter(torch.zeros(900, 700)),
        "of another kind": lambda: torch.zeros(900, 700).as_subclass(Wrapped),
        "transposed": lambda: torch.zeros(700, 900).t(),
        "of another type": lambda: torch.zeros(900, 700, dtype=torch.float64),
    }[into]()
    wholes = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: wholes.append(k["map_location"]) or load(*a, **k))
    dcp.load({"t": found}, storage_reader=StorageReader(far, f"{place}/{into}"), no_dist=True)
    assert torch.equal(found.detach().float().as_subclass(torch.Tensor), state["t"])
    assert wholes == (["meta"] if into in ("in place", "a parameter") else ["meta", "cpu"])


@pytest.mark.parametrize(
    ("start", "shape"), [((0, 0), (300, 700)), ((137, 0), (511, 700)), ((899, 0), (1, 700)), ((3, 10), (500, 600))]
)
def test_of_a_part_of_a_large_tensor_no_more_is_read(near, far, place, monkeypatch, start, shape):
    whole = torch.randn(900, 700).to(torch.bfloat16)
    where = f"{place}/{start[0]}.{start[1]}"
    dcp.save({"t": whole}, storage_writer=StorageWriter(near, where), no_dist=True)
    reader = StorageReader(far, where)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    index = next(iter(metadata.storage_data))
    item = ReadItem(
        type=LoadItemType.TENSOR,
        dest_index=index,
        dest_offsets=torch.Size((0, 0)),
        storage_index=index,
        storage_offsets=torch.Size(start),
        lengths=torch.Size(shape),
    )
    target = torch.zeros(shape, dtype=torch.bfloat16)
    read = []
    preadinto = forebay.File.preadinto
    monkeypatch.setattr(forebay.File, "preadinto", lambda *a: read.append(preadinto(*a)) or read[-1])

    class Planner(DefaultLoadPlanner):
        def resolve_tensor(self, read_item):
            return target

        def commit_tensor(self, read_item, tensor):
            pass

    reader.read_data(LoadPlan([item]), Planner()).wait()
    expected = whole[start[0] : start[0] + shape[0], start[1] : start[1] + shape[1]]
    assert torch.equal(target, expected)
    if start[1] == 0:
        assert sum(read) < target.numel() * 2 + 200_000, "the part, and the heads of the archive"


def test_a_failed_save_is_no_checkpoint(near, place):
    class Broken(StorageWriter):
        def finish(self, metadata, results):
            raise OSError("broken")

    broken = Broken(near, f"{place}/c")
    with pytest.raises(dcp.CheckpointException):
        dcp.save({"t": torch.ones(9)}, storage_writer=broken, no_dist=True)
    with pytest.raises(dcp.CheckpointException):
        dcp.load({"t": torch.ones(9)}, storage_reader=StorageReader(near, f"{place}/c"), no_dist=True)
    assert len(near.listdir(f"{place}/c")) == 1
    # A writer that is pickled, for a process that saves, leaves the file to this one.
    assert pickle.loads(pickle.dumps(StorageWriter(near, place)))._data_file is None
    broken.reset()
    assert near.listdir(f"{place}/c") == []


@pytest.mark.parametrize("step", ["link", "rename"])
def test_a_save_whose_end_fails_leaves_the_checkpoint_before(near, far, place, monkeypatch, step):
    def broken(*args):
        raise OSError("broken")

    def save(value, **options):
        dcp.save({"t": torch.full((9,), value)}, storage_writer=StorageWriter(near, path, **options), no_dist=True)

    def check(value):
        # On another node, also without a sync.
        found = {"t": torch.zeros(9)}
        dcp.load(found, storage_reader=StorageReader(far, path), no_dist=True)
        assert torch.equal(found["t"], torch.full((9,), value))

    path = f"{place}/c"
    save(1.0, sync_files=False)
    before = near.listdir(path)
    with monkeypatch.context() as patch:
        patch.setattr(forebay.Connection, step, broken)
        with pytest.raises(dcp.CheckpointException):
            save(2.0)
    # After the link its whole data has a name, until the next save.
    assert len(near.listdir(path)) == len(before) + (step == "rename")
    check(1.0)
    save(3.0)
    assert len(near.listdir(path)) == 2
    check(3.0)


def test_a_save_that_another_one_got_ahead_of_is_not_published(near, place):
    first, second = (StorageWriter(near, f"{place}/c") for _ in range(2))
    for writer in (first, second):
        writer.set_up_storage_writer(True)
        writer.prepare_global_plan([])
    with pytest.raises(RuntimeError, match="another save"):
        first.finish(Metadata({}), [])
    second.finish(Metadata({}), [])
    assert len(near.listdir(f"{place}/c")) == 2


def test_a_writer_goes_on_when_its_server_was_started_again():
    with conftest.running(1) as own:
        writer = StorageWriter(own.connect(), "/c")
        writer.set_up_storage_writer(True)
        writer.prepare_global_plan([])
        conftest.run("umount", own.store, "--force")
        conftest.run("mount", own.store, own.mounts[0])
        dcp.save({"t": torch.ones(9)}, storage_writer=writer, checkpoint_id="/c", no_dist=True)
        assert len(own.connect().listdir("/c")) == 2


def test_a_directory_that_is_there_stays_as_it_is(near, place):
    path = f"{place}/c"
    near.mkdir(path, 0o700)
    near.setxattr(path, "user.forebay.codec", b"field,bf16")
    before = near.stat(path)
    dcp.save({"t": torch.ones(9)}, storage_writer=StorageWriter(near, path), no_dist=True)
    after = near.stat(path)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert near.getxattr(path, "user.forebay.codec") == b"field,bf16"


def test_data_of_a_checkpoint_that_came_from_elsewhere_is_never_written_over(near, place):
    path = f"{place}/c"
    writer = StorageWriter(near, path)
    for step in range(3):
        dcp.save({"t": torch.full((9,), float(step))}, storage_writer=writer, no_dist=True)
    # In another service its numbers may be any, its times are what they were.
    names = {writer._data_name()}
    for ns in (1, 10**9, 10**18):
        near.utime(f"{path}/.metadata", ns=ns)
        names.add(writer._data_name())
    assert len(names) == 4
    writer.set_up_storage_writer(True)
    before = near.listdir(path)
    near.write_bytes(f"{path}/{writer._data_name()}", b"of somebody")
    with pytest.raises(FileExistsError):
        writer.prepare_global_plan([])
    assert near.read_bytes(f"{path}/{writer._data_name()}") == b"of somebody"
    # The next save takes it for what one that was killed left.
    dcp.save({"t": torch.full((9,), 7.0)}, storage_writer=writer, no_dist=True)
    assert len(near.listdir(path)) == len(before) == 2
    found = {"t": torch.zeros(9)}
    dcp.load(found, storage_reader=StorageReader(near, path), no_dist=True)
    assert torch.equal(found["t"], torch.full((9,), 7.0))


def test_ranks_that_each_have_a_checkpoint_keep_one(near, place):
    path = f"{place}/c"

    class Alone(StorageWriter):
        def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
            super().set_up_storage_writer(is_coordinator, rank=self.number, use_collectives=False)

    for step in range(3):
        for rank in range(2):
            writer = Alone(near, path)
            writer.number = rank
            dcp.save({"t": torch.full((9,), float(step))}, storage_writer=writer, no_dist=True)
    names = near.listdir(path)
    assert len(names) == 4 and {"__0.metadata", "__1.metadata"} < set(names), names
    # One that torch's own writer made for all stays whole beside them.
    near.write_bytes(f"{path}/.metadata", b"of torch")
    near.write_bytes(f"{path}/__0_0.distcp", b"of torch")
    writer = Alone(near, path)
    writer.number = 0
    dcp.save({"t": torch.zeros(9)}, storage_writer=writer, no_dist=True)
    assert near.read_bytes(f"{path}/__0_0.distcp") == b"of torch"
    names = near.listdir(path)
    dcp.save({"t": torch.ones(9)}, storage_writer=StorageWriter(near, path), no_dist=True)
    assert set(names) < set(near.listdir(path))


def test_ranks_whose_plans_do_not_fit_are_refused():
    info = torch.distributed.checkpoint.filesystem._StorageInfo
    forebay.torch._check_apart([info("a", 0, 10), info("b", 5, 10), info("a", 10, 1)])
    with pytest.raises(RuntimeError):
        forebay.torch._check_apart([info("a", 0, 10), info("a", 9, 10)])


def test_a_writer_travels_to_another_process_by_its_store(near, place):
    import pickle

    writer = pickle.loads(pickle.dumps(StorageWriter(near, f"{place}/c")))
    dcp.save({"t": torch.ones(9)}, storage_writer=writer, no_dist=True)
    found = {"t": torch.zeros(9)}
    dcp.load(found, storage_reader=pickle.loads(pickle.dumps(StorageReader(near, f"{place}/c"))), no_dist=True)
    assert torch.equal(found["t"], torch.ones(9))


def test_six_checkpoints_of_a_model_that_changes_take_little():
    layers = 12
    values = MODEL_BYTES // 4 // layers
    generator = torch.Generator().manual_seed(3)
    model = {f"layer{n}": torch.randn(values, generator=generator) for n in range(layers)}
    with conftest.running(1, "--settle", "auto") as service:
        connection = service.connect()
        for step in range(6):
            if step:
                for layer in model.values():
                    start = torch.randint(int(values * (1 - CHANGED)), (), generator=generator).item()
                    layer[start : start + int(values * CHANGED)].normal_(generator=generator)
            dcp.save({"model": model}, storage_writer=StorageWriter(connection, f"/step{step}"), no_dist=True)
        written = 6 * MODEL_BYTES
        end = time.monotonic() + 120
        while True:
            total = json.loads(conftest.run("status", service.store, "--json"))["total"]
            if total["data_bytes"] - total["settled_bytes"] <= 1 << 20 and not total["settle_backlog_bytes"]:
                break
            assert time.monotonic() < end, total
            time.sleep(0.2)
        assert total["data_bytes"] >= written
        stored = total["unique_bytes"] + total["data_bytes"] - total["settled_bytes"]
        assert stored <= 0.4 * written, stored / written
        found = {"model": {name: torch.zeros(values) for name in model}}
        dcp.load(found, storage_reader=StorageReader(connection, "/step5"), no_dist=True)
        assert all(torch.equal(found["model"][name], layer) for name, layer in model.items())


def test_a_slot_is_written_in_order_whatever_the_pieces(near, place):
    with near.open_raw(f"{place}/f", "w+b") as file:
        writer = forebay.torch._SlotWriter(file, 4096, 3 << 20)
        pieces = [bytes([n]) * size for n, size in enumerate([1, 70, 0, 1 << 20, 5, 600_000, 600_000, 9])]
        for piece in pieces:
            writer.write(piece)
        writer.flush()
        assert writer.tell() == sum(map(len, pieces))
        stream = io.BufferedReader(forebay.torch._Slice(file, 4096, writer.tell()))
        assert stream.read() == b"".join(pieces)
        assert stream.seek(-9, 2) == writer.tell() - 9 and stream.read() == pieces[-1]
        size = file.stat().st_size
        assert writer.write(b"x" * (3 << 20)) == 3 << 20 and writer.write(b"y") == 1
        writer.flush()
        assert writer.overflowed and file.stat().st_size == size


def test_the_block_of_the_page_runs(near):
    import pathlib
    import re

    page = pathlib.Path(__file__).parents[4] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    blocks = [block for block in blocks if "import torch" in block]
    assert len(blocks) == 1
    exec(compile(blocks[0], str(page), "exec"), {"fs": near})
