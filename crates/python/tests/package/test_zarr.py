"""zarr's own tests of stores, on its fsspec store over the service."""

import uuid

import fsspec
import numpy as np
import pytest
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests


class TestStore(StoreTests[FsspecStore, cpu.Buffer]):
    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def fs(self, service):
        return fsspec.filesystem("forebay", store=service.store, member=0)

    @pytest.fixture
    def store_kwargs(self, fs):
        path = f"/{uuid.uuid4().hex}"
        fs.makedirs(path)
        return {"fs": AsyncFileSystemWrapper(fs, asynchronous=True), "path": path}

    @pytest.fixture
    async def store(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    @pytest.fixture
    async def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        store.fs.sync_fs.pipe_file(f"{store.path}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.fs.sync_fs.cat_file(f"{store.path}/{key}"))

    def test_store_repr(self, store: FsspecStore) -> None:
        assert repr(store) == f"<FsspecStore(AsyncFileSystemWrapper, {store.path})>"

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing


def test_a_group_is_right_on_another_node(service, place):
    data = np.arange(1_000_000, dtype="f4").reshape(1000, 1000)
    url = f"forebay://{place}/g.zarr"
    group = zarr.open_group(url, mode="w", storage_options={"store": service.store, "member": 0})
    group.create_array("plain", data=data, chunks=(100, 500))
    group.create_array("sharded", data=data, chunks=(50, 50), shards=(500, 500))
    group.attrs["n"] = 3
    again = zarr.open_group(url, mode="r", storage_options={"store": service.store, "member": 1})
    assert sorted(again.array_keys()) == ["plain", "sharded"] and again.attrs["n"] == 3
    for name in ("plain", "sharded"):
        assert np.array_equal(again[name][...], data)
        assert np.array_equal(again[name][333:777, 5], data[333:777, 5])
    mounted = zarr.open_group(f"{service.mounts[1]}{place}/g.zarr", mode="r")
    assert np.array_equal(mounted["plain"][:10], data[:10])
